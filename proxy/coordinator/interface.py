"""The interface of the diskless coordinator (KIP-1164), whatever store it is on.

The coordinator orders batches: a proxy uploads a WAL segment, commits the partition runs in it, and only then answers.
Two ends of a log are kept apart: a commit moves the *log end offset*, a confirmation moves the *high watermark*, which
is as far as readers see. Without a journal a commit confirms itself.

Topic IDs and segment names are raw 16-byte UUIDs everywhere in here.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from typing import NamedTuple, Protocol

from proxy.coordinator.interface_rewriting import RewritingCoordinator

EARLIEST_TIMESTAMP = -2
LATEST_TIMESTAMP = -1
MAX_TIMESTAMP = -3
NO_PRODUCER_ID = -1
MAX_BATCHES_PER_RUN = 500
"""A partition run is committed in one call, as it is what idempotence goes by, and the store serves nobody else
meanwhile: so a WAL segment ends where a run has as many."""


class CoordinatorUnavailable(Exception):
    """The store did not answer, or answered that it can't: nobody knows whether the call took effect."""


class ShardFenced(CoordinatorUnavailable):
    """The store has lost commits that it acknowledged; an operator decides."""


class ProposedBatch(NamedTuple):
    """One record batch of a partition run, as its header tells it."""

    length: int
    """Bytes, with the 12 bytes of base offset and length."""
    record_count: int
    """Offsets that it takes: last offset delta + 1."""
    max_timestamp_ms: int
    producer_id: int
    """NO_PRODUCER_ID where the producer is not idempotent."""
    producer_epoch: int
    base_sequence: int


class PartitionRun(NamedTuple):
    """The contiguous batches of one partition in one segment."""

    topic_id: bytes
    partition: int
    position: int
    """Of the first batch's first byte in the segment."""
    batches: tuple[ProposedBatch, ...]
    log_append_time: bool = False
    """Whether the time of its records is that of their commit (`message.timestamp.type`)."""


class BatchAnswer(NamedTuple):
    """What Kafka would answer for the batch."""

    error_code: int
    """Kafka's: 0, OUT_OF_ORDER_SEQUENCE_NUMBER (45), INVALID_PRODUCER_EPOCH (47), UNKNOWN_PRODUCER_ID (59) …"""
    base_offset: int
    """-1 with an error; of an exact duplicate, the offset of the first time."""
    append_time_ms: int
    """Under LogAppendTime the time of the append, of an exact duplicate that of the first time; else -1, but of an
    exact duplicate its maximum timestamp: so brokers answer."""
    duplicate: bool
    early: bool = False
    """Of a batch that is out of order: its sequence is beyond the one expected; what comes between may be on its way.
    Committed again, as part of the same run of the same segment, it is judged anew; where that can't be, its answer is
    the error that the run would have had (see `RunAnswer`), and it is not early any more."""


class RunAnswer(NamedTuple):
    """The answers of one partition run; `error_code` not 0 means that none of its batches was looked at."""

    topic_id: bytes
    partition: int
    error_code: int
    """0, UNKNOWN_TOPIC_OR_PARTITION (3) where the log does not live, KAFKA_STORAGE_ERROR (56) where the segment is
    tombstoned, the shard of the partition is fenced or `not_after_ms` is past, THROTTLING_QUOTA_EXCEEDED (89) where the
    index of the shard is full: the same batches, in another segment, may be accepted later. REQUEST_TIMED_OUT (7) if
    the shard failed: nobody knows whether the run took effect."""
    batches: tuple[BatchAnswer, ...]
    log_start_offset: int
    high_watermark: int


class Row(NamedTuple):
    """Where a contiguous range of offsets lies: the batch coordinates of one accepted part of a partition run."""

    base_offset: int
    last_offset: int
    segment: bytes
    position: int
    length: int
    max_timestamp_ms: int
    append_time_ms: int
    log_append_time: bool = False
    """Whether the time of all its records is `append_time_ms`, whatever their batches say."""
    offsets_in_place: bool = False
    """Whether its batches have their offsets, leader epoch and time already, as those of merged objects do: they are
    checked, not patched, when they are read. Offsets ascend and may leave some out; the first batch does not begin
    before `base_offset`, and the last one ends at `last_offset`."""


