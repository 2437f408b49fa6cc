"""The parts that the connections of all clients share."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from proxy.brokers.cluster import Cluster
from proxy.config import Settings
from proxy.connection.connections import Connections
from proxy.connection.unread import UnreadAnswers
from proxy.process.memory import MemoryBudget
from proxy.process.poll_window import PollWindow
from proxy.process.turns import Turns
from proxy.telemetry.stats import Stats
from proxy.telemetry.throttled_log import ThrottledLog


@dataclass(frozen=True, slots=True)
class Shared:
    """The parts of a connection that all connections have in common."""

    settings: Settings
    now: Callable[[], float]
    """Monotonic seconds."""
    stats: Stats
    throttled_log: ThrottledLog
    memory: MemoryBudget
    turns: Turns
    cluster: Cluster
    connections: Connections
    unread: UnreadAnswers
    any_broker_serves: Callable[[], bool]
    """Returns whether another broker may stand in for one that is down: for diskless topics, any broker will do."""
    reads_near: Callable[[int | None], bool]
    """Returns whether Fetches at the listener of this broker are read from near replicas."""
    poll_window: PollWindow | None = None
    """Begins with each request; None if the setting is off."""
    express_lane: bool = True
    """False if every request takes the ordinary path, so that tests can compare the two."""
