"""All client connections: how many are let in, which have been idle for too long, who sent what can't be read."""

from __future__ import annotations

import asyncio
import fcntl
import select
import struct
import termios
from collections import Counter
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, NamedTuple

import structlog

from proxy.config import Limits
from proxy.connection.life import EndCause
from proxy.process import open_files
from proxy.process.memory import MemoryBudget
from proxy.security.server_names import NameRejected
from proxy.telemetry.stats import Stats
from proxy.telemetry.throttled_log import ThrottledLog

if TYPE_CHECKING:
    from proxy.connection.open_connection import OpenConnection

log = structlog.get_logger()
_LONGEST_SWEEP_MS = 120_000
_SWEEPS_PER_TIMEOUT = 4
"""A limit is exceeded by one part in this many at most."""
_ENDED = getattr(select, "POLLRDHUP", 0)
"""The other side sends no more. Only Linux reports that; elsewhere it is noticed when reading goes on."""
_INT = struct.Struct("i")
_LONGEST_GOODBYE_BYTES = 64
"""A TLS record with `close_notify` alone is shorter, one with a request is longer."""
_MOST_PAUSES = 8
"""Pauses of a drain, `limits.drain_pause_ms` each."""


class Stranger(NamedTuple):
    """The other side of a connection that is not a client yet: the TLS handshake is not done."""

    host: str


def ended_unnoticed(connections: Iterable[OpenConnection]) -> list[OpenConnection]:
    """Return those that the client has ended while it was not read from, and that owe it nothing but answers.

    Such a request may wait for long (a Fetch says itself for how long), and with it all that its connection holds.
    Requests that came before the end are still read, as brokers do: a producer without acknowledgements relies on it.
    """
    poll = select.poll()
    unwatched = {}
    for connection in connections:
        if connection.client_side.reading:
            continue  # asked here, as nearly all of thousands are read from
        descriptor = connection.unwatched_descriptor
        if descriptor is not None:
            unwatched[descriptor] = connection
            poll.register(descriptor, _ENDED)
    return [
        unwatched[descriptor]
        for descriptor, events in poll.poll(0)
        if events & (select.POLLHUP | select.POLLERR) or not _has_sent_more(unwatched[descriptor], descriptor)
    ]


def _has_sent_more(connection: OpenConnection, descriptor: int) -> bool:
    return (
        connection.reading.in_frame
        or _unread_bytes(descriptor) > 0
        or connection.client_side.undecrypted_bytes > _LONGEST_GOODBYE_BYTES
    )


def _unread_bytes(descriptor: int) -> int:
    (count,) = _INT.unpack(fcntl.ioctl(descriptor, termios.FIONREAD, bytes(_INT.size)))
    return int(count)


