"""The coordinator on a Redis-compatible store. What is decided is decided in `lua/`; here calls are cut and merged."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import aclosing
from itertools import islice

import structlog
from redis.asyncio import Redis

from proxy import config
from proxy.coordinator import packing, subscription
from proxy.coordinator.clock import running_ms
from proxy.coordinator.fence import Fence
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
from proxy.coordinator.packing import ShardLook, ShardState, Unfenced
from proxy.coordinator.rewriting import IndexRewriting
from proxy.coordinator.shard_calls import MAX_ITEMS_PER_CALL, Refused, Reply, ShardCalls, merge
from proxy.coordinator.shards import announcement_channel, partition_key, shard_of
from proxy.protocol.errors import KAFKA_STORAGE_ERROR, REQUEST_TIMED_OUT

log = structlog.get_logger()

MAX_ROWS_PER_FIND = 500
MAX_ROWS_PER_FIND_CALL = 2_000
MAX_ROWS_PER_DELETE_CALL = 500
MAX_SEGMENTS_PER_CALL = 200
MAX_ROWS_PER_PACK_CALL = 256
FEWEST_ROWS_PER_PACK = 32
MOST_ROWS_PER_PACK = 64
_RUN_WEIGHT = 4
"""A partition run costs the store as much as so many further batches in one."""
MAX_PRODUCERS_PER_CALL = 500
_BEGINNING = b"0"
"""Of a scan, and what a scan answers at its end."""


class RedisCoordinator(IndexRewriting):
    """`interface.Coordinator` on the shared client of `connect.py`, which stays the caller's to close.

    `producer_id_expiration_ms` counts from a producer's last append to the partition, by the store's clock (brokers
    count from the timestamp in it, which is the producer's). `producer_batches_remembered`: per producer and partition.
    """

    def __init__(
        self, client: Redis, settings: config.Redis, *, producer_id_expiration_ms: int, producer_batches_remembered: int
    ) -> None:
        super().__init__(ShardCalls(client, settings), settings)
        self._client = client
        self._producer_id_expiration_ms = producer_id_expiration_ms
        self._producer_batches_remembered = producer_batches_remembered
        self._long_lookups = asyncio.Lock()
        """Held for one call of a lookup by time that needs many."""
        self._store_ahead_ms: int | None = None
        """Of `running_ms`."""

    @property
    def fence(self) -> Fence:
        """What is known of each shard, and which are fenced."""
        return self._calls.fence

    def refuse_writes(self, why: str | None) -> None:
        """Refuse whatever writes, as long as the store can't be trusted with it; None ends that."""
        self._calls.unfit = why

    def refuse_all(self, why: str | None) -> None:
        """Refuse reads, too, as long as what the store has are not our records, or are not understood; None ends it."""
        self._calls.closed = why

    @property
    def command_rejected(self) -> bool:
        """Whether the store has rejected a command of a script since `commands_tried`."""
        return self._calls.command_rejected

    def commands_tried(self) -> None:
        """Note that the store lets its user run every command."""
        self._calls.command_rejected = False

    def expect_identity(self, identity: str) -> None:
        """What the store is called (32 hex digits): what is known here is not held against any other one."""
        self._calls.identity = bytes.fromhex(identity)

    def store_time_ms(self) -> int | None:
        """Milliseconds since 1970 by the store's clock, from its last answer to `touch` or `look` on; else None."""
        return None if self._store_ahead_ms is None else self._store_ahead_ms + running_ms()

    @property
    def bytes_sent(self) -> int:
        """Payload of script calls so far."""
        return self._calls.bytes_sent

    @property
    def bytes_received(self) -> int:
        """Payload of their replies, and of announcements."""
        return self._calls.bytes_received

    async def create_logs(self, topic_id: bytes, partitions: Sequence[int], *, growing: bool = False) -> None:
        """Let logs live, empty, at 0 or behind all that was lost. Those that live already are left as they are."""
        keys = [partition_key(topic_id, partition) for partition in partitions]
        while keys:
            keys = _left_over(await self._run("create_logs", keys, keys, b"\1" if growing else b"\0"))
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

    async def commit(self, segment: bytes, runs: Sequence[PartitionRun], *, not_after_ms: int = 0) -> list[RunAnswer]:
        """Order the batches of an uploaded segment; answers in the order of `runs`.

        Each shard answers for itself. The runs of a shard that failed have REQUEST_TIMED_OUT: nobody knows whether they
        took effect. If no shard answers, this raises, and nobody knows of any run. A retry, with the same runs or with
        fewer, gets the answers of those that have taken effect (for an hour).

        `not_after_ms`: by the store's clock (`store_time_ms`); later the runs are refused, as are those of a fenced
        shard, with KAFKA_STORAGE_ERROR. 0 for no limit.

        The producer rules are those of Kafka 4.x (`ProducerAppendInfo`, `ProducerStateEntry`) with KAFKA-15591: a
        producer of which a log knows nothing may start at any sequence, but at 0 in a log that never held a record.

        Raises ValueError where two runs are of one partition, or a number is out of a checked batch's range.
        """
        keys = [partition_key(run.topic_id, run.partition) for run in runs]
        if len(segment) != 16 or len(set(keys)) != len(keys):
            raise ValueError("a segment has a name of 16 bytes, and at most one run per partition")
        settings = packing.pack_commit_settings(
            self._producer_batches_remembered,
            self._producer_id_expiration_ms,
            segment,
            self._settings.max_index_bytes,
        )
        packed = [packing.pack_run(run) for run in runs]
        weights = [_RUN_WEIGHT + len(run.batches) for run in runs]
        replies = await self._calls.run(
            "commit", keys, packed, settings, weights=weights, not_after_ms=not_after_ms, keep_failures=True
        )
        failures = [reply.failure for reply in replies if reply.failure is not None]
        if failures and len(failures) == len(replies):
            raise failures[0]
        for reason in dict.fromkeys(map(str, failures)):
            log.warning("commit_failed_in_part", reason=reason, remedy="none: it is tried again; see the reason")
        return merge(runs, replies, packing.unpack_run_answers, _refused_run, _failed_run)

    async def find(self, requests: Sequence[FindRequest]) -> list[LogAnswer]:
        """Where to read, and the true log start offset and high watermark.

        At most MAX_ROWS_PER_FIND rows of a partition, and fewer of each where many partitions have many: whoever needs
        more asks again, from the offset behind the last row.
        """
        keys = [partition_key(request.topic_id, request.partition) for request in requests]
        limits = packing.pack_find_limits(MAX_ROWS_PER_FIND, MAX_ROWS_PER_FIND_CALL)
        replies = await self._calls.run("find", keys, [packing.pack_find(request) for request in requests], limits)
        return merge(
            requests,
            replies,
            lambda reply, _: packing.unpack_log_answers(reply),
            lambda _: LogAnswer(KAFKA_STORAGE_ERROR, (), -1, -1),
        )

    async def list_offsets(self, requests: Sequence[ListRequest]) -> list[OffsetAnswer]:
        """Offsets by timestamp.

        By time, and for MAX_TIMESTAMP, as fine as rows, not as records: the first offset that can be read of the first
        row whose maximum timestamp is the one asked for or later (or the highest), and that maximum.

        If a row with a later time was trimmed, rows are looked at one by one, some per call. All such lookups take
        turns, and rest as long as they work, so that the store serves others meanwhile.
        """
        left = dict(enumerate(requests))
        answers: dict[int, OffsetAnswer] = {}
        while left:
            if answers:
                async with self._long_lookups:
                    began_s = asyncio.get_running_loop().time()
                    told = await self._list(left)
                    await asyncio.sleep(asyncio.get_running_loop().time() - began_s)
            else:
                told = await self._list(left)
            asked, left = left, {}
            for (item, request), (answer, again_from) in zip(asked.items(), told, strict=True):
                known = answers.get(item)
                if known is None or answer.error_code or _is_later(answer, known):
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
            lambda _: (OffsetAnswer(KAFKA_STORAGE_ERROR, -1, -1), -1),
        )

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
            told = merge(
                left,
                await self._calls.run("trim", [keys[item] for item in left], [packed[item] for item in left], limits),
                lambda reply, _: packing.unpack_log_starts(reply),
                lambda _: (LogStart(KAFKA_STORAGE_ERROR, -1), False),
            )
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

    async def segment_use(self, segments: Sequence[bytes]) -> list[SegmentUse]:
        """How much of each of the segments the rows of all shards use."""
        use: list[SegmentUse] = []
        for start in range(0, len(segments), MAX_SEGMENTS_PER_CALL):
            some = b"".join(segments[start : start + MAX_SEGMENTS_PER_CALL])
            replies = await self._run_everywhere("segment_use", some)
            use += [
                SegmentUse(sum(one.size_bytes for one in uses), sum(one.rows for one in uses))
                for uses in zip(*map(packing.unpack_segment_use, replies), strict=True)
            ]
        return use

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
        return merge(keys, await self._run("describe", keys, keys), lambda reply, _: packing.unpack_descriptions(reply))

    async def producers(self, topic_id: bytes, partition: int) -> list[ProducerDescription] | None:
        """Idempotent producers that have not expired, by ID; None where the log does not live.

        As they were at some moment of the calls that this takes, each for itself.
        """
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
        """Drop the state of producers that have expired in these logs, a bounded number per call; of how many."""
        limits = packing.pack_forget_limits(MAX_PRODUCERS_PER_CALL, self._producer_id_expiration_ms)
        by_shard: dict[int, dict[bytes, int]] = {}
        for topic_id, partition in logs:
            key = partition_key(topic_id, partition)
            by_shard.setdefault(shard_of(key, self._settings.shards), {})[key] = 0
        forgotten = 0
        for left in by_shard.values():
            while left:
                # One call at a time: those of a pipeline run one after another before anybody else is served.
                keys = list(islice(left, MAX_ITEMS_PER_CALL))
                packed = [packing.pack_forget(key, left[key]) for key in keys]
                replies = await self._run("forget_producers", keys, packed, limits)
                told = merge(keys, replies, lambda reply, _: packing.unpack_forgotten(reply))
                for key, (more, cursor, count) in zip(keys, told, strict=True):
                    forgotten += count
                    if more:
                        left[key] = cursor
                    else:
                        del left[key]
        return forgotten

    async def pack_rows(self, logs: Sequence[tuple[bytes, int]], older_than_ms: int) -> None:
        """Keep rows that old in a quarter of the memory: MOST_ROWS_PER_PACK of neighbours in one member of the index.

        No answer of any other call changes. What is left are fewer than FEWEST_ROWS_PER_PACK old rows of a log.
        """
        limits = packing.pack_packing_limits(
            MAX_ROWS_PER_PACK_CALL, older_than_ms, FEWEST_ROWS_PER_PACK, MOST_ROWS_PER_PACK
        )
        keys = [partition_key(topic_id, partition) for topic_id, partition in logs]
        while keys:
            replies = await self._run("pack", keys, keys, limits)
            more = merge(keys, replies, lambda reply, _: packing.unpack_flags(reply))
            keys = [key for key, again in zip(keys, more, strict=True) if again]

    async def index_sizes(self) -> list[IndexSize]:
        """How many rows the indexes of each shard have, and the memory that they take."""
        return [packing.unpack_index_size(reply) for reply in await self._run_everywhere("index_size")]

    async def look(self, known: Mapping[int, ShardState] | None = None) -> list[ShardLook]:
        """What each shard says of itself, fenced or not; nothing is changed by it.

        `known`: what is held against it, by shard; what this process knows where None.
        """
        sent_ms = running_ms()
        told = await self._calls.call("state", [(shard, ()) for shard in range(self._settings.shards)], known=known)
        looks = [packing.unpack_look(self._calls.must_answer("state", shard, one)) for shard, one in enumerate(told)]
        self._note_times(looks, sent_ms)
        return looks

    async def touch(self, shards: Sequence[int]) -> None:
        """Hold what this process knows against these shards: `fence` then tells which of them are fenced, for all."""
        sent_ms = running_ms()
        told = await self._calls.call("touch", [(shard, ()) for shard in shards])
        self._note_times([packing.unpack_look(one) for one in told if isinstance(one, bytes)], sent_ms)

    async def missing(self, states: Mapping[int, ShardState]) -> set[int]:
        """Hold states that others knew against their shards, as `touch` does; those that may not have them."""
        told = await self._calls.call("touch", [(shard, ()) for shard in states], known=states)
        return {shard for shard, reply in zip(states, told, strict=True) if isinstance(reply, Refused)}

    def _note_times(self, looks: Sequence[ShardLook], sent_ms: int) -> None:
        if looks:
            # As of before the call: an estimate that is too low refuses a commit early rather than late.
            self._store_ahead_ms = min(look.time_ms for look in looks) - max(running_ms(), sent_ms)

    async def unfence(self, shard: int, gap: int, logs: Sequence[tuple[bytes, int]]) -> Unfenced:
        """Give up what a shard has lost, and let it go on; all proxies take it up by themselves.

        The loss is all that proxies have reported, and what this process knows. `gap`: offsets that may have been given
        beyond what anybody knows. `logs`: those that are to live in it (topic ID, partition).
        """
        keys = b"".join(partition_key(topic_id, partition) for topic_id, partition in logs)
        (reply,) = await self._calls.call("unfence", [(shard, (gap.to_bytes(8, "big"), keys))])
        return packing.unpack_unfenced(self._calls.must_answer("unfence", shard, reply))

    async def announcements(self) -> AsyncIterator[Announcement | None]:
        """Commits of all proxies as they are confirmed, for ever; None on connecting, and after each reconnect."""
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
        """As `ShardCalls.run`. Raises ShardFenced where a shard is that one of `keys` is on."""
        return self._calls.certain(name, keys, await self._calls.run(name, keys, packed, *arguments))

    async def _run_everywhere(self, name: str, *arguments: bytes) -> list[bytes]:
        """As `ShardCalls.run_everywhere`."""
        return await self._calls.run_everywhere(name, *arguments)


def _refused_run(run: PartitionRun) -> RunAnswer:
    return RunAnswer(run.topic_id, run.partition, KAFKA_STORAGE_ERROR, (), -1, -1)


def _is_later(answer: OffsetAnswer, known: OffsetAnswer) -> bool:
    """Whether it tells of a later timestamp, or of one at all."""
    return answer.offset >= 0 and (known.offset < 0 or answer.timestamp_ms > known.timestamp_ms)


def _left_over(replies: list[Reply]) -> list[bytes]:
    return [key for reply in replies for key in packing.unpack_partition_keys(reply.packed)]


def _failed_run(run: PartitionRun) -> RunAnswer:
    return RunAnswer(run.topic_id, run.partition, REQUEST_TIMED_OUT, (), -1, -1)
