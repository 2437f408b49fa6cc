"""Where the proxy listens: for clients, and for its operators."""

from __future__ import annotations

import re
from pathlib import Path

from pydantic import Field, field_validator, model_validator

from proxy.config.section import Section, Texts
from proxy.config.security import ListenerTls
from proxy.config.values import parse_node_ids

Port = int


class Listeners(Section):
    """Where clients connect: a bootstrap port, and `broker_port_start + node_id` for every broker."""

    name: str = Field(default="default", min_length=1)
    """Like the listener names of brokers: clients that come in by one name get addresses of that name, of any proxy."""
    rack: str = ""
    """The rack of clients that come in here and name none; the proxy's own where empty."""
    host: str = "127.0.0.1"
    """Address to listen on; `0.0.0.0` for all."""
    advertised_host: str = ""
    """Host that clients get as the proxy's address; `host` if empty."""
    bootstrap_port: Port = Field(default=19092, ge=1, le=65535)
    """For clients' `bootstrap.servers`; any live broker answers there."""
    broker_port_start: Port = Field(default=19100, ge=1, le=65535)
    """Broker N is at this port plus N."""
    broker_node_ids: str = "0-9"
    """Node IDs of the brokers that there are, and that may come, for example `0-9` or `0-5,100-105`. Their ports are
    bound at the start. The port of a broker that joins with another ID is bound while the proxy runs; open it to
    clients then, and add the ID here."""
    tls: ListenerTls | None = None
    """TLS on all ports of the range; plain text where it is missing."""

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
        """The host that clients are told."""
        return self.advertised_host or self.host

    @property
    def node_ids(self) -> tuple[int, ...]:
        """The node IDs of `broker_node_ids`, ascending."""
        return parse_node_ids(self.broker_node_ids)

    def port_of(self, node_id: int | None) -> int:
        """The port of a broker; the bootstrap port of None."""
        return self.bootstrap_port if node_id is None else self.broker_port_start + node_id

    @property
    def ports(self) -> dict[int | None, int]:
        """The port of each node ID; of the bootstrap listener under None."""
        return {node: self.port_of(node) for node in (None, *self.node_ids)}


class Admin(Section):
    """The HTTP port for `/healthz`, `/servez`, `/readyz`, `/metrics`, the admin page and the JSON behind it."""

    host: str = "127.0.0.1"
    """Loopback by default: everybody who reaches the port may read everything that it shows."""
    port: int = Field(default=19080, ge=0, le=65535)
    """0 picks a free one."""
    advertised_host: str = ""
    """Address under which the fleet and `diskless-proxy fleet` reach the port. If empty it is `host`, or the host that
    clients get if `host` is every address. It must lead to this very proxy: use a pod's address, not that of its
    Service."""
    token_file: Path | None = None
    """A file with nothing but a token, which others on the machine can't read. Who has the token may drain the proxy
    and set its log level through the port; without a file nobody may. Read again when it changes."""
    allowed_hosts: Texts = ()
    """Names that requests may use if `host` is loopback, in addition to `localhost` and loopback addresses. Others are
    rejected, because a page of a foreign site whose name leads here could read everything (DNS rebinding)."""
    recent_errors_max: int = Field(default=200, ge=1, le=1_000)
    """Number of warnings and errors of the log that the port shows. Equal ones count as one, and the oldest go."""

    @field_validator("allowed_hosts")
    @classmethod
    def _without_port(cls, value: tuple[str, ...]) -> tuple[str, ...]:
        for host in value:
            if not re.fullmatch(r"[A-Za-z0-9._-]+", host):
                raise ValueError(f"{host!r} is no host name; leave scheme and port out")
        return value
