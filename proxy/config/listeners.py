"""Listeners of the proxy: for clients, and for its operators."""

from __future__ import annotations

import re
from ipaddress import ip_address
from pathlib import Path

from pydantic import Field, field_validator, model_validator

from proxy.config.section import Section, Texts
from proxy.config.security import ListenerTls
from proxy.config.values import HIGHEST_NODE_ID, NODE_ID, broker_host, node_id_of, parse_node_ids

Port = int
_LABEL = r"[A-Za-z0-9](?:[A-Za-z0-9-]{0,61}[A-Za-z0-9])?"
_HOST = re.compile(rf"(?=.{{1,253}}$){_LABEL}(?:\.{_LABEL})*")


class Listeners(Section):
    """Ports for clients: a bootstrap port, and `broker_port_start + node_id` for every broker.

    With `sni_broker_host` there is one port: the name in a client's TLS handshake selects the broker.
    """

    name: str = Field(default="default", min_length=1)
    """Name of the listener, like the listener names of brokers: clients that connect to a listener get the addresses
    that all proxies have for this name."""
    rack: str = ""
    """Rack of clients that connect here and name none; if empty, the proxy's own rack."""
    host: str = "127.0.0.1"
    """Address to listen on; `0.0.0.0` for all addresses."""
    advertised_host: str = ""
    """Host that clients get as the proxy's address; `host` if empty."""
    bootstrap_port: Port = Field(default=19092, ge=1, le=65535)
    """Port for clients' `bootstrap.servers`; any live broker answers there."""
    broker_port_start: Port = Field(default=19100, ge=1, le=65535)
    """Port of broker 0; broker N is at this port plus N."""
    broker_node_ids: str = "0-9"
    """Node IDs of the brokers that exist or may be added, for example `0-9` or `0-5,100-105`. Their ports are bound at
    the start. If a broker with another ID joins, its port is bound while the proxy runs; open that port to clients
    then, and add the ID here."""
    tls: ListenerTls | None = None
    """TLS on all ports of the range; plain text if missing."""
    sni_broker_host: str = ""
    """Host name of each broker, with `{node_id}` in the place of its ID: `broker-{node_id}.rack-a.kafka.example.com`.
    If it is set, `bootstrap_port` is the only port, and the name in a client's TLS handshake (SNI) selects the broker.
    `advertised_host` is the name for clients' `bootstrap.servers`. A broker that joins needs no new port. It needs
    `tls`, and a certificate and DNS records for all names. If empty, each broker has a port."""

    @field_validator("broker_node_ids")
    @classmethod
    def _readable(cls, value: str) -> str:
        parse_node_ids(value)
        return value

    @field_validator("sni_broker_host")
    @classmethod
    def _host_names(cls, value: str) -> str:
        if value.count(NODE_ID) != 1 and value:
            raise ValueError(f"{value!r} does not contain {NODE_ID} once; write it in the place of the broker's ID")
        if value and not _HOST.fullmatch(broker_host(value, HIGHEST_NODE_ID)):
            raise ValueError(f"{value!r} gives no host names; write letters, digits and dashes, with dots between them")
        return value.lower()

    @model_validator(mode="after")
    def _names_fit(self) -> Listeners:
        if not self.sni_broker_host:
            return self
        if self.tls is None:
            raise ValueError("sni_broker_host needs TLS, whose handshake contains the name; set tls")
        if not _HOST.fullmatch(self.advertised_host) or _is_address(self.advertised_host):
            raise ValueError(
                "sni_broker_host needs the name for clients' bootstrap.servers; set advertised_host to a host name"
            )
        if node_id_of(self.sni_broker_host, self.advertised_host.lower()) is not None:
            raise ValueError(f"advertised_host {self.advertised_host} is also the name of a broker; choose another one")
        return self

    @model_validator(mode="after")
    def _ports_fit(self) -> Listeners:
        if self.by_name:
            return self
        highest = self.broker_port_start + max(parse_node_ids(self.broker_node_ids))
        if highest > 65535:
            raise ValueError(f"broker_port_start plus the highest of broker_node_ids is {highest}, above port 65535")
        if self.bootstrap_port in {self.broker_port_start + node for node in self.node_ids}:
            raise ValueError(f"bootstrap_port {self.bootstrap_port} is also the port of a broker; move either range")
        return self

    @property
    def client_host(self) -> str:
        """Return the host that clients get in answers."""
        return self.advertised_host or self.host

    @property
    def node_ids(self) -> tuple[int, ...]:
        """Return the node IDs of `broker_node_ids`, ascending."""
        return parse_node_ids(self.broker_node_ids)

    @property
    def by_name(self) -> bool:
        """Return True if the name in a client's TLS handshake selects the broker, and there is one port."""
        return bool(self.sni_broker_host)

    def host_of(self, node_id: int | None) -> str:
        """Return the host that clients get for a broker; for None, for bootstrapping."""
        if node_id is None or not self.by_name:
            return self.client_host
        return broker_host(self.sni_broker_host, node_id)

    def port_of(self, node_id: int | None) -> int:
        """Return the port of a broker; for None, the bootstrap port."""
        return self.bootstrap_port if node_id is None or self.by_name else self.broker_port_start + node_id

    @property
    def ports(self) -> dict[int | None, int]:
        """Return the port of each node ID; the bootstrap port is under None, and alone if names select the broker."""
        return {node: self.port_of(node) for node in (None, *(() if self.by_name else self.node_ids))}


