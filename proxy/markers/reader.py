"""Reading the shadows that one broker leads, and applying their markers in the coordinator."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import NamedTuple

from proxy.brokers.broker_metadata import PARTITIONS_PER_STEP, list_offsets
from proxy.brokers.service import ServiceConnection
from proxy.coordinator.interface import EARLIEST_TIMESTAMP, ShardFenced
from proxy.coordinator.interface_transactions import (
    NO_EPOCH,
    MarkersApplied,
    MarkersRead,
    ShadowPosition,
    TransactionCoordinator,
)
from proxy.markers.answers import ELSEWHERE, read_answers
from proxy.markers.epochs import Compared, compare, to_compare
from proxy.markers.leaders import Log, ShadowLeaders
from proxy.markers.stats import MarkerStats
from proxy.protocol.errors import NONE
from proxy.telemetry.throttled_log import ThrottledLog
from proxy.wire.fetch_response import PartitionFetched


class Outcome(NamedTuple):
    """The state of shadows after an answer was applied."""

    positions: dict[Log, ShadowPosition]
    """New positions of those that have moved."""
    at_end: set[Log]
    """Shadows whose markers are applied up to the leader's high watermark."""
    gone: set[Log]
    """Shadows whose logs do not exist in the coordinator any more."""
    failed: dict[Log, str]
    """Why others could not be read. They may be read again later."""


def nothing_done() -> Outcome:
    """Return an outcome to which what is done is added."""
    return Outcome({}, set(), set(), {})


class MarkerReader:
    """Takes answers of leaders: applies the markers, and finds out why there are none.

    It keeps no state of its own, so any number of callers may read the same shadows.
    """

    def __init__(
        self,
        transactions: TransactionCoordinator,
        leaders: ShadowLeaders,
        stats: MarkerStats,
        log: ThrottledLog,
        now_ms: Callable[[], int],
    ) -> None:
        """`now_ms` is a wall clock."""
        self._transactions = transactions
        self._leaders = leaders
        self._stats = stats
        self._log = log
        self._now_ms = now_ms

    async def compare(self, connection: ServiceConnection, positions: Mapping[Log, ShadowPosition]) -> Outcome:
        """Compare positions that were read from an earlier leader with the present one's logs, before they are read.

        `Outcome.positions` has the positions to read from; positions that need no comparison are left out. Raises
        CoordinatorUnavailable, BrokerUnreachable and ProtocolError.
        """
        outcome = nothing_done()
        older = to_compare(positions, self._leaders)
        if not older:
            return outcome
        compared = await compare(connection, older, self._leaders)
        outcome.positions.update(compared.same)
        for log, error_code in compared.failed.items():
            outcome.failed[log] = f"OffsetForLeaderEpoch answers error {error_code}"
            if error_code in ELSEWHERE:
                self._leaders.stale(log)
        outcome.failed.update((log, "the leader left it out") for log in older if not _is_in(compared, log))
        parts = []
        for log, end in compared.truncated.items():
            self._log.error(
                "placeholder_truncated",
                topic_id=log[0].hex(),
                partition=log[1],
                from_offset=end.next_offset,
                read_up_to=older[log].next_offset,
                reason="the brokers have lost the end of a placeholder topic's log, by an unclean leader election",
                effect="transactions whose markers were lost stay open until they are reconciled",
                remedy="leave unclean.leader.election.enable off",
            )
            parts.append(MarkersRead(*log, older[log].next_offset, end.next_offset, end.leader_epoch, ()))
        await self._apply(parts, outcome)
        return outcome

    async def take(
        self,
        connection: ServiceConnection,
        answers: Mapping[Log, PartitionFetched],
        positions: Mapping[Log, ShadowPosition],
    ) -> Outcome:
        """Apply the markers in the answers of a Fetch from `positions`. `connection` leads to the same broker.

        Raises CoordinatorUnavailable; also BrokerUnreachable and ProtocolError, after the markers were applied.
        """
        read = read_answers(answers, positions)
        outcome = Outcome({}, read.at_end, set(), read.failed)
        for log in read.elsewhere:
            self._leaders.stale(log)
            outcome.failed[log] = "another broker may lead it now"
        await self._apply(read.parts, outcome)
        if read.out_of_range:
            await self._go_to_start(connection, {log: positions[log] for log in read.out_of_range}, outcome)
        return outcome

    async def _apply(self, parts: list[MarkersRead], outcome: Outcome) -> None:
        """Apply parts; those of a fenced shard fail, and keep no others from being applied."""
        if not parts:
            return
        try:
            answers = await self._transactions.apply_markers(parts)
        except ShardFenced as error:
            if len(parts) == 1:
                outcome.failed[parts[0].topic_id, parts[0].partition] = str(error)
                outcome.at_end.discard((parts[0].topic_id, parts[0].partition))
                return
            for part in parts:
                await self._apply([part], outcome)
            return
        for part, answer in zip(parts, answers, strict=True):
            self._take_applied(part, answer, outcome)

    def _take_applied(self, part: MarkersRead, answer: MarkersApplied, outcome: Outcome) -> None:
        log = part.topic_id, part.partition
        if answer.error_code != NONE:
            outcome.at_end.discard(log)
            outcome.gone.add(log)
            return
        if answer.next_offset < part.next_offset:
            outcome.at_end.discard(log)
        if answer.ended:
            self._stats.count_ended(answer.ended, answer.aborted)
            now_ms = self._now_ms()
            for marker in part.markers:
                self._stats.lag_seconds.observe(max(0, now_ms - marker.timestamp_ms) / 1000)
        same = answer.next_offset == part.next_offset
        # Another reader was faster: its leader epoch is not known here, and is compared again with the next marker.
        outcome.positions[log] = ShadowPosition(part.leader_epoch if same else NO_EPOCH, answer.next_offset)

    async def _go_to_start(
        self, connection: ServiceConnection, positions: Mapping[Log, ShadowPosition], outcome: Outcome
    ) -> None:
        """Continue at the start of logs that begin after the position: their markers before that are lost."""
        names = {(leader.topic, log[1]): log for log in positions if (leader := self._leaders.of(log)) is not None}
        starts: dict[Log, int] = {}
        partitions = list(names)
        for first in range(0, len(partitions), PARTITIONS_PER_STEP):
            some = partitions[first : first + PARTITIONS_PER_STEP]
            found = await list_offsets(connection, some, EARLIEST_TIMESTAMP)
            starts.update((names[partition], start) for partition, start in found.items())
        parts = []
        for log, position in positions.items():
            start = starts.get(log, -1)
            if start <= position.next_offset:
                outcome.failed[log] = f"its log ends before offset {position.next_offset}"
                continue
            # The epoch of the offset before the start is not known.
            self._stats.lost += start - position.next_offset
            self._log.error(
                "markers_lost",
                topic_id=log[0].hex(),
                partition=log[1],
                from_offset=position.next_offset,
                log_start_offset=start,
                reason="the log of a placeholder topic begins after the next marker to read: its records were deleted",
                effect="transactions whose markers were deleted stay open until they are reconciled",
                remedy="delete no records of placeholder topics, and change none of their retention settings",
            )
            parts.append(MarkersRead(*log, position.next_offset, start, NO_EPOCH, ()))
        await self._apply(parts, outcome)


def _is_in(compared: Compared, log: Log) -> bool:
    return any(log in some for some in compared)
