"""The coordinator on a Redis-compatible store. What is decided is decided in `lua/`; here calls are cut and merged."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from contextlib import aclosing
from typing import NamedTuple, TypeVar

from redis.asyncio import Redis

from proxy import config
from proxy.coordinator import packing, scripts, subscription
from proxy.coordinator.fence import Fence
from proxy.coordinator.interface import (
    MAX_TIMESTAMP,
    Announcement,
    DeleteRequest,
    FindRequest,
    ListRequest,
    LogAnswer,
    LogDescription,
    LogStart,
    OffsetAnswer,
    PartitionRun,
    RetainRequest,
    RunAnswer,
)
from proxy.coordinator.shards import announcement_channel, partition_key, shard_of, shard_prefix
from proxy.errors import OFFSET_OUT_OF_RANGE

MAX_ITEMS_PER_CALL = 200
"""Partition runs, or other requests, of one script call: the store serves nobody else meanwhile."""
MAX_BATCHES_PER_CALL = 500
"""A partition run with more goes in a call of its own; it can't be cut, being what idempotence goes by."""
MAX_ROWS_PER_FIND = 500
MAX_ROWS_PER_FIND_CALL = 2_000
MAX_ROWS_PER_DELETE_CALL = 500
MAX_SEGMENTS_PER_CALL = 200
_SEARCH = -2
"""In the place of an error code of `list_offsets.lua`: go on from there, row by row."""

Item = TypeVar("Item")
Answer = TypeVar("Answer")


