"""The part of the coordinator for jobs over object storage, on a Redis-compatible store.

Jobs swap rows, read indexes and the use of segments, and correct them. Proxies do not call it.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

from proxy import config
from proxy.coordinator import packing, packing_rewriting
from proxy.coordinator.carrying import Refused
from proxy.coordinator.interface import SegmentUse
from proxy.coordinator.interface_rewriting import MAX_ENDED_PER_SWAP, MAX_ROWS_PER_SWAP, IndexPage, Swap, SwapAnswer
from proxy.coordinator.shard_calls import MAX_BATCHES_PER_CALL, MAX_ITEMS_PER_CALL, ShardCalls, merge
from proxy.coordinator.shards import partition_key, shard_of

MAX_ROWS_PER_PAGE = 500
MAX_SEGMENTS_PER_SCAN = 500
_SWAP_WEIGHT = 4
"""Cost of a swap for the store, in rows."""


class IndexRewriting:
    """Implements `interface_rewriting.RewritingCoordinator`, which documents the methods."""

    def __init__(self, calls: ShardCalls, settings: config.Redis) -> None:
        self._calls = calls
        self._settings = settings

    async def replace(self, swaps: Sequence[Swap], *, not_after_ms: int = 0) -> list[SwapAnswer]:
        for swap in swaps:
            _check(swap)
        answers: dict[int, SwapAnswer] = {}
        left = list(range(len(swaps)))
        while left:
            # One call for each shard at a time: the store may run two concurrent calls in another order, as one may be
            # put off.
            now, left = self._cut(swaps, left)
            keys = [partition_key(swaps[place].topic_id, swaps[place].partition) for place in now]
            packed = [packing_rewriting.pack_swap(swaps[place]) for place in now]
            replies = await self._calls.run("replace", keys, packed, not_after_ms=not_after_ms)
            self._calls.certain("replace", keys, [reply for reply in replies if reply.refused is not Refused.LATE])
            outcomes = merge(
                now,
                replies,
                lambda reply, _: packing_rewriting.unpack_swap_answers(reply),
                lambda _, __: SwapAnswer.LATE,
            )
            answers.update(zip(now, outcomes, strict=True))
        return [answers[place] for place in range(len(swaps))]

    def _cut(self, swaps: Sequence[Swap], places: Sequence[int]) -> tuple[list[int], list[int]]:
        """Return the first swaps of each shard, as many as one call for the shard may do; and the other swaps."""
        now: list[int] = []
        later: list[int] = []
        counts: dict[int, int] = {}
        weights: dict[int, int] = {}
        full: set[int] = set()
        for place in places:
            swap = swaps[place]
            shard = shard_of(partition_key(swap.topic_id, swap.partition), self._settings.shards)
            count, weight = counts.get(shard, 0), weights.get(shard, 0) + _SWAP_WEIGHT + len(swap.old) + len(swap.ended)
            if shard in full or (count and (count == MAX_ITEMS_PER_CALL or weight > MAX_BATCHES_PER_CALL)):
                full.add(shard)
                later.append(place)
            else:
                counts[shard], weights[shard] = count + 1, weight
                now.append(place)
        return now, later

    async def compacted(self, logs: Sequence[tuple[bytes, int]]) -> list[int]:
        keys = [partition_key(topic_id, partition) for topic_id, partition in logs]
        replies = self._calls.certain("compacted", keys, await self._calls.run("compacted", keys, keys))
        return merge(keys, replies, lambda reply, _: packing_rewriting.unpack_offsets(reply))

    async def mark_compacted(self, marks: Sequence[tuple[bytes, int, int]]) -> None:
        keys = [partition_key(topic_id, partition) for topic_id, partition, _ in marks]
        packed = [packing_rewriting.pack_mark(key, offset) for key, (_, _, offset) in zip(keys, marks, strict=True)]
        self._calls.certain("mark_compacted", keys, await self._calls.run("mark_compacted", keys, packed))

    async def index_page(self, topic_id: bytes, partition: int, from_offset: int) -> IndexPage:
        """Return about MAX_ROWS_PER_PAGE rows. Rows that are packed have the running maximum of their pack."""
        key = partition_key(topic_id, partition)
        request = packing_rewriting.pack_page(key, from_offset, MAX_ROWS_PER_PAGE)
        (reply,) = self._calls.certain("index_page", [key], await self._calls.run("index_page", [key], [request]))
        return packing_rewriting.unpack_page(reply.packed)

    async def used_segments(self, shard: int, place: bytes = b"0") -> tuple[list[tuple[bytes, SegmentUse]], bytes]:
        reply = await self._one_shard(
            "used_segments", shard, packing_rewriting.pack_place(MAX_SEGMENTS_PER_SCAN, place)
        )
        return packing_rewriting.unpack_used_segments(reply)

    async def tombstones_of(self, shard: int, limit: int) -> list[bytes]:
        (reply,) = await self._calls.call("garbage", [(shard, (b"tombstones", packing.pack_age(0, limit)))])
        return packing.unpack_segments(self._calls.must_answer("garbage", shard, reply))

    async def correct_use(self, shard: int, segment: bytes, expected: SegmentUse, counted: SegmentUse) -> bool:
        reply = await self._one_shard(
            "correct_use", shard, packing_rewriting.pack_correction(segment, expected, counted)
        )
        return packing.unpack_flags(reply) == [True]

    async def _one_shard(self, name: str, shard: int, argument: bytes) -> bytes:
        (reply,) = await self._calls.call(name, [(shard, (argument,))])
        return self._calls.must_answer(name, shard, reply)


def _check(swap: Swap) -> None:
    """Raise ValueError for a swap that would corrupt an index."""
    old, new = swap.old, swap.new
    if not 1 <= len(old) <= MAX_ROWS_PER_SWAP:
        raise ValueError(f"a swap has 1 to {MAX_ROWS_PER_SWAP} old rows, not {len(old)}")
    if any(row.last_offset >= following.base_offset for row, following in pairwise(old)):
        raise ValueError("the old rows of a swap must ascend")
    if len(swap.ended) > MAX_ENDED_PER_SWAP:
        raise ValueError(f"a swap ends at most {MAX_ENDED_PER_SWAP} transactions, not {len(swap.ended)}")
    if any(not old[0].base_offset <= offset <= old[-1].last_offset for offset in swap.ended):
        raise ValueError("the markers that a swap removes must be in its old rows")
    if new is None:
        return
    if not old[0].base_offset <= new.base_offset <= new.last_offset <= old[-1].last_offset:
        raise ValueError(
            f"a new row of offsets {new.base_offset} to {new.last_offset} can't take the place of "
            f"{old[0].base_offset} to {old[-1].last_offset}"
        )
    if new.max_timestamp_ms > max(row.max_timestamp_ms for row in old):
        raise ValueError("the maximum timestamp of a new row can't be above those of the old ones")
    if not new.offsets_in_place or new.log_append_time:
        raise ValueError("a new row must be of a merged object, whose batches have their offsets and times in place")
