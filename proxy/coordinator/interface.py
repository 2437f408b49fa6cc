"""The interface of the diskless coordinator (KIP-1164), whatever store it is on.

The coordinator orders batches: a proxy uploads a WAL segment, commits the partition runs in it, and only then answers.
Two ends of a log are kept apart: a commit moves the *log end offset*, a confirmation moves the *high watermark*, which
is as far as readers see. Without a journal a commit confirms itself.

Topic IDs and segment names are raw 16-byte UUIDs everywhere in here.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from typing import NamedTuple, Protocol

from proxy.coordinator.interface_index import Row as Row
from proxy.coordinator.interface_index import SegmentUse as SegmentUse
from proxy.coordinator.interface_rewriting import RewritingCoordinator
from proxy.coordinator.interface_transactions import (
    NO_EPOCH,
    NO_MARKERS,
    NOT_TRANSACTIONAL,
    AbortedTransaction,
    TransactionCoordinator,
)

EARLIEST_TIMESTAMP = -2
LATEST_TIMESTAMP = -1
MAX_TIMESTAMP = -3
LATEST_STABLE_TIMESTAMP = -1_000
"""Special timestamp of this interface only: the last stable offset (LATEST_TIMESTAMP with `read_committed`)."""
NO_PRODUCER_ID = -1
MAX_BATCHES_PER_RUN = 500
"""Maximum number of batches in a partition run. A run is committed in one call, because it is the unit of idempotence,
and the store serves no other call meanwhile. So a WAL segment ends when a run has this many batches."""


class CoordinatorUnavailable(Exception):
    """The store did not answer, or answered an error: it is unknown whether the call took effect."""


class ShardFenced(CoordinatorUnavailable):
    """The store has lost commits that it acknowledged; an operator decides."""


class ProposedBatch(NamedTuple):
    """One record batch of a partition run, from its header."""

    length: int
    """Bytes of the batch, including the 12 bytes of base offset and length."""
    record_count: int
    """Number of offsets that the batch takes: last offset delta + 1."""
    max_timestamp_ms: int
    producer_id: int
    """NO_PRODUCER_ID if the producer is not idempotent."""
    producer_epoch: int
    base_sequence: int
    transaction_version: int = NOT_TRANSACTIONAL
    """1 if AddPartitionsToTxn added the partition to the transaction, 2 if Produce did (KIP-890)."""
    markers_from: int = NO_MARKERS
    """Offset in the placeholder topic's log from which on a marker may end the transaction; only of version 2."""


class PartitionRun(NamedTuple):
    """The contiguous batches of one partition in one segment."""

    topic_id: bytes
    partition: int
    position: int
    """Position of the first batch's first byte in the segment."""
    batches: tuple[ProposedBatch, ...]
    log_append_time: bool = False
    """True if the time of its records is the time of their commit (`message.timestamp.type`)."""


class BatchAnswer(NamedTuple):
    """The answer for one batch, as Kafka would give it."""

    error_code: int
    """Kafka's error code: 0, OUT_OF_ORDER_SEQUENCE_NUMBER (45), INVALID_PRODUCER_EPOCH (47), INVALID_TXN_STATE
    (48), UNKNOWN_PRODUCER_ID (59) …"""
    base_offset: int
    """-1 with an error. An exact duplicate has the offset of the first append."""
    append_time_ms: int
    """Time of the append under LogAppendTime, else -1. For an exact duplicate: the time of the first append under
    LogAppendTime, else its maximum timestamp, as brokers answer."""
    duplicate: bool
    early: bool = False
    """True for a batch out of order whose sequence is above the expected one: the batches before it may still come.
    Also true for a batch whose producer has a transaction open, the marker of which may still come: its error is
    CONCURRENT_TRANSACTIONS (51), for transaction version 1 NOT_ENOUGH_REPLICAS (19).

    If it is committed again as part of the same run of the same segment, it is judged again. If that is impossible,
    its answer is the error that the run would have had (see `RunAnswer`), and it is not early any more."""


class RunAnswer(NamedTuple):
    """The answers of one partition run. If `error_code` is not 0, none of its batches was looked at."""

    topic_id: bytes
    partition: int
    error_code: int
    """0; UNKNOWN_TOPIC_OR_PARTITION (3) if the log does not exist; KAFKA_STORAGE_ERROR (56) if the segment is
    tombstoned, the shard of the partition is fenced or `not_after_ms` is past; THROTTLING_QUOTA_EXCEEDED (89) if the
    index of the shard is full: the same batches, in another segment, may be accepted later. REQUEST_TIMED_OUT (7) if
    the shard failed: it is unknown whether the run took effect."""
    batches: tuple[BatchAnswer, ...]
    log_start_offset: int
    high_watermark: int