class RedisCoordinator:
    """`interface.Coordinator` on the shared client of `connect.py`, which stays the caller's to close.

    `producer_id_expiration_ms` counts from a producer's last append to the partition, by the store's clock (brokers
    count from the timestamp in it, which is the producer's). `producer_batches_remembered`: per producer and partition.
    """

    def __init__(
        self, client: Redis, settings: config.Redis, *, producer_id_expiration_ms: int, producer_batches_remembered: int
    ) -> None:
        self.bytes_sent = 0
        """Payload of script calls so far."""
        self.bytes_received = 0
        """Payload of their replies, and of announcements."""
        self._client = client
        self._settings = settings
        self._producer_id_expiration_ms = producer_id_expiration_ms
        self._producer_batches_remembered = producer_batches_remembered
        self._fence = Fence()
        self._shard_header = packing.pack_shard_header(os.urandom(8), settings.shards)

    async def create_logs(self, topic_id: bytes, partitions: Sequence[int]) -> None:
        """Let logs live, empty. Those that live already are left as they are."""
        keys = [partition_key(topic_id, partition) for partition in partitions]
        while keys:
            keys = _left_over(await self._run("create_logs", keys, keys))
            await self._delete(keys, goes_on=True)

    async def delete_logs(self, topic_id: bytes, partitions: Sequence[int]) -> None:
        """End logs, a bounded number of rows per call; they are dead from the first call on.

        A deletion that was broken off is ended by another.
        """
        await self._delete([partition_key(topic_id, partition) for partition in partitions], goes_on=False)

    async def _delete(self, keys: list[bytes], *, goes_on: bool) -> None:
        while keys:
            limits = packing.pack_delete_limits(MAX_ROWS_PER_DELETE_CALL, goes_on=goes_on)
            keys = _left_over(await self._run("delete_logs", keys, keys, limits))
            goes_on = True

    async def commit(self, segment: bytes, runs: Sequence[PartitionRun]) -> list[RunAnswer]:
        """Order the batches of an uploaded segment; answers in the order of `runs`.

        Where this raises, none, some or all of the runs may have taken effect; a retry, with the same runs or with
        fewer, gets the answers of those that have (for an hour).

        The producer rules are those of Kafka 4.x (`ProducerAppendInfo`, `ProducerStateEntry`) with KAFKA-15591: a
        producer of which a log knows nothing may start at any sequence, but at 0 in a log that never held a record.

        Raises ValueError where two runs are of one partition, or a number is out of a checked batch's range.
        """
        keys = [partition_key(run.topic_id, run.partition) for run in runs]
        if len(segment) != 16 or len(set(keys)) != len(keys):
            raise ValueError("a segment has a name of 16 bytes, and at most one run per partition")
        settings = packing.pack_commit_settings(
            self._producer_batches_remembered, self._producer_id_expiration_ms, segment
        )
        packed = [packing.pack_run(run) for run in runs]
        replies = await self._run("commit", keys, packed, settings, weights=[len(run.batches) for run in runs])
        return _merge(runs, replies, packing.unpack_run_answers)

    async def find(self, requests: Sequence[FindRequest]) -> list[LogAnswer]:
        """Where to read, and the true log start offset and high watermark.

        At most MAX_ROWS_PER_FIND rows of a partition, and fewer of each where many partitions have many: whoever needs
        more asks again, from the offset behind the last row.
        """
        keys = [partition_key(request.topic_id, request.partition) for request in requests]
        limits = packing.pack_find_limits(MAX_ROWS_PER_FIND, MAX_ROWS_PER_FIND_CALL)
        replies = await self._run("find", keys, [packing.pack_find(request) for request in requests], limits)
        return _merge(requests, replies, lambda reply, _: packing.unpack_log_answers(reply))

    async def list_offsets(self, requests: Sequence[ListRequest]) -> list[OffsetAnswer]:
        """Offsets by timestamp.

        By time, and for MAX_TIMESTAMP, as fine as the index's rows for now, not as records: base offset and maximum
        timestamp of the first row whose maximum timestamp is the one asked for or later. So no record of that time or
        later lies before the offset, but older ones may lie behind it.
        """
        keys = [partition_key(request.topic_id, request.partition) for request in requests]
        replies = await self._run("list_offsets", keys, [packing.pack_list(request) for request in requests])
        answers = _merge(requests, replies, lambda reply, _: packing.unpack_offset_answers(reply))
        return [
            await self._search(request, answer.offset) if answer.error_code == _SEARCH else answer
            for request, answer in zip(requests, answers, strict=True)
        ]

    async def _search(self, request: ListRequest, offset: int) -> OffsetAnswer:
        """Look at every row from `offset` on; for timestamps that only rows before the log start had been ahead of."""
        best = OffsetAnswer(0, -1, -1)
        while True:
            (answer,) = await self.find([FindRequest(request.topic_id, request.partition, offset, packing.MAX_EXACT)])
            if answer.error_code == OFFSET_OUT_OF_RANGE and answer.log_start_offset > offset:
                offset = answer.log_start_offset
                continue
            for row in answer.rows:
                found = OffsetAnswer(0, max(row.base_offset, answer.log_start_offset), row.max_timestamp_ms)
                if request.timestamp_ms == MAX_TIMESTAMP:
                    best = max(best, found, key=lambda one: one.timestamp_ms)
                elif row.max_timestamp_ms >= request.timestamp_ms:
                    return found
            if answer.error_code or not answer.rows:
                return best._replace(error_code=answer.error_code)
            offset = answer.rows[-1].last_offset + 1

    async def delete_records(self, requests: Sequence[DeleteRequest]) -> list[LogStart]:
        """Raise log starts, at once and for all readers; rows wholly before them are freed, some per call.

        Where this raises, the log starts may have moved, and rows before them may be left: the next call frees them.
        """
        return await self._trim(requests, [packing.pack_delete(request) for request in requests])

    async def retain(self, requests: Sequence[RetainRequest]) -> list[LogStart]:
        """Free rows, from the oldest on, that retention by time or by size lets go; the log start follows them."""
        return await self._trim(requests, [packing.pack_retain(request) for request in requests])

    async def _trim(
        self, requests: Sequence[DeleteRequest] | Sequence[RetainRequest], packed: list[bytes]
    ) -> list[LogStart]:
        keys = [partition_key(request.topic_id, request.partition) for request in requests]
        limits = packing.pack_trim_limits(MAX_ROWS_PER_DELETE_CALL)
        answers: dict[int, LogStart] = {}
        left = list(range(len(keys)))
        while left:
            replies = await self._run("trim", [keys[item] for item in left], [packed[item] for item in left], limits)
            told = _merge(left, replies, lambda reply, _: packing.unpack_log_starts(reply))
            answers.update({item: answer for item, (answer, _) in zip(left, told, strict=True)})
            left = [item for item, (_, more) in zip(left, told, strict=True) if more]
            for item in left:
                request = requests[item]
                if isinstance(request, DeleteRequest):
                    # The high watermark is that of the first call: what is appended meanwhile is not to be deleted.
                    packed[item] = packing.pack_delete(request._replace(before_offset=answers[item].log_start_offset))
        return [answers[item] for item in range(len(keys))]

    async def used(self, segments: Sequence[bytes]) -> list[bool]:
        """Whether any row of any shard uses each of the segments."""
        used: list[bool] = []
        for start in range(0, len(segments), MAX_SEGMENTS_PER_CALL):
            replies = await self._run_everywhere("use", b"".join(segments[start : start + MAX_SEGMENTS_PER_CALL]))
            used += [any(flags) for flags in zip(*map(packing.unpack_flags, replies), strict=True)]
        return used

    async def garbage(self, older_than_ms: int, limit: int) -> list[bytes]:
        """Segments that had rows and have lost their last one somewhere, at least so long ago; at most `limit` of each
        shard, the oldest first. Another shard may use them still."""
        age = packing.pack_age(older_than_ms, limit)
        replies = await self._run_everywhere("garbage", b"garbage", age)
        return list(dict.fromkeys(segment for reply in replies for segment in packing.unpack_segments(reply)))

    async def tombstone(self, segments: Sequence[bytes]) -> list[bytes]:
        """Those of the segments that no row of any shard uses: from now on no commit of them is accepted.

        The others are no garbage any more; they come back to it when their last use ends.
        """
        unused: list[bytes] = []
        for start in range(0, len(segments), MAX_SEGMENTS_PER_CALL):
            some = segments[start : start + MAX_SEGMENTS_PER_CALL]
            replies = await self._run_everywhere("tombstone", b"".join(some))
            told = list(zip(*map(packing.unpack_flags, replies), strict=True))
            used = [segment for segment, flags in zip(some, told, strict=True) if not all(flags)]
            await self.release(used)
            unused += [segment for segment, flags in zip(some, told, strict=True) if all(flags)]
        return unused

    async def tombstoned(self, older_than_ms: int, limit: int) -> list[bytes]:
        """Segments that have been tombstoned in every shard for at least so long; their objects may be deleted.

        Those that are tombstoned in some shards only, as whoever began it died, are tombstoned (or released) anew.
        """
        age = packing.pack_age(older_than_ms, limit)
        replies = await self._run_everywhere("garbage", b"tombstones", age)
        found = [set(packing.unpack_segments(reply)) for reply in replies]
        everywhere = set.intersection(*found)
        if halves := set.union(*found) - everywhere:
            await self.tombstone(sorted(halves))
        return sorted(everywhere)

    async def release(self, segments: Sequence[bytes]) -> None:
        """Forget the tombstones of segments whose objects are deleted, or are used after all."""
        for start in range(0, len(segments), MAX_SEGMENTS_PER_CALL):
            await self._run_everywhere("release", b"".join(segments[start : start + MAX_SEGMENTS_PER_CALL]))

    async def describe(self, topic_id: bytes, partitions: Sequence[int]) -> list[LogDescription | None]:
        """Figures per partition; None where the log does not live."""
        keys = [partition_key(topic_id, partition) for partition in partitions]
        return _merge(
            keys, await self._run("describe", keys, keys), lambda reply, _: packing.unpack_descriptions(reply)
        )

    async def announcements(self) -> AsyncIterator[Announcement | None]:
        """Commits of all proxies as they are confirmed, for ever; None on connecting, and after each reconnect."""
        channels = [announcement_channel(shard) for shard in range(self._settings.shards)]
        idle_s = self._settings.timeout_ms / 1000
        async with aclosing(subscription.messages(self._client, channels, idle_s=idle_s)) as messages:
            async for message in messages:
                if message is None:
                    yield None
                    continue
                self.bytes_received += len(message)
                for announcement in packing.unpack_announcements(message):
                    yield announcement

    async def _run(
        self,
        name: str,
        keys: Sequence[bytes],
        packed: Sequence[bytes],
        *arguments: bytes,
        weights: Sequence[int] | None = None,
    ) -> list[_Reply]:
        """Run a script on each shard that has some of `keys`, with the `packed` items of those."""
        cuts = _cut(keys, weights or [1] * len(keys), self._settings.shards)
        calls = [(cut.shard, (b"".join([packed[item] for item in cut.items]), *arguments)) for cut in cuts]
        replies = await self._call(name, calls)
        return [_Reply(cut.items, reply) for cut, reply in zip(cuts, replies, strict=True)]

    async def _run_everywhere(self, name: str, *arguments: bytes) -> list[bytes]:
        """Run a script on every shard; their replies in order."""
        return await self._call(name, [(shard, arguments) for shard in range(self._settings.shards)])

    async def _call(self, name: str, calls: Sequence[tuple[int, tuple[bytes, ...]]]) -> list[bytes]:
        """Run a script with arguments on shards, and see that none of these went back."""
        known = {shard: self._fence.before(shard) for shard, _ in calls}
        packed = []
        for shard, arguments in calls:
            sent = (self._shard_header, *arguments)
            self.bytes_sent += sum(map(len, sent))
            packed.append(scripts.Call(shard_prefix(shard), sent))
        replies: list[bytes] = await scripts.run_all(self._client, name, packed)
        self.bytes_received += sum(map(len, replies))
        for (shard, _), reply in zip(calls, replies, strict=True):
            self._fence.after(shard, known[shard], packing.unpack_shard_state(reply))
        return replies