class LogAnswer(NamedTuple):
    """What `find` knows of one partition.

    Rows ascend from the one that holds the offset asked for, or the next one. Gaps between them, and between the last
    one and the high watermark, are left where the loss of records was accepted.
    """

    error_code: int
    """0, OFFSET_OUT_OF_RANGE (1), UNKNOWN_TOPIC_OR_PARTITION (3), or KAFKA_STORAGE_ERROR (56) where the partition's
    shard is fenced: then nothing else is known."""
    rows: tuple[Row, ...]
    log_start_offset: int
    high_watermark: int


class OffsetAnswer(NamedTuple):
    """An answer to ListOffsets: offset and timestamp are -1 where nothing matches."""

    error_code: int
    """0, UNKNOWN_TOPIC_OR_PARTITION (3), or KAFKA_STORAGE_ERROR (56) where the partition's shard is fenced."""
    offset: int
    timestamp_ms: int


class FindRequest(NamedTuple):
    """Rows from `offset` on, until they hold `max_bytes` (the first row always comes whole)."""

    topic_id: bytes
    partition: int
    offset: int
    max_bytes: int


class ListRequest(NamedTuple):
    """An offset by timestamp in milliseconds since 1970, or by one of the special timestamps above."""

    topic_id: bytes
    partition: int
    timestamp_ms: int
    from_offset: int = 0
    """No row that ends before it is looked for; the special timestamps of a log's two ends take no notice of it."""


class DeleteRequest(NamedTuple):
    """Delete what lies before an offset; all up to the high watermark where it is -1."""

    topic_id: bytes
    partition: int
    before_offset: int


class RetainRequest(NamedTuple):
    """What a log is to keep, at most: -1 for no bound."""

    topic_id: bytes
    partition: int
    retention_ms: int
    retention_bytes: int
    by_append_time: bool
    """Whether a record's time is that of its append (`message.timestamp.type`)."""


class LogStart(NamedTuple):
    """An answer to a request to delete or retain."""

    error_code: int
    """0, OFFSET_OUT_OF_RANGE (1), UNKNOWN_TOPIC_OR_PARTITION (3), or KAFKA_STORAGE_ERROR (56) where the partition's
    shard is fenced: then the log start is not known."""
    log_start_offset: int


class Announcement(NamedTuple):
    """A hint that a partition's readers see more, the new rows and the high watermark after them; or, without rows,
    less: that its log start has moved.

    `rows` start at the high watermark before them; a reader that missed one finds a gap and asks with `find`.
    """

    topic_id: bytes
    partition: int
    rows: tuple[Row, ...]
    log_start_offset: int
    high_watermark: int


class LogDescription(NamedTuple):
    """Figures of one partition's log."""

    log_start_offset: int
    high_watermark: int
    log_end_offset: int
    size_bytes: int
    rows: int


class ProducerDescription(NamedTuple):
    """What a log remembers of an idempotent producer."""

    producer_id: int
    producer_epoch: int
    last_sequence: int
    last_timestamp_ms: int
    """Of its last batch, as a duplicate of that is answered."""


class SegmentUse(NamedTuple):
    """What rows use of one segment; zeros where none does."""

    size_bytes: int
    rows: int


class IndexSize(NamedTuple):
    """Of all indexes of one shard."""

    rows: int
    size_bytes: int
    """Memory of the store; packed rows take a quarter of what others take."""


