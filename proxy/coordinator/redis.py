"""The coordinator on a Redis-compatible store: scripts in `lua/` decide; this module splits and merges calls."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from contextlib import aclosing
from itertools import islice

import structlog

from proxy import config
from proxy.coordinator import packing, subscription
from proxy.coordinator.carrying import Carrier, StoreTrust
from proxy.coordinator.clock import wall_clock_ms
from proxy.coordinator.cluster import Store
from proxy.coordinator.fence import Fence
from proxy.coordinator.guarded_calls import GuardedCarrier
from proxy.coordinator.interface import (
    Announcement,
    DeleteRequest,
    FindRequest,
    IndexSize,
    ListRequest,
    LogAnswer,
    LogDescription,
    LogStart,
    OffsetAnswer,
    PartitionRun,
    ProducerDescription,
    RetainRequest,
    RunAnswer,
    SegmentUse,
)
from proxy.coordinator.interface_journal import Journal
from proxy.coordinator.interface_snapshots import Snapshots
from proxy.coordinator.journalled_calls import JournalledCarrier
from proxy.coordinator.redis_answers import failed_run, is_later, left_over, refused_run, to_pack_again
from proxy.coordinator.rewriting import IndexRewriting
from proxy.coordinator.shard_calls import MAX_ITEMS_PER_CALL, Reply, ShardCalls, merge
from proxy.coordinator.shard_states import ShardStates
from proxy.coordinator.shards import announcement_channel, partition_key, shard_of
from proxy.coordinator.tombstones import Tombstoned, batched, oldest_of
from proxy.coordinator.transactions import RedisTransactions
from proxy.coordinator.view import View
from proxy.protocol.errors import KAFKA_STORAGE_ERROR, OFFSET_OUT_OF_RANGE

log = structlog.get_logger()

MAX_ROWS_PER_FIND = 500
MAX_ROWS_PER_FIND_CALL = 2_000
MAX_ROWS_PER_DELETE_CALL = 500
MAX_SEGMENTS_PER_CALL = 200
MAX_ROWS_PER_PACK_CALL = 256
FEWEST_ROWS_PER_PACK = 16
MOST_ROWS_PER_PACK = 32
_RUN_WEIGHT = 4
"""Cost of a partition run for the store, in batches."""
MAX_PRODUCERS_PER_CALL = 500
_BEGINNING = b"0"
"""Position of a scan's beginning, which a scan also returns at its end."""