def _is_address(host: str) -> bool:
    try:
        ip_address(host)
    except ValueError:
        return False
    return True


class Admin(Section):
    """The HTTP port for `/healthz`, `/servez`, `/readyz`, `/metrics`, the admin page and the JSON behind it."""

    host: str = "127.0.0.1"
    """Address to listen on. The default is loopback, because everybody who reaches the port may read everything that it
    shows."""
    port: int = Field(default=19080, ge=0, le=65535)
    """Port to listen on; 0 picks a free port."""
    advertised_host: str = ""
    """Address under which the fleet and `diskless-proxy fleet` reach the port. If empty, it is `host`; if `host` means
    all addresses, it is the host that clients get. It must lead to this very proxy: use a pod's address, not that of
    its Service."""
    token_file: Path | None = None
    """File that contains only a token, which others on the machine can't read. A client with the token may drain the
    proxy and set its log level through the port; without a file nobody may. The file is read again when it changes."""
    allowed_hosts: Texts = ()
    """Host names that requests may use if `host` is loopback, in addition to `localhost` and loopback addresses. Other
    names are rejected: otherwise a page of a foreign site whose name resolves to this address could read everything
    (DNS rebinding)."""
    docs_url: str = ""
    """Address of the documentation, with `{page}` in the place of a page's name. The headings of the admin page link
    to its sections: `http://127.0.0.1:8000/{page}.html` for `make docs ARGS="serve"`, or the folder `docs/` of a
    repository, `https://git.example.com/kafka/diskless-proxy/docs/{page}.md`. If empty, there are no links."""
    recent_errors_max: int = Field(default=200, ge=1, le=1_000)
    """Number of warnings and errors of the log that the port shows. Equal entries count as one, and the oldest entries
    are dropped first."""

    @field_validator("docs_url")
    @classmethod
    def _with_a_page(cls, value: str) -> str:
        if value and not re.fullmatch(r"https?://[^\s{}]*\{page\}[^\s{}#]*", value):
            raise ValueError(
                f"{value!r} is not an http or https address that contains {{page}} once; "
                "write {page} in the place of a page's name"
            )
        return value

    @field_validator("allowed_hosts")
    @classmethod
    def _without_port(cls, value: tuple[str, ...]) -> tuple[str, ...]:
        for host in value:
            if not re.fullmatch(r"[A-Za-z0-9._-]+", host):
                raise ValueError(f"{host!r} is not a host name; leave out scheme and port")
        return value
