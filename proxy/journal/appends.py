"""Appends to the journal: values of a partition that wait share a record batch, and batches of idle partitions that the
same broker leads share a request.

A partition has at most one request under way, so its records keep the order of the calls. A value whose append failed
for certain is sent again, to a new leader. A value whose outcome is unknown is never sent again.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Mapping

from proxy.brokers.service import ServiceConnection
from proxy.brokers.upstream import BrokerUnreachable
from proxy.config.journal import Journal
from proxy.coordinator.interface_journal import Appended, JournalUnavailable
from proxy.journal.connections import Connections
from proxy.journal.errors import Outcome, described, outcome_of
from proxy.journal.leaders import Leaders
from proxy.journal.messages import Topic, produce_answers, produce_request
from proxy.journal.positions import KnownEnds
from proxy.journal.waiting import Entry, Line
from proxy.protocol.api_keys import PRODUCE
from proxy.records.batches import HEADER_BYTES
from proxy.records.plain import MAX_RECORD_OVERHEAD_BYTES, plain_batch
from proxy.telemetry.stats import Stats
from proxy.wire.errors import ProtocolError
from proxy.wire.produce import PartitionProduced

_BROKERS_SHARE = 0.9
"""Share of the timeout after which a broker gives up waiting for followers: its own answer is better than none."""
_CLOSED = "the journal was closed"
_PLACEHOLDER_TIME_MS = 0
"""Timestamp of records as they are sent; the leader sets its own (LogAppendTime)."""


class _NotSent(Exception):
    """The request was certainly not sent."""


class Appends:
    """All appends of one journal."""

    def __init__(
        self,
        topic: Topic,
        settings: Journal,
        leaders: Leaders,
        connections: Connections,
        known: KnownEnds,
        stats: Stats,
    ) -> None:
        self._topic = topic
        self._settings = settings
        self._leaders = leaders
        self._connections = connections
        self._known = known
        self._stats = stats
        self._timeout_s = settings.timeout_ms / 1000
        self._lines: dict[int, Line] = {}
        self._bytes = 0
        """Size of all entries, waiting or under way."""
        self._under_way: dict[asyncio.Task[None], Mapping[Line, list[Entry]]] = {}
        self._finding: asyncio.Task[None] | None = None
        self._timer: asyncio.Handle | None = None
        """Calls `_dispatch`."""
        self._soon = False
        """True if it does so in the loop's next step."""
        self._closed = False

    async def append(self, partition: int, value: bytes) -> Appended:
        """Append a value. Raises JournalUnavailable.

        After a cancellation a value that waits is not sent; one that was sent may be appended.
        """
        loop = asyncio.get_running_loop()
        now_s = loop.time()
        entry = Entry(value, loop.create_future(), now_s, now_s + self._timeout_s)
        self._check(partition, entry)
        line = self._lines.setdefault(partition, Line(partition))
        line.entries.append(entry)
        self._bytes += entry.size
        if not line.busy:
            self._dispatch_soon()
        try:
            return await entry.answer
        finally:
            self._bytes -= entry.size
            if entry.answer.cancelled() and entry in line.entries:
                line.entries.remove(entry)

    def _check(self, partition: int, entry: Entry) -> None:
        settings, size = self._settings, len(entry.value)
        if partition in self._known.losses:
            raise JournalUnavailable(self._known.losses[partition], appended=False)
        if self._closed:
            raise JournalUnavailable(_CLOSED, appended=False)
        if size + MAX_RECORD_OVERHEAD_BYTES + HEADER_BYTES > settings.max_append_bytes:
            raise JournalUnavailable(
                f"a record of {size} bytes does not fit journal.max_append_bytes={settings.max_append_bytes}; "
                "raise it and max.message.bytes of the topic",
                appended=False,
            )
        if self._bytes + entry.size > settings.max_waiting_bytes:
            raise JournalUnavailable(
                f"{self._bytes} bytes are being appended, and journal.max_waiting_bytes={settings.max_waiting_bytes}",
                appended=False,
            )

    async def close(self) -> None:
        """Reject what waits; what is under way has an unknown outcome."""
        self._closed = True
        if self._timer is not None:
            self._timer.cancel()
        for line in self._lines.values():
            self._fail(line, line.take(2**63), _CLOSED, appended=False)
        under_way = dict(self._under_way)
        tasks = [*under_way, *([self._finding] if self._finding is not None else [])]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        for taken in under_way.values():  # a task that had not begun has settled nothing
            for line, entries in taken.items():
                self._fail(line, entries, _CLOSED, appended=True)

    def _dispatch_soon(self) -> None:
        """Dispatch in the loop's next step, when all calls of this step have put their values in line."""
        if not self._soon:
            self._wake_at(None)
            self._soon = True
            self._timer = asyncio.get_running_loop().call_soon(self._dispatch)

    def _wake_at(self, wake_s: float | None) -> None:
        """Dispatch at this time of the loop's instead of the time that was set before; None for never."""
        if self._timer is not None:
            self._timer.cancel()
        self._soon = False
        self._timer = None if wake_s is None else asyncio.get_running_loop().call_at(wake_s, self._dispatch)

    def _dispatch(self) -> None:
        """Send what can be sent, reject what has waited for too long, and come back when there is something to do."""
        if self._closed:
            return
        now_s = asyncio.get_running_loop().time()
        wakes_s: list[float] = []
        ready: defaultdict[int, list[Line]] = defaultdict(list)
        leaderless = False
        for line in self._lines.values():
            if expired := line.expire(now_s):
                reason = f"it could not be sent within {self._timeout_s:g} s: {line.failure}"
                self._fail(line, expired, reason, appended=False)
            if not line.entries or line.busy:
                continue
            wakes_s.append(line.entries[0].deadline_s)
            leader = self._leaders.of(line.partition)
            if line.not_before_s > now_s:
                wakes_s.append(line.not_before_s)
            elif leader is None or line.stale_version == self._leaders.version:
                leaderless = True
            else:
                ready[leader.node_id].append(line)
        for node_id, lines in ready.items():
            self._send(node_id, sorted(lines, key=lambda line: line.entries[0].deadline_s))
        if leaderless and self._finding is None:
            self._finding = asyncio.create_task(self._find_leaders())
        self._wake_at(min(wakes_s, default=None))

    def _send(self, node_id: int, lines: list[Line]) -> None:
        """Begin requests to a broker, as long as there are connections."""
        while lines and self._connections.may_append(node_id):
            room_bytes = self._settings.max_append_bytes
            taken: dict[Line, list[Entry]] = {}
            for line in lines:
                entries = line.take(room_bytes - HEADER_BYTES)
                if entries:
                    taken[line] = entries
                    line.busy = True
                    room_bytes -= HEADER_BYTES + sum(entry.size for entry in entries)
            lines = [line for line in lines if not line.busy and line.entries]
            if not taken:
                return
            connection = self._connections.take_for_append(node_id)
            task = asyncio.create_task(self._request(node_id, connection, taken))
            self._under_way[task] = taken
            task.add_done_callback(self._under_way.pop)

    async def _request(self, node_id: int, connection: ServiceConnection, taken: Mapping[Line, list[Entry]]) -> None:
        """Send a request and settle its entries."""
        version = self._leaders.version
        floors = {line: self._known.of(line.partition) for line in taken}
        try:
            answers = await self._produce(node_id, connection, taken)
        except _NotSent as error:
            for line, entries in taken.items():
                self._retry(line, entries, str(error), version)
        except (BrokerUnreachable, ProtocolError) as error:
            self._connections.forget_version(node_id)
            for line, entries in taken.items():
                line.stale_version = version
                self._fail(line, entries, f"broker {node_id} was sent the record: {error}", appended=True)
        except BaseException as error:
            reason = _CLOSED if isinstance(error, asyncio.CancelledError) else repr(error)
            for line, entries in taken.items():
                self._fail(line, entries, reason, appended=True)
            raise
        else:
            for line, entries in taken.items():
                self._settle(line, entries, answers.get(line.partition), floors[line], version)
        finally:
            for line in taken:
                line.busy = False
            self._connections.put_back(node_id, connection)
            self._dispatch()

    async def _produce(
        self, node_id: int, connection: ServiceConnection, taken: Mapping[Line, list[Entry]]
    ) -> dict[int, PartitionProduced]:
        """Return the answers by partition. Raises _NotSent, BrokerUnreachable and ProtocolError."""
        batches = {
            line.partition: plain_batch([entry.value for entry in entries], _PLACEHOLDER_TIME_MS)
            for line, entries in taken.items()
        }
        try:
            async with asyncio.timeout(self._timeout_s):
                await connection.connect()
                version = await self._connections.produce_version(node_id, connection)
                await connection.connect()  # which does not wait, unless the connection was lost meanwhile
        except TimeoutError:
            raise _NotSent(f"no connection to broker {node_id} within {self._timeout_s:g} s") from None
        except (BrokerUnreachable, ProtocolError) as error:
            self._connections.forget_version(node_id)
            raise _NotSent(str(error)) from error
        timeout_ms = int(self._settings.timeout_ms * _BROKERS_SHARE)
        body = await connection.ask(PRODUCE, version, produce_request(version, self._topic, batches, timeout_ms))
        return produce_answers(body, version)

    def _settle(
        self, line: Line, entries: list[Entry], answer: PartitionProduced | None, floor: int, version: int
    ) -> None:
        """Give the entries of one batch their answers."""
        if answer is None:
            self._fail(line, entries, "the broker's answer does not name the partition", appended=True)
            return
        outcome = outcome_of(answer)
        reason = f"partition {line.partition} of {self._topic.name}: {described(answer.error_code)}"
        if outcome is Outcome.MOVED:
            self._retry(line, entries, reason, version)
        elif outcome is Outcome.REJECTED:
            self._fail(line, entries, reason, appended=False)
        elif outcome is Outcome.UNKNOWN:
            line.stale_version = version
            self._fail(line, entries, reason, appended=True)
        else:
            self._appended(line, entries, answer, floor)

    def _appended(self, line: Line, entries: list[Entry], answer: PartitionProduced, floor: int) -> None:
        line.succeed()
        base_offset, time_ms = answer.base_offset, answer.log_append_time_ms
        if base_offset < floor:
            self._fail(line, entries, self._known.lost(line.partition, floor, base_offset), appended=True)
            return
        self._known.learn(line.partition, base_offset + len(entries))
        if time_ms < 0:
            reason = f"the topic {self._topic.name} does not set the time of records; set its config "
            self._fail(line, entries, reason + "message.timestamp.type to LogAppendTime", appended=True)
            return
        now_s = asyncio.get_running_loop().time()
        for place, entry in enumerate(entries):
            self._stats.journal_append_seconds.observe(now_s - entry.began_s)
            self._stats.journal_bytes += len(entry.value)
            if not entry.answer.done():
                entry.answer.set_result(Appended(base_offset + place, time_ms))

    def _retry(self, line: Line, entries: list[Entry], reason: str, version: int) -> None:
        """Put entries that were certainly not appended before all others."""
        line.stale_version = version
        line.delay(asyncio.get_running_loop().time(), self._settings, reason)
        line.put_back([entry for entry in entries if not entry.answer.done()])

    def _fail(self, line: Line, entries: list[Entry], reason: str, *, appended: bool) -> None:
        for entry in entries:
            if not entry.answer.done():
                entry.answer.set_exception(JournalUnavailable(reason, appended=appended))

    async def _find_leaders(self) -> None:
        """Request the leaders. Lines that have none after that are put off."""
        failure = "it has no leader"
        try:
            await self._leaders.refresh(self._leaders.version)
        except BrokerUnreachable as error:
            failure = str(error)
        finally:
            self._finding = None
        now_s = asyncio.get_running_loop().time()
        for line in self._lines.values():
            stale = line.stale_version == self._leaders.version
            if line.entries and not line.busy and (stale or self._leaders.of(line.partition) is None):
                line.delay(now_s, self._settings, failure)
        self._dispatch()