class RedisCoordinator:
    """Implements `interface.Coordinator` on the shared client of `connect.py`, which its caller closes.

    The interface documents its methods; a docstring here only adds what is special to this store.

    `producer_id_expiration_ms` counts from a producer's last append to the partition, by the store's clock. Brokers
    count from the timestamp in that append, which the producer sets. `producer_batches_remembered` is per producer and
    partition.
    """

    def __init__(
        self,
        client: Store,
        settings: config.Redis,
        *,
        producer_id_expiration_ms: int,
        producer_batches_remembered: int,
        journal: Journal | None = None,
        snapshots: Snapshots | None = None,
    ) -> None:
        self.fence = Fence()
        """Known state of each shard, and the fenced shards."""
        trust = StoreTrust()
        self.view: View | None = None
        """The store as a view of the journal; None without a journal."""
        carrier: Carrier
        if journal is None:
            carrier = GuardedCarrier(client, settings, trust, self.fence)
        else:
            self.view = View(client, settings, journal, snapshots)
            carrier = JournalledCarrier(self.view, trust)
        self._calls = ShardCalls(carrier, settings)
        self._settings = settings
        self.rows = IndexRewriting(self._calls, settings)
        self.transactions = RedisTransactions(self._calls, producer_id_expiration_ms=producer_id_expiration_ms)
        self.shards = ShardStates(self._calls, trust, settings)
        self._client = client
        self._producer_id_expiration_ms = producer_id_expiration_ms
        self._producer_batches_remembered = producer_batches_remembered
        self._long_lookups = asyncio.Lock()
        """Held during one call of a lookup by time that needs many calls."""

    def store_time_ms(self) -> int | None:
        of_journal = self.view.time.now_ms() if self.view is not None else None
        return self.shards.store_time_ms() if of_journal is None else of_journal

    def deadline_ms(self, within_ms: int) -> int | None:
        return (self.shards if self.view is None else self.view.time).deadline_ms(within_ms)

    @property
    def bytes_sent(self) -> int:
        """Return the payload bytes of script calls so far."""
        return self._calls.bytes_sent

    @property
    def bytes_received(self) -> int:
        """Return the payload bytes of replies and announcements so far."""
        return self._calls.bytes_received

    async def create_logs(self, topic_id: bytes, partitions: Sequence[int], *, growing: bool = False) -> None:
        keys = [partition_key(topic_id, partition) for partition in partitions]
        while keys:
            keys = left_over(await self._run("create_logs", keys, keys, b"\1" if growing else b"\0"))
            await self._delete(keys, goes_on=True)

    async def delete_logs(self, topic_id: bytes, partitions: Sequence[int]) -> None:
        """Delete a bounded number of rows per call. Another call completes a deletion that was interrupted."""
        await self._delete([partition_key(topic_id, partition) for partition in partitions], goes_on=False)

    async def _delete(self, keys: list[bytes], *, goes_on: bool) -> None:
        while keys:
            limits = packing.pack_delete_limits(MAX_ROWS_PER_DELETE_CALL, goes_on=goes_on)
            keys = left_over(await self._run("delete_logs", keys, keys, limits))
            goes_on = True

    async def commit(self, segment: bytes, runs: Sequence[PartitionRun], *, not_after_ms: int = 0) -> list[RunAnswer]:
        """Order the batches of an uploaded segment; answers in the order of `runs`.

        Each shard answers for itself. The runs of a failed shard have REQUEST_TIMED_OUT: it is unknown whether they
        took effect. If no shard answers, this raises, and the outcome of all runs is unknown. A retry, with the same
        runs or with fewer, gets the answers of the runs that took effect (for an hour).

        The producer rules are those of Kafka 4.x (`ProducerAppendInfo`, `ProducerStateEntry`) with KAFKA-15591: a
        producer that is unknown to a log may start at any sequence, except that it starts at 0 in a log that never had
        a record.

        Raises ValueError if two runs are of one partition, or if a number is out of a checked batch's range.
        """
        keys = [partition_key(run.topic_id, run.partition) for run in runs]
        if len(segment) != 16 or len(set(keys)) != len(keys):
            raise ValueError("a segment has a name of 16 bytes, and at most one run per partition")
        transactional = packing.are_transactional(runs)
        settings = packing.pack_commit_settings(
            self._producer_batches_remembered,
            self._producer_id_expiration_ms,
            segment,
            # A record of the journal must have the same result whenever it is applied.
            self._settings.max_index_bytes if self.view is None else 0,
            transactional=transactional,
        )
        packed = [packing.pack_run(run, transactional=transactional) for run in runs]
        weights = [_RUN_WEIGHT + len(run.batches) for run in runs]
        replies = await self._calls.run(
            "commit", keys, packed, settings, weights=weights, not_after_ms=not_after_ms, keep_failures=True
        )
        failures = [reply.failure for reply in replies if reply.failure is not None]
        if failures and len(failures) == len(replies):
            raise failures[0]
        for reason in dict.fromkeys(map(str, failures)):
            log.warning("commit_failed_in_part", reason=reason, remedy="none; the commit is retried, see the reason")
        return merge(runs, replies, packing.unpack_run_answers, refused_run, failed_run)

    async def find(self, requests: Sequence[FindRequest]) -> list[LogAnswer]:
        """Return at most MAX_ROWS_PER_FIND rows of a partition, and fewer of each if many partitions have many rows.

        A caller that needs more rows calls again, from the offset after the last row.
        """
        answers = await self._find(requests)
        if self.view is None:
            return answers
        beyond = [
            place
            for place, (request, answer) in enumerate(zip(requests, answers, strict=True))
            if answer.error_code == OFFSET_OUT_OF_RANGE and request.offset > answer.high_watermark
        ]
        if beyond:
            await self.catch_up((requests[place].topic_id, requests[place].partition) for place in beyond)
            for place, answer in zip(beyond, await self._find([requests[place] for place in beyond]), strict=True):
                answers[place] = answer
        return answers

    async def catch_up(self, logs: Iterable[tuple[bytes, int]]) -> None:
        """Let the next answers have all that a journal has: clients may have seen more at another store's proxies."""
        if self.view is not None:
            await self.view.catch_up({shard_of(partition_key(*log), self._settings.shards) for log in logs})

    async def _find(self, requests: Sequence[FindRequest]) -> list[LogAnswer]:
        keys = [partition_key(request.topic_id, request.partition) for request in requests]
        limits = packing.pack_find_limits(MAX_ROWS_PER_FIND, MAX_ROWS_PER_FIND_CALL)
        replies = await self._calls.run("find", keys, [packing.pack_find(request) for request in requests], limits)
        return merge(
            requests,
            replies,
            lambda reply, _: packing.unpack_log_answers(reply),
            lambda _, __: LogAnswer(KAFKA_STORAGE_ERROR, (), -1, -1, -1),
        )

    async def list_offsets(self, requests: Sequence[ListRequest]) -> list[OffsetAnswer]:
        """Look at rows one by one, some per call, if a row with a later time was trimmed.

        All such lookups take turns, and pause as long as they work, so that the store serves other calls meanwhile. A
        request may name many partitions, or the same partition many times: each entry has turns of its own.
        """
        left = dict(enumerate(requests))
        answers: dict[int, OffsetAnswer] = {}
        while left:
            asked = left
            if answers:
                asked = dict([next(iter(left.items()))])
                async with self._long_lookups:
                    began_s = asyncio.get_running_loop().time()
                    found = await self._list(asked)
                    await asyncio.sleep(asyncio.get_running_loop().time() - began_s)
            else:
                found = await self._list(asked)
            left = {item: request for item, request in left.items() if item not in asked}
            for (item, request), (answer, again_from) in zip(asked.items(), found, strict=True):
                known = answers.get(item)
                if known is None or answer.error_code or is_later(answer, known):
                    answers[item] = answer
                if again_from >= 0:
                    left[item] = request._replace(from_offset=again_from)
        return [answers[item] for item in range(len(requests))]

    async def _list(self, requests: Mapping[int, ListRequest]) -> list[tuple[OffsetAnswer, int]]:
        """Return the answers of one call, in order, and the offset from which each goes on; -1 at the end."""
        keys = [partition_key(request.topic_id, request.partition) for request in requests.values()]
        packed = [packing.pack_list(request) for request in requests.values()]
        return merge(
            list(requests),
            await self._calls.run("list_offsets", keys, packed),
            lambda reply, _: packing.unpack_offset_answers(reply),
            lambda _, __: (OffsetAnswer(KAFKA_STORAGE_ERROR, -1, -1), -1),
        )

    async def delete_records(self, requests: Sequence[DeleteRequest]) -> list[LogStart]:
        """Free rows, some per call. If this raises, log starts may have moved, and the next call frees the rows."""
        return await self._trim(requests, [packing.pack_delete(request) for request in requests])

    async def retain(self, requests: Sequence[RetainRequest]) -> list[LogStart]:
        return await self._trim(requests, [packing.pack_retain(request) for request in requests])

    async def _trim(
        self, requests: Sequence[DeleteRequest] | Sequence[RetainRequest], packed: list[bytes]
    ) -> list[LogStart]:
        keys = [partition_key(request.topic_id, request.partition) for request in requests]
        limits = packing.pack_trim_limits(MAX_ROWS_PER_DELETE_CALL, wall_clock_ms())
        answers: dict[int, LogStart] = {}
        left = list(range(len(keys)))
        while left:
            found = merge(
                left,
                await self._calls.run("trim", [keys[item] for item in left], [packed[item] for item in left], limits),
                lambda reply, _: packing.unpack_log_starts(reply),
                lambda _, __: (LogStart(KAFKA_STORAGE_ERROR, -1), False),
            )
            answers.update({item: answer for item, (answer, _) in zip(left, found, strict=True)})
            left = [item for item, (_, more) in zip(left, found, strict=True) if more]
            for item in left:
                request = requests[item]
                if isinstance(request, DeleteRequest):
                    # The high watermark of the first call counts: records that are appended meanwhile must not be
                    # deleted.
                    packed[item] = packing.pack_delete(request._replace(before_offset=answers[item].log_start_offset))
        return [answers[item] for item in range(len(keys))]

    async def used(self, segments: Sequence[bytes]) -> list[bool]:
        used: list[bool] = []
        for some in batched(segments, MAX_SEGMENTS_PER_CALL):
            replies = await self._run_everywhere("use", b"".join(some))
            used += [any(flags) for flags in zip(*map(packing.unpack_flags, replies), strict=True)]
        return used

    async def segment_use(self, segments: Sequence[bytes]) -> list[SegmentUse]:
        use: list[SegmentUse] = []
        for some in batched(segments, MAX_SEGMENTS_PER_CALL):
            replies = await self._run_everywhere("segment_use", b"".join(some))
            use += [
                SegmentUse(sum(one.size_bytes for one in uses), sum(one.rows for one in uses))
                for uses in zip(*map(packing.unpack_segment_use, replies), strict=True)
            ]
        return use

    async def garbage(self, older_than_ms: int, limit: int) -> list[bytes]:
        age = packing.pack_age(older_than_ms, limit)
        replies = await self._run_everywhere("garbage", b"garbage", age)
        return list(dict.fromkeys(segment for reply in replies for segment in packing.unpack_segments(reply)))

    async def tombstone(self, segments: Sequence[bytes]) -> list[bytes]:
        unused: list[bytes] = []
        for some in batched(segments, MAX_SEGMENTS_PER_CALL):
            replies = await self._run_everywhere("tombstone", b"".join(some))
            unused_in = list(zip(*map(packing.unpack_flags, replies), strict=True))
            used = [segment for segment, flags in zip(some, unused_in, strict=True) if not all(flags)]
            await self.release(used)
            unused += [segment for segment, flags in zip(some, unused_in, strict=True) if all(flags)]
        return unused

    async def tombstoned(self, older_than_ms: int, limit: int) -> list[bytes]:
        """Segments that only some shards have tombstoned are tombstoned or released again."""
        windows = await self._run_everywhere("garbage", b"tombstones", packing.pack_age(0, limit))
        found = Tombstoned()
        age = packing.pack_age(older_than_ms, limit)
        for some in batched(oldest_of(map(packing.unpack_segments, windows), limit), MAX_SEGMENTS_PER_CALL):
            found.take(some, await self._run_everywhere("tombstoned", b"".join(some), age))
        await self.tombstone(found.to_tombstone_again)
        return sorted(found.everywhere)

    async def release(self, segments: Sequence[bytes]) -> None:
        for some in batched(segments, MAX_SEGMENTS_PER_CALL):
            await self._run_everywhere("release", b"".join(some))

    async def describe(self, topic_id: bytes, partitions: Sequence[int]) -> list[LogDescription | None]:
        keys = [partition_key(topic_id, partition) for partition in partitions]
        return merge(keys, await self._run("describe", keys, keys), lambda reply, _: packing.unpack_descriptions(reply))

    async def producers(self, topic_id: bytes, partition: int) -> list[ProducerDescription] | None:
        key = partition_key(topic_id, partition)
        found: dict[int, ProducerDescription] = {}
        place = _BEGINNING
        while True:
            limits = packing.pack_producers_limits(MAX_PRODUCERS_PER_CALL, self._producer_id_expiration_ms, place)
            (reply,) = await self._run("producers", [key], [key], limits)
            lives, place, some = packing.unpack_producers(reply.packed)
            if not lives:
                return None
            found.update((one.producer_id, one) for one in some)
            if place == _BEGINNING:
                return [found[producer_id] for producer_id in sorted(found)]

    async def forget_producers(self, logs: Sequence[tuple[bytes, int]]) -> int:
        limits = packing.pack_forget_limits(MAX_PRODUCERS_PER_CALL, self._producer_id_expiration_ms)
        by_shard: dict[int, dict[bytes, int]] = {}
        for topic_id, partition in logs:
            key = partition_key(topic_id, partition)
            by_shard.setdefault(shard_of(key, self._settings.shards), {})[key] = 0
        forgotten = 0
        for left in by_shard.values():
            while left:
                # One call at a time: the store runs all calls of a pipeline before it serves another client.
                keys = list(islice(left, MAX_ITEMS_PER_CALL))
                packed = [packing.pack_forget(key, left[key]) for key in keys]
                replies = await self._run("forget_producers", keys, packed, limits)
                progress = merge(keys, replies, lambda reply, _: packing.unpack_forgotten(reply))
                for key, (more, next_id, count) in zip(keys, progress, strict=True):
                    forgotten += count
                    if more:
                        left[key] = next_id
                    else:
                        del left[key]
        return forgotten

    async def pack_rows(self, logs: Sequence[tuple[bytes, int]], older_than_ms: int) -> None:
        """Pack MOST_ROWS_PER_PACK neighbours into one member of the index, in a quarter of the memory.

        Fewer than FEWEST_ROWS_PER_PACK old rows of a log may be left.
        """
        limits = packing.pack_packing_limits(
            MAX_ROWS_PER_PACK_CALL, older_than_ms, FEWEST_ROWS_PER_PACK, MOST_ROWS_PER_PACK
        )
        keys = [partition_key(topic_id, partition) for topic_id, partition in logs]
        while keys:
            keys = to_pack_again(keys, await self._run("pack", keys, keys, limits))

    async def index_sizes(self) -> list[IndexSize]:
        return [packing.unpack_index_size(reply) for reply in await self._run_everywhere("index_size")]

    async def announcements(self) -> AsyncIterator[Announcement | None]:
        channels = [announcement_channel(shard) for shard in range(self._settings.shards)]
        idle_s = self._settings.timeout_ms / 1000
        async with aclosing(subscription.messages(self._client, channels, idle_s=idle_s)) as messages:
            async for message in messages:
                if message is None:
                    yield None
                    continue
                self._calls.heard(message)
                for announcement in packing.unpack_announcements(message):
                    yield announcement

    async def _run(self, name: str, keys: Sequence[bytes], packed: Sequence[bytes], *arguments: bytes) -> list[Reply]:
        """See `ShardCalls.run`. Raises ShardFenced if a shard of `keys` is fenced."""
        return self._calls.certain(name, keys, await self._calls.run(name, keys, packed, *arguments))

    async def _run_everywhere(self, name: str, *arguments: bytes) -> list[bytes]:
        """See `ShardCalls.run_everywhere`."""
        return await self._calls.run_everywhere(name, *arguments)