class Coordinator(Protocol):
    """Orders batches and finds them. Every method may raise CoordinatorUnavailable."""

    @property
    def rows(self) -> RewritingCoordinator:
        """The part that only jobs over object storage call."""

    async def create_logs(self, topic_id: bytes, partitions: Sequence[int], *, growing: bool = False) -> None:
        """Let logs live, empty. Those that live already are left as they are.

        `growing`: of a topic that had fewer. Where commits were lost, and that was accepted, it may have had these,
        too: they begin behind all offsets that may have been given.
        """

    async def delete_logs(self, topic_id: bytes, partitions: Sequence[int]) -> None:
        """End logs: their rows, producer state and offsets go, segments that nothing uses any more become garbage."""

    def store_time_ms(self) -> int | None:
        """Milliseconds since 1970 by the store's clock, as far as it is known; None where it is not."""

    async def commit(self, segment: bytes, runs: Sequence[PartitionRun], *, not_after_ms: int = 0) -> list[RunAnswer]:
        """Order the batches of an uploaded segment; answers in the order of `runs`.

        `not_after_ms`: by the store's clock; later the runs are refused with KAFKA_STORAGE_ERROR. 0 for no limit.

        Idempotent by (segment, topic ID, partition): a retry gets the stored answers, but for `BatchAnswer.early`. Each
        partition's run is accepted by the producer rules of Kafka's ProducerStateManager, a rejected batch not stopping
        the others.
        """

    async def forget_producers(self, logs: Sequence[tuple[bytes, int]]) -> int:
        """Drop the state of producers that have expired in these logs (topic ID and partition); of how many."""

    async def find(self, requests: Sequence[FindRequest]) -> list[LogAnswer]:
        """Where to read, and the true log start offset and high watermark."""

    async def list_offsets(self, requests: Sequence[ListRequest]) -> list[OffsetAnswer]:
        """Offsets by timestamp.

        By time, and for MAX_TIMESTAMP, as fine as rows, not as records: the first offset that can be read of the first
        row whose maximum timestamp is the one asked for or later (or the highest), and that maximum. So no record of
        that time or later lies before the offset, but older ones may lie behind it.
        """

    async def delete_records(self, requests: Sequence[DeleteRequest]) -> list[LogStart]:
        """Raise log starts, at once and for all readers; rows wholly before them are freed."""

    async def retain(self, requests: Sequence[RetainRequest]) -> list[LogStart]:
        """Free rows, from the oldest on, that retention by time or by size lets go; the log start follows them."""

    async def used(self, segments: Sequence[bytes]) -> list[bool]:
        """Whether any row uses each of the segments."""

    async def segment_use(self, segments: Sequence[bytes]) -> list[SegmentUse]:
        """How much of each of the segments the rows of all partitions use."""

    async def garbage(self, older_than_ms: int, limit: int) -> list[bytes]:
        """Segments that had rows and have lost their last one somewhere, at least so long ago; at most `limit` of each
        shard, the oldest first."""

    async def tombstone(self, segments: Sequence[bytes]) -> list[bytes]:
        """Those of the segments that no row uses: from now on no commit of them is accepted."""

    async def tombstoned(self, older_than_ms: int, limit: int) -> list[bytes]:
        """Segments that have been tombstoned for at least so long, at most `limit` of each shard; their objects may be
        deleted."""

    async def release(self, segments: Sequence[bytes]) -> None:
        """Forget the tombstones of segments whose objects are deleted."""

    async def describe(self, topic_id: bytes, partitions: Sequence[int]) -> list[LogDescription | None]:
        """Figures per partition; None where the log does not live."""

    async def producers(self, topic_id: bytes, partition: int) -> list[ProducerDescription] | None:
        """Idempotent producers that have not expired, by ID; None where the log does not live."""

    async def pack_rows(self, logs: Sequence[tuple[bytes, int]], older_than_ms: int) -> None:
        """Keep the rows of those logs (topic ID, partition) that are so old in less memory; no answer changes by it."""

    async def index_sizes(self) -> list[IndexSize]:
        """How much each shard has to remember."""

    def announcements(self) -> AsyncIterator[Announcement | None]:
        """Commits of all proxies as they are confirmed, for ever.

        None says that announcements may have been missed (first of all on connecting): forget what they told.
        """
