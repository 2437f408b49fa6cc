"""A healthy store with every feature, written through the real coordinator, and helpers that change any part of it.

The layouts are those at the top of `lua/shard.lua`, repeated here on purpose.
"""

from __future__ import annotations

import asyncio
import struct
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import redis as blocking_redis

from pipeline.audit.audit import Audit, AuditOptions
from pipeline.audit.reads import read
from pipeline.audit.report import AuditReport
from pipeline.audit.spill import Spill
from pipeline.progress import Progress
from pipeline.reading import Range, row_batches
from proxy.config import Settings
from proxy.coordinator.interface import DeleteRequest, FindRequest, Row
from proxy.coordinator.interface_registry import DisklessTopic
from proxy.coordinator.interface_rewriting import Swap, SwapAnswer
from proxy.coordinator.shards import partition_key, shard_of
from proxy.diskless.wal.segment import segment_key
from proxy.inspection.stores import Stores, open_stores
from proxy.storage import ObjectMissing
from tests.support.keyed import Keyed
from tests.support.segments import make_topic, write_segments
from tests.support.transactions import TransactionalLog

MEMBER = struct.Struct(">20sqqqB16sqIIqq")
LOG = struct.Struct(">qqqqqqqqqB")
USE = struct.Struct(">qI")
SEGMENTS = 8
WHOLE = 1 << 40


def audited(
    settings: Settings, options: AuditOptions | None = None, *, topics: tuple[str, ...] = (), dry_run: bool = False
) -> AuditReport:
    """Run the audit like the job, with its tasks in this process."""
    audit = Audit(settings, options or AuditOptions(settle_ms=0), Progress("audit"), topics=topics, dry_run=dry_run)
    with Spill() as spill:
        asyncio.run(audit.gather(spill))
        for task in audit.tasks(spill):
            audit.take(task, read(task))
    return audit.report(asyncio.run(audit.decide()))


def kinds(report: AuditReport) -> set[str]:
    return {finding.kind for finding in report.findings}


async def merged_row(opened: Stores, old: tuple[Row, ...]) -> Row | None:
    """Put rows together in one object of format 1, as a merge does; None if one of their objects is gone."""
    data = bytearray([1])
    for row in old:
        start, end = row.position, row.position + row.length
        try:
            found = b"" if row.is_marker else await opened.storage.fetch(segment_key(row.segment), start, end)
        except ObjectMissing:
            return None
        run, _ = row_batches(bytearray(found), Range(row.segment, start, end, (0,)), row)
        data += run
    segment = uuid.uuid4().bytes
    await opened.storage.upload(segment_key(segment), data, len(data))
    return Row(
        old[0].base_offset,
        old[-1].last_offset,
        segment,
        1,
        len(data) - 1,
        max(row.max_timestamp_ms for row in old),
        max(row.append_time_ms for row in old),
        offsets_in_place=True,
    )


async def merge_rows(settings: Settings, topic: DisklessTopic, partition: int, first: int, last: int) -> None:
    """Merge rows `first` to `last` of a log."""
    async with open_stores(settings) as opened:
        (answer,) = await opened.coordinator.find([FindRequest(topic.topic_id, partition, 0, WHOLE)])
        old = answer.rows[first : last + 1]
        answers = await opened.coordinator.rows.replace(
            [Swap(topic.topic_id, partition, old, await merged_row(opened, old))]
        )
        assert answers == [SwapAnswer.REPLACED]


async def healthy(settings: Settings) -> DisklessTopic:
    """Create topics with rows packed, merged, trimmed, stamped and of transactions; return the topic `plain`."""
    plain = await make_topic(settings, "plain", 3)
    stamped = await make_topic(settings, "stamped", 2)
    for topic, stamps in ((plain, False), (stamped, True)):
        await write_segments(settings, topic, SEGMENTS, batches=2, log_append_time=stamps)
        await merge_rows(settings, topic, 1, 2, 4)
    async with open_stores(settings) as opened:
        await opened.coordinator.delete_records([DeleteRequest(stamped.topic_id, 0, 25)])
    await with_transactions(settings)
    return plain