class LogAnswer(NamedTuple):
    """The answer of `find` for one partition.

    Rows ascend, from the row with the requested offset, or from the next row. If the loss of records was accepted,
    there are gaps between rows, or between the last row and the high watermark.
    """

    error_code: int
    """0, OFFSET_OUT_OF_RANGE (1), UNKNOWN_TOPIC_OR_PARTITION (3), or KAFKA_STORAGE_ERROR (56) if the partition's
    shard is fenced: then nothing else is known."""
    rows: tuple[Row, ...]
    log_start_offset: int
    high_watermark: int
    last_stable_offset: int
    """First offset of the oldest open transaction, but not below the log start; the high watermark if none is open."""
    aborted: tuple[AbortedTransaction, ...] = ()
    """Aborted transactions that may have records in `rows`, in the order of their last offsets: those that ended in the
    first row or after it, and began before the end of the last one."""


class OffsetAnswer(NamedTuple):
    """An answer to ListOffsets: offset and timestamp are -1 if nothing matches."""

    error_code: int
    """0, UNKNOWN_TOPIC_OR_PARTITION (3), or KAFKA_STORAGE_ERROR (56) if the partition's shard is fenced."""
    offset: int
    timestamp_ms: int


class FindRequest(NamedTuple):
    """A request for the rows from `offset` on, up to `max_bytes` (the first row always comes whole)."""

    topic_id: bytes
    partition: int
    offset: int
    max_bytes: int


class ListRequest(NamedTuple):
    """A request for an offset by timestamp in milliseconds since 1970, or by one of the special timestamps above."""

    topic_id: bytes
    partition: int
    timestamp_ms: int
    from_offset: int = 0
    """Lowest offset: rows that end before it are ignored. Timestamps of a log's ends ignore it."""


class DeleteRequest(NamedTuple):
    """A request to delete all records before an offset; up to the high watermark if the offset is -1."""

    topic_id: bytes
    partition: int
    before_offset: int


class RetainRequest(NamedTuple):
    """The maximum age and size of a log; -1 for no bound."""

    topic_id: bytes
    partition: int
    retention_ms: int
    retention_bytes: int
    by_append_time: bool
    """True if a record's time is the time of its append (`message.timestamp.type`)."""


class LogStart(NamedTuple):
    """An answer to a request to delete or retain."""

    error_code: int
    """0, OFFSET_OUT_OF_RANGE (1), UNKNOWN_TOPIC_OR_PARTITION (3), or KAFKA_STORAGE_ERROR (56) if the partition's
    shard is fenced: then the log start is not known."""
    log_start_offset: int


class Announcement(NamedTuple):
    """A hint that readers of a partition see more: the new rows, and the high watermark after them.

    Without rows it is a hint that readers see less, because the log start has moved. `rows` start at the previous high
    watermark. A reader that missed an announcement notices the gap, and calls `find`.
    """

    topic_id: bytes
    partition: int
    rows: tuple[Row, ...]
    log_start_offset: int
    high_watermark: int
    last_stable_offset: int
    aborted: tuple[AbortedTransaction, ...] = ()
    """Transactions that were aborted since the announcement before."""


class LogDescription(NamedTuple):
    """Figures of one partition's log."""

    log_start_offset: int
    high_watermark: int
    size_bytes: int
    rows: int
    last_stable_offset: int


class ProducerDescription(NamedTuple):
    """The state that a log keeps of an idempotent producer."""

    producer_id: int
    producer_epoch: int
    last_sequence: int
    """-1 if it has no batch in this epoch: only a marker is known."""
    last_timestamp_ms: int
    """Timestamp of its last batch, as the answer to a duplicate of that batch has it; -1 if it has none."""
    coordinator_epoch: int = NO_EPOCH
    """Epoch of the transaction coordinator that wrote its last marker."""
    transaction_start_offset: int = -1
    """First offset of its open transaction; -1 if none is open."""


class IndexSize(NamedTuple):
    """The size of all indexes of one shard."""

    rows: int
    size_bytes: int
    """Memory of the store; packed rows take a quarter of the memory of other rows."""


