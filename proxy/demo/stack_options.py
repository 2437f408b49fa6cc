"""The options of a stack."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from proxy.demo.security import SecurityKind
from proxy.demo.valkeys import StoreKind

DISKLESS_BY_NAME = r"diskless\..*"
"""Names of topics that are diskless in the demo. Kafka's own tools can't request it, because they check config
names."""


@dataclass(frozen=True, slots=True)
class StackOptions:
    """Parts of the stack, and their directory and ports."""

    directory: Path | None = None
    """Directory that is kept at the end; if it has data, the stack starts with them. If None, a temporary directory."""
    port_base: int | None = None
    """The first of a range of ports, see `ports.py`; if None, a free range is picked."""
    storage: Literal["file", "s3"] = "file"
    redis: StoreKind = "single"
    """The coordinator's store: one server, a cluster of three, or a primary and a replica that Sentinels watch."""
    racks: tuple[str, ...] = ("rack-a", "rack-b", "rack-c")
    """One or more brokers (node IDs from 1) and one or more proxies for each."""
    brokers_per_rack: int = 1
    """Number of brokers per rack. Node IDs go around the racks: of two racks with two each, the first has brokers 1 and
    3."""
    brokers_started: int | None = None
    """Number of brokers to start, the first ones by node ID; None for all. The others join the cluster by
    `start_broker`."""
    proxies: bool = True
    proxies_per_rack: int = 1
    """Named after the rack: `rack-a`, `rack-a-2`, …"""
    proxy_program: tuple[str, ...] = ()
    """Program that runs proxies, before `run --config FILE`: another release's, or this one's if empty."""
    workers: int = 1
    """Processes of each proxy, see the setting."""
    overrides: Mapping[str, Any] = field(default_factory=dict)
    """Settings that override those of every proxy, section by section."""
    journal: bool = True
    """Whether the order of the coordinator's writes is in a journal on the brokers (`journal.mode`)."""
    broker_properties: Mapping[str, str] = field(default_factory=dict)
    """Put over the properties of every broker."""
    security: SecurityKind = "plaintext"
    """Security of the brokers' listener and of the proxies': with `ssl`, TLS on both; with `sasl_…`, users and ACLs,
    see `security.py`."""
    broker_version: str = ""
    """Version of the Kafka brokers, as far as its jars are fetched: `3.3.2`, the oldest; the newest if empty."""
    broker_jvm: tuple[str, ...] = ()
    """Options of every broker's JVM, after those that it has anyway."""
    broker_jmx: bool = False
    """Offer the brokers' metrics over JMX (RMI), each at `Ports.broker_jmx`, to everybody on this machine."""
    kills_servers: bool = False
    """True if brokers and stores end by SIGKILL: for a stack whose files nobody reads later."""
    start_timeout_seconds: float = 180.0
    """For each part, from its start until it is ready."""
