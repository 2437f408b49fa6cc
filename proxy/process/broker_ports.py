"""The brokers that have a port at this process, and the reason if one has none.

Listeners where the name in the TLS handshake selects the broker have one port for all, so none is missing there.
The ports of `broker_node_ids` are bound at the start (`ports.bind_all`). A broker that joins with another ID gets its
port while the proxy runs, as the partitions that it leads would look leaderless otherwise. A port that can't be bound
is tried again whenever the brokers' list is asked for.
"""

from __future__ import annotations

from collections.abc import Callable, Collection

import structlog

from proxy.config import Listeners, Settings, format_node_ids
from proxy.process.ports import StartError

log = structlog.get_logger()

Hold = Callable[[int], bool]
"""Make sure that this proxy alone has a broker's ports. False: the answer comes later. Raises StartError."""
Listen = Callable[[Listeners, int], None]
"""Bind a broker's port and listen to it. Raises StartError."""


def _hold_nothing(node_id: int) -> bool:
    return True


class BrokerPorts:
    """The ports of brokers, of all listeners of one process."""

    def __init__(self, settings: Settings) -> None:
        self._listed = {listeners: frozenset(listeners.node_ids) for listeners in settings.all_listeners}
        self._late: dict[Listeners, set[int]] = {listeners: set() for listeners in settings.all_listeners}
        """Node IDs outside of `broker_node_ids` whose port was bound while the proxy ran."""
        self._live: frozenset[int] = frozenset()
        self._failures: dict[int, str] = {}
        """Why a broker's port can't be bound, by node ID."""
        self._listen: Listen | None = None
        self._hold: Hold = _hold_nothing
        self._changed: Callable[[], None] = lambda: None

    def begin(self, listen: Listen, changed: Callable[[], None], hold: Hold = _hold_nothing) -> None:
        """Bind ports of brokers that join from now on. `changed` is called when there is a new one."""
        self._listen, self._changed, self._hold = listen, changed, hold
        self.open_missing()

    def end(self) -> None:
        """Bind no more ports: the process drains."""
        self._listen = None

    def take_brokers(self, live: Collection[int]) -> None:
        """Take over which brokers live, and open a port for each that has none."""
        self._live = frozenset(live)
        self.open_missing()

    def open_missing(self) -> None:
        """Open a port for each live broker that has none, even if opening it failed before."""
        for node_id in sorted(node_id for node_id in self._live if self._missing(node_id)):
            if self._listen is not None:
                self._open(node_id, self._listen)

    def failed(self, node_id: int, reason: str) -> None:
        """Record why a broker's port can't be bound; the log says each reason once."""
        if self._failures.get(node_id) != reason:
            self._failures[node_id] = reason
            cause, _, remedy = reason.partition("; ")
            log.error(
                "broker_without_port", broker=node_id, reason=f"{cause}: clients do not get its address", remedy=remedy
            )

    def node_ids(self, listeners: Listeners) -> str:
        """Return the node IDs that have a port, in the form of `broker_node_ids`."""
        late = self._late[listeners]
        return format_node_ids(self._listed[listeners] | late) if late else listeners.broker_node_ids

    @property
    def without_port(self) -> dict[int, str]:
        """Return the live brokers that are hidden from clients, and why; empty while the proxy starts or drains."""
        if self._listen is None:
            return {}
        missing = sorted(node_id for node_id in self._live if self._missing(node_id))
        return {node_id: self._failures.get(node_id, "its port is being bound") for node_id in missing}

    @property
    def unlisted(self) -> tuple[int, ...]:
        """Live brokers outside of `broker_node_ids` that have a port all the same."""
        late = set().union(*self._late.values()) & self._live
        return tuple(sorted(node_id for node_id in late if not self._missing(node_id)))

    @property
    def remark(self) -> str | None:
        """Return what someone should see to; None if each live broker has its port, and is in `broker_node_ids`."""
        if dark := self.without_port:
            node_id, reason = next(iter(dark.items()))
            return f"brokers: clients do not get the address of {_named(tuple(dark))} ({node_id}: {reason})"
        if unlisted := self.unlisted:
            return f"brokers: {_named(unlisted)} joined outside of listeners.broker_node_ids; {remedy_for(unlisted)}"
        return None

    def _missing(self, node_id: int) -> list[Listeners]:
        return [
            one
            for one, listed in self._listed.items()
            if not one.by_name and node_id not in listed and node_id not in self._late[one]
        ]

    def _open(self, node_id: int, listen: Listen) -> None:
        try:
            if not self._hold(node_id):
                return
            for listeners in self._missing(node_id):
                listen(listeners, node_id)
                self._late[listeners].add(node_id)
        except StartError as error:
            self.failed(node_id, str(error))
        else:
            self._failures.pop(node_id, None)
            ports = [listeners.port_of(node_id) for listeners in self._late if not listeners.by_name]
            log.warning("broker_not_listed", broker=node_id, ports=ports, remedy=remedy_for((node_id,)))
        self._changed()


def remedy_for(node_ids: Collection[int]) -> str:
    """Return what to do about brokers outside of `broker_node_ids` whose ports were bound while the proxy ran."""
    ids = ", ".join(map(str, sorted(node_ids)))
    return f"open broker_port_start + {ids} to clients (firewall, Service), and add {ids} to broker_node_ids"


def _named(node_ids: Collection[int]) -> str:
    return f"broker{'s' if len(node_ids) > 1 else ''} {', '.join(map(str, node_ids))}"