class Coordinator(Protocol):
    """Orders batches and finds them. Every method may raise CoordinatorUnavailable."""

    @property
    def rows(self) -> RewritingCoordinator:
        """Return the part that only jobs over object storage call."""

    @property
    def transactions(self) -> TransactionCoordinator:
        """Return the part that opens and ends transactions."""

    async def create_logs(self, topic_id: bytes, partitions: Sequence[int], *, growing: bool = False) -> None:
        """Create empty logs. Logs that exist already stay as they are.

        `growing`: the topic had fewer partitions before. If the loss of commits was accepted, the topic may have had
        these partitions too. So the new logs begin after all offsets that may have been given.
        """

    async def delete_logs(self, topic_id: bytes, partitions: Sequence[int]) -> None:
        """Delete logs with their rows, producer state and offsets. Segments that no row uses any more become
        garbage."""

    def store_time_ms(self) -> int | None:
        """Return milliseconds since 1970 by the store's clock; None if the time is not known yet."""

    def deadline_ms(self, within_ms: int) -> int | None:
        """Return `not_after_ms` for what has to be done so soon; None if the time is not known yet.

        It counts in this process only: pass the object on as it is.
        """

    async def commit(self, segment: bytes, runs: Sequence[PartitionRun], *, not_after_ms: int = 0) -> list[RunAnswer]:
        """Order the batches of an uploaded segment; answers in the order of `runs`.

        `not_after_ms` is a `deadline_ms`; later the runs are rejected with KAFKA_STORAGE_ERROR. 0 for no limit.

        Idempotent by (segment, topic ID, partition): a retry gets the stored answers, except `BatchAnswer.early`. Each
        partition's run is judged by the producer rules of Kafka's ProducerStateManager. A rejected batch does not stop
        the other batches.
        """

    async def forget_producers(self, logs: Sequence[tuple[bytes, int]]) -> int:
        """Drop the state of expired producers in these logs (topic ID and partition); return the number of
        producers."""

    async def find(self, requests: Sequence[FindRequest]) -> list[LogAnswer]:
        """Return the rows to read, and the true log start offset and high watermark."""

    async def list_offsets(self, requests: Sequence[ListRequest]) -> list[OffsetAnswer]:
        """Return offsets by timestamp.

        The resolution of a time, and of MAX_TIMESTAMP, is a row, not a record. The answer is the first readable offset
        of the first row whose maximum timestamp is at least the requested one (or is the highest), and that maximum. So
        no record of that time or later is before the offset, but older records may be after it.
        """

    async def delete_records(self, requests: Sequence[DeleteRequest]) -> list[LogStart]:
        """Raise log starts, at once and for all readers; rows completely before a log start are freed."""

    async def retain(self, requests: Sequence[RetainRequest]) -> list[LogStart]:
        """Free rows that have expired by time or by size, from the oldest on; the log start follows them."""

    async def used(self, segments: Sequence[bytes]) -> list[bool]:
        """Return for each segment whether any row uses it."""

    async def segment_use(self, segments: Sequence[bytes]) -> list[SegmentUse]:
        """Return how much of each segment the rows of all partitions use."""

    async def garbage(self, older_than_ms: int, limit: int) -> list[bytes]:
        """Return segments that lost their last row in some shard at least `older_than_ms` ago, at most `limit` of each
        shard, the oldest first."""

    async def tombstone(self, segments: Sequence[bytes]) -> list[bytes]:
        """Tombstone the segments that no row uses, and return them. From now on no commit of these is accepted."""

    async def tombstoned(self, older_than_ms: int, limit: int) -> list[bytes]:
        """Return segments that were tombstoned at least `older_than_ms` ago, at most `limit`. Their objects may be
        deleted."""

    async def release(self, segments: Sequence[bytes]) -> None:
        """Forget the tombstones of segments whose objects are deleted."""

    async def describe(self, topic_id: bytes, partitions: Sequence[int]) -> list[LogDescription | None]:
        """Return figures for each partition; None if the log does not exist."""

    async def producers(self, topic_id: bytes, partition: int) -> list[ProducerDescription] | None:
        """Return the idempotent producers that have not expired, ordered by ID; None if the log does not exist."""

    async def pack_rows(self, logs: Sequence[tuple[bytes, int]], older_than_ms: int) -> None:
        """Pack rows of those logs (topic ID, partition) that are older, so that they take less memory; answers stay the
        same."""

    async def index_sizes(self) -> list[IndexSize]:
        """Return the size of each shard's indexes."""

    def announcements(self) -> AsyncIterator[Announcement | None]:
        """Yield the commits of all proxies as they are confirmed, forever.

        None means that announcements may have been missed, first of all after the connection: drop what is cached from
        them.
        """