class _Cut(NamedTuple):
    """What one call is for: positions in the sequence of items, all of one shard."""

    shard: int
    items: list[int]


class _Reply(NamedTuple):
    items: list[int]
    packed: bytes


def _cut(keys: Sequence[bytes], weights: Sequence[int], shards: int) -> list[_Cut]:
    """Group items by shard, and each group into calls of bounded length and weight (batches, for a commit)."""
    cuts: list[_Cut] = []
    open_cuts: dict[int, _Cut] = {}
    open_weights: dict[int, int] = {}
    for item, (key, weight) in enumerate(zip(keys, weights, strict=True)):
        shard = shard_of(key, shards)
        cut = open_cuts.get(shard)
        if cut is None or len(cut.items) == MAX_ITEMS_PER_CALL or open_weights[shard] + weight > MAX_BATCHES_PER_CALL:
            cut = open_cuts[shard] = _Cut(shard, [])
            open_weights[shard] = 0
            cuts.append(cut)
        cut.items.append(item)
        open_weights[shard] += weight
    return cuts


def _merge(
    items: Sequence[Item], replies: list[_Reply], unpack: Callable[[bytes, list[Item]], Iterable[Answer]]
) -> list[Answer]:
    """The answers of all replies, in the order of `items`."""
    answers: dict[int, Answer] = {}
    for reply in replies:
        unpacked = unpack(reply.packed, [items[item] for item in reply.items])
        answers.update(zip(reply.items, unpacked, strict=True))
    return [answers[item] for item in range(len(items))]


def _left_over(replies: list[_Reply]) -> list[bytes]:
    return [key for reply in replies for key in packing.unpack_partition_keys(reply.packed)]
