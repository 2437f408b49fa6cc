"""Racks of clients, and the fleet of proxies that serves them."""

from __future__ import annotations

import re
from ipaddress import ip_network

from pydantic import Field, field_validator, model_validator

from proxy.config.section import Reloadable, Section, Texts


class Fleet(Section):
    """Heartbeats of the proxies in the coordinator's store."""

    heartbeat_interval_ms: int = Field(default=1_000, ge=10)
    """Interval between two heartbeats."""
    lease_ms: int = Field(default=5_000, ge=50)
    """Time without a heartbeat after which the fleet no longer waits for a proxy. The proxy itself then serves no
    Produce of a topic unless it has already seen that the topic is classic, or the journal proves that."""
    classic_names_max_age_ms: int = Field(default=10_000, ge=2_000)
    """How long a proxy without a lease serves a classic topic by its name after the brokers last confirmed that the
    name still has the same topic ID. It asks them four times as often."""
    create_topic_timeout_ms: int = Field(default=15_000, ge=1)
    """How long CreateTopics of a diskless topic waits for every live proxy to acknowledge the reservation."""
    lifelines: Reloadable[int] = Field(default=0, ge=0, le=100)
    """Number of proxies of other racks that Metadata names as further brokers, which lead nothing, to clients that name
    their rack. They are for old clients, which never bootstrap again if the last proxy of their rack ends.
    docs/racks.md says what they cost."""

    @model_validator(mode="after")
    def _lease_outlives_beats(self) -> Fleet:
        if self.lease_ms < 2 * self.heartbeat_interval_ms:
            raise ValueError(
                "lease_ms must be at least twice heartbeat_interval_ms; otherwise one lost heartbeat ends a lease"
            )
        return self


class Racks(Section):
    """Ways to find the rack of a client, in addition to `listeners.rack` and `rack`."""

    client_id_keys: Reloadable[Texts] = ()
    """Keys that name the rack in a client ID, as `diskless_rack_id` does, which takes precedence. They are other
    systems' hints, for example `["diskless_az", "ws_az", "warpstream_az", "automq_az"]`."""
    aliases: dict[str, str] = Field(default_factory=dict)
    """Other names of racks, `{"us-east-1a": "use1-az4"}`: names of zones by the brokers' `broker.rack`. They apply to
    every source of a client's rack, to `rack` and to the racks of listeners."""
    by_network: Reloadable[dict[str, str]] = Field(default_factory=dict)
    """Racks of clients by their address, `{"10.1.0.0/16": "rack-a"}`. The longest prefix decides, and takes precedence
    over the rack of the port."""
    max_learned_clients: int = Field(default=10_000, ge=0)
    """Maximum number of clients (address and client ID) whose rack is cached from a Fetch or a group heartbeat; 0
    learns nothing."""
    learned_expiry_ms: int = Field(default=900_000, ge=1)
    """How long a learned rack is cached after the client last named it."""

    @field_validator("client_id_keys")
    @classmethod
    def _keys(cls, value: tuple[str, ...]) -> tuple[str, ...]:
        for key in value:
            if not re.fullmatch(r"[\w.-]+", key):
                raise ValueError(f"{key!r} is not a key: use letters, digits, dots, dashes and underscores")
        return value

    @field_validator("aliases")
    @classmethod
    def _aliases(cls, value: dict[str, str]) -> dict[str, str]:
        for alias, rack in value.items():
            if not alias or not rack:
                raise ValueError(f"{alias!r}: {rack!r} needs two names; write the other name, and the brokers' rack")
            if rack in value and value[rack] != rack:
                raise ValueError(f"{alias!r} is an alias of {rack!r}, which is an alias itself; name the brokers' rack")
        return value

    @field_validator("by_network")
    @classmethod
    def _networks(cls, value: dict[str, str]) -> dict[str, str]:
        for network, rack in value.items():
            try:
                ip_network(network)
            except ValueError as error:
                raise ValueError(f"{network!r} is not a network such as 10.1.0.0/16: {error}") from error
            if not rack:
                raise ValueError(f"the rack of {network} is empty")
        return value