class Connections:
    """The open connections and their limits."""

    def __init__(self, limits: Limits, stats: Stats) -> None:
        self.max_connections = limits.max_connections or open_files.MOST_WITHOUT_LIMIT
        """Before the first client comes, it is what the limit of open files allows, or less."""
        self._limits = limits
        self._stats = stats
        stats.connections_ended.update(dict.fromkeys(EndCause, 0))
        self._open: set[OpenConnection] = set()
        self._by_host: Counter[str] = Counter()
        self._emptied: asyncio.Event | None = None
        self._throttled_log = ThrottledLog(lambda: asyncio.get_running_loop().time())
        self._unsent: dict[OpenConnection, tuple[int, float]] = {}
        """Bytes that a client has not taken, and since when it is these."""
        self._held_up: dict[OpenConnection, tuple[int, float]] = {}
        """The same of bytes that a broker has not taken."""

        self._handshakes: Counter[str] = Counter()
        """TLS handshakes that go on, by host: they count as connections."""

    def __len__(self) -> int:
        return len(self._open)

    def all(self) -> tuple[OpenConnection, ...]:
        """Return the connections that are open now."""
        return tuple(self._open)

    def admit(self, connection: OpenConnection) -> bool:
        """Let a connection in. False if a limit is reached."""
        if len(self._open) >= self.max_connections:
            self._refused(connection, "limits.max_connections")
            return False
        if self._by_host[connection.host] >= self._limits.max_connections_per_ip:
            self._refused(connection, "limits.max_connections_per_ip")
            return False
        self._open.add(connection)
        self._by_host[connection.host] += 1
        self._stats.connections_opened += 1
        return True

    @property
    def handshakes(self) -> int:
        """TLS handshakes that go on."""
        return self._handshakes.total()

    def begin_handshake(self, stranger: Stranger) -> bool:
        """Let someone begin a TLS handshake, or say no where the limits are reached."""
        if len(self._open) + self._handshakes.total() >= self.max_connections:
            self._refused(stranger, "limits.max_connections")
            return False
        host = stranger.host
        if self._by_host[host] + self._handshakes[host] >= self._limits.max_connections_per_ip:
            self._refused(stranger, "limits.max_connections_per_ip")
            return False
        self._handshakes[host] += 1
        return True

    def end_handshake(self, stranger: Stranger) -> None:
        """A TLS handshake has ended, well or not."""
        self._handshakes[stranger.host] -= 1
        if not self._handshakes[stranger.host]:
            del self._handshakes[stranger.host]

    def handshake_failed(self, stranger: Stranger, reason: str) -> None:
        """A TLS handshake ended without a connection; at most one log line a second."""
        self._stats.tls_handshakes_failed += 1
        self._log("tls_handshake_failed", stranger, reason=reason)

    def name_rejected(self, stranger: Stranger, rejected: NameRejected) -> None:
        """Count a TLS handshake whose name selects no broker, and log it; at most one log line a second."""
        self._stats.tls_handshakes_failed += 1
        self._stats.tls_server_names_rejected[rejected.counted] += 1
        self._log("tls_server_name_rejected", stranger, reason=str(rejected), remedy=rejected.remedy)

    def not_accepted(self, error: OSError) -> None:
        """A TLS port could not accept; at most one log line a second."""
        self._stats.connections_refused += 1
        remedy = open_files.REMEDY if open_files.are_exhausted(error) else "see the system's log"
        self._log("connection_not_accepted", Stranger(""), reason=str(error), remedy=remedy)

    def forget(self, connection: OpenConnection) -> None:
        """A connection that was admitted has ended."""
        self._open.discard(connection)
        self._unsent.pop(connection, None)
        self._held_up.pop(connection, None)
        self._by_host[connection.host] -= 1
        if not self._by_host[connection.host]:
            del self._by_host[connection.host]
        if not self._open and self._emptied is not None:
            self._emptied.set()

    def rejected(self, connection: OpenConnection, reason: str) -> None:
        """A client sent what is no request; at most one log line a second."""
        self._log("client_rejected", connection, reason=reason)

    def broker_unreachable(self, connection: OpenConnection, error: Exception) -> None:
        """There is no broker for a client; at most one log line a second."""
        self._stats.upstream_failures += 1
        remedy = open_files.REMEDY if open_files.are_exhausted(error.__cause__) else "start the broker"
        self._log("broker_unreachable", connection, broker=connection.session.node_id, reason=str(error), remedy=remedy)

    def end_slowest(self, connection: OpenConnection, unread_bytes: int) -> None:
        """End a client that reads too slowly for the memory that there is; at most one log line a second."""
        self._cut_off(
            "unread_answers",
            "client_too_slow",
            connection,
            reason=f"the unread answers of all clients exceed the limit, and it is the slowest: {unread_bytes} bytes",
            remedy="find out why the client reads slowly; else raise limits.max_unread_answer_bytes",
        )
        connection.abort()

    def stood_in(self, connection: OpenConnection, failure: str) -> None:
        """Another broker serves a client whose own is down; at most one log line a second."""
        self._stats.upstream_failures += 1
        self._log(
            "broker_stood_in",
            connection,
            broker=connection.session.node_id,
            reason=failure,
            effect="diskless topics are served on; what only that broker can answer ends the connection",
            remedy="start the broker",
        )

    def failed(self, connection: OpenConnection, error: BaseException) -> None:
        """A request met a fault of the proxy's own; at most one log line a second."""
        self._log("request_failed", connection, exc_info=error, remedy="report it; the client reconnects")

    async def sweep(self, memory: MemoryBudget) -> None:
        """End connections that are idle, or slow to send or to take, for longer than the limits. Never return.

        As long as no request waits for memory, the shorter limits of that time do not make it look at all connections.
        """
        limits = self._limits
        loop = asyncio.get_running_loop()
        swept_s = loop.time()
        while True:
            shortest_ms = min(
                limits.idle_timeout_ms, limits.frame_timeout_ms, limits.write_timeout_ms, _LONGEST_SWEEP_MS
            )
            await asyncio.sleep(min(shortest_ms, limits.contended_frame_timeout_ms) / (1000 * _SWEEPS_PER_TIMEOUT))
            if open_files.none_left():
                log.warning("no_file_descriptors", connections=len(self._open), remedy=open_files.REMEDY)
            if memory.contended or loop.time() - swept_s >= shortest_ms / (1000 * _SWEEPS_PER_TIMEOUT):
                swept_s = loop.time()
                self.sweep_once(swept_s, contended=memory.contended)
            else:
                self._end_unnoticed()

    def sweep_once(self, now_s: float, *, contended: bool) -> None:
        """Do `sweep` once; `contended`: requests wait for memory."""
        name = "contended_frame_timeout_ms" if contended else "frame_timeout_ms"
        frame_s = min(self._limits.frame_timeout_ms, getattr(self._limits, name)) / 1000
        idle_s = self._limits.idle_timeout_ms / 1000
        broker_s = self._limits.broker_write_timeout_ms / 1000
        for connection in list(self._open):
            held_up_s = _stands_for(self._held_up, connection, connection.held_up_bytes, now_s)
            unsent_s = _stands_for(self._unsent, connection, connection.unsent_bytes, now_s)
            if _is_older(connection.reading.frame_began_s, now_s - frame_s):
                reason = f"a request took longer than limits.{name}"
                self._cut_off("slow_request", "client_too_slow", connection, reason=reason)
                connection.abort()
            elif contended and held_up_s > broker_s:
                reason = "the broker took nothing for limits.broker_write_timeout_ms, and others wait for the memory"
                remedy = "see whether the broker hangs"
                self._cut_off("slow_broker", "broker_too_slow", connection, reason=reason, remedy=remedy)
                connection.abort()
            elif unsent_s > self._limits.write_timeout_ms / 1000:
                reason = "it took none of its answers for limits.write_timeout_ms"
                self._cut_off("reads_nothing", "client_too_slow", connection, reason=reason)
                connection.abort()
            elif connection.last_active_s < now_s - idle_s and not connection.busy:
                connection.close(EndCause.IDLE)
        self._end_unnoticed()

    def _end_unnoticed(self) -> None:
        for connection in ended_unnoticed(self._open):
            connection.abort(EndCause.CLIENT_LEFT)

    async def drain(self) -> None:
        """Let every connection answer what it has read, then close: those to one broker after those to the other.

        A client that loses one of its connections asks on another one where its brokers are, and hears of the proxies
        that stay; the bootstrap port's come last. Who loses all at once may have nobody left to ask.
        """
        self._emptied = asyncio.Event()
        brokers = sorted({one.session.node_id for one in self._open}, key=lambda node: (node is None, node))
        pause_s = min(1, _MOST_PAUSES / max(1, len(brokers))) * self._limits.drain_pause_ms / 1000
        for node_id in brokers:
            for connection in [one for one in self._open if one.session.node_id == node_id]:
                connection.drain()
            if self._open and node_id != brokers[-1]:
                await asyncio.sleep(pause_s)
        for connection in list(self._open):
            connection.drain()
        if self._open:
            await self._emptied.wait()

    def abort(self) -> None:
        """End all of them at once."""
        for connection in list(self._open):
            connection.abort(EndCause.DRAINED)

    def _cut_off(self, counted: str, event: str, connection: OpenConnection, **values: Any) -> None:
        self._stats.connections_cut_off[counted] += 1
        self._log(event, connection, **values)

    def _refused(self, connection: OpenConnection | Stranger, limit: str) -> None:
        self._stats.connections_refused += 1
        self._log("connection_refused", connection, reason=f"{limit} is reached", remedy=f"raise {limit}")

    def _log(self, event: str, connection: OpenConnection | Stranger, **values: Any) -> None:
        self._throttled_log.warning(event, client=connection.host, **values)


def _is_older(began_s: float | None, than_s: float) -> bool:
    return began_s is not None and began_s < than_s


def _stands_for(
    seen: dict[OpenConnection, tuple[int, float]], connection: OpenConnection, size: int, now_s: float
) -> float:
    """For how long a connection has had just so many bytes waiting, as far as it was `seen`; 0 where it has none."""
    if not size:
        seen.pop(connection, None)
        return 0.0
    before, since_s = seen.get(connection, (0, now_s))
    if before != size:
        since_s = now_s
        seen[connection] = size, now_s
    return now_s - since_s
