"""Listeners of the proxy: for clients, and for its operators."""

from __future__ import annotations

import re
from pathlib import Path

from pydantic import Field, field_validator, model_validator

from proxy.config.section import Section, Texts
from proxy.config.security import ListenerTls
from proxy.config.values import parse_node_ids

Port = int


class Listeners(Section):
    """Ports for clients: a bootstrap port, and `broker_port_start + node_id` for every broker."""

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

    @field_validator("broker_node_ids")
    @classmethod
    def _readable(cls, value: str) -> str:
        parse_node_ids(value)
        return value

    @model_validator(mode="after")
    def _ports_fit(self) -> Listeners:
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

    def port_of(self, node_id: int | None) -> int:
        """Return the port of a broker; for None, the bootstrap port."""
        return self.bootstrap_port if node_id is None else self.broker_port_start + node_id

    @property
    def ports(self) -> dict[int | None, int]:
        """Return the port of each node ID; the bootstrap port is under None."""
        return {node: self.port_of(node) for node in (None, *self.node_ids)}


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
    recent_errors_max: int = Field(default=200, ge=1, le=1_000)
    """Number of warnings and errors of the log that the port shows. Equal entries count as one, and the oldest entries
    are dropped first."""

    @field_validator("allowed_hosts")
    @classmethod
    def _without_port(cls, value: tuple[str, ...]) -> tuple[str, ...]:
        for host in value:
            if not re.fullmatch(r"[A-Za-z0-9._-]+", host):
                raise ValueError(f"{host!r} is not a host name; leave out scheme and port")
        return value