async def with_transactions(settings: Settings) -> DisklessTopic:
    """Create the topic `transactional`: committed, aborted and open transactions, some of them in merged rows."""
    topic = await make_topic(settings, "transactional", 1)
    async with open_stores(settings) as opened:
        log = TransactionalLog(opened, topic)
        for committed in (True, False, True, False):
            for producer_id in (70, 71, -1):
                await log.write([Keyed(b"key", b"value")] * 2, producer_id)
            await log.end(70, committed=committed)
            await log.end(71, committed=False)
        await log.write([Keyed(b"key", b"value")], 72)
    await merge_rows(settings, topic, 0, 1, 7)
    return topic


class Hands:
    """Changes the stored data of one partition directly, without the coordinator; partition 0 by default."""

    def __init__(self, settings: Settings, topic: DisklessTopic, partition: int = 0) -> None:
        self._settings, self._topic = settings, topic
        self.root = Path(settings.storage.url.removeprefix("file://"))
        self.key = partition_key(topic.topic_id, partition)
        self.shard = shard_of(self.key, settings.redis.shards)
        self.prefix = b"diskless:{d%d}:" % self.shard
        self.client = blocking_redis.Redis.from_url(settings.redis.url)
        self.index = self.prefix + b"rows"

    def of_partition(self, partition: int) -> Hands:
        """Return helpers for another partition of the same topic."""
        return Hands(self._settings, self._topic, partition)

    def of_topic(self, name: str) -> Hands:
        """Return helpers for the first partition of another topic."""

        async def found() -> DisklessTopic:
            async with open_stores(self._settings) as opened:
                return opened.named([name])[0]

        return Hands(self._settings, asyncio.run(found()))

    def aborted(self) -> list[bytes]:
        """Return the entries of aborted transactions, as they are stored."""
        members = self.client.zrangebylex(self.prefix + b"aborted", b"[" + self.key, b"(" + self.key + b"\xff" * 8)
        assert isinstance(members, list)
        return members

    def rows(self) -> list[Row]:
        """Return the rows, none of which is packed."""
        return [_row(member) for member in self._members()]

    def _members(self) -> list[bytes]:
        members = self.client.zrangebylex(self.index, b"[" + self.key, b"(" + self.key + b"\xff" * 8)
        assert isinstance(members, list)
        return members

    def path(self, segment: bytes) -> Path:
        return self.root / segment_key(segment)

    @contextmanager
    def bytes_of(self, segment: bytes) -> Iterator[bytearray]:
        data = bytearray(self.path(segment).read_bytes())
        yield data
        self.path(segment).write_bytes(data)

    def change_row(self, number: int, change: Callable[[Row], Row | None], running_ms: int | None = None) -> None:
        member = self._members()[number]
        new = change(_row(member))
        self.client.zrem(self.index, member)
        if new is not None:
            key, _, _, log_start, flags, *_, running = MEMBER.unpack(member)
            running = running if running_ms is None else running_ms
            placed = (new.segment, new.append_time_ms, new.position, new.length, new.max_timestamp_ms)
            packed = MEMBER.pack(key, new.last_offset, new.base_offset, log_start, flags, *placed, running)
            self.client.zadd(self.index, {packed: 0})

    def change_log(self, **changes: int) -> None:
        """Add to `start`, `end`, `bytes`, `rows`, `maximum` or `stable` of the log."""
        names = ("start", "end", "bytes", "rows", "maximum", "created", "stable")
        packed = self.client.hget(self.prefix + b"logs", self.key)
        assert isinstance(packed, bytes)
        values = list(LOG.unpack(packed))
        for name, change in changes.items():
            values[names.index(name)] += change
        self.client.hset(self.prefix + b"logs", self.key, LOG.pack(*values))

    def change_use(self, segment: bytes, size_bytes: int, rows: int) -> None:
        """Add to the use that this shard records; the entry is removed if no rows are left."""
        key = self.prefix + b"segments"
        packed = self.client.hget(key, segment)
        assert packed is None or isinstance(packed, bytes)
        bytes_now, rows_now = USE.unpack(packed) if packed else (0, 0)
        if rows_now + rows:
            self.client.hset(key, segment, USE.pack(bytes_now + size_bytes, rows_now + rows))
        else:
            self.client.hdel(key, segment)


def _row(member: bytes) -> Row:
    _, last, base, _, flags, segment, append_time_ms, *row, _ = MEMBER.unpack(member)
    return Row(
        base,
        last,
        segment,
        *row,
        append_time_ms,
        log_append_time=bool(flags & 0x10),
        offsets_in_place=bool(flags & 0x20),
    )
