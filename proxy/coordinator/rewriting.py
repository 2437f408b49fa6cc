"""What jobs over object storage ask of the coordinator: rows swapped, indexes and use looked through and set right.

The part of `RedisCoordinator` that proxies themselves have no use for.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

from proxy import config
from proxy.coordinator import packing, packing_rewriting
from proxy.coordinator.interface import SegmentUse
from proxy.coordinator.interface_rewriting import MAX_ROWS_PER_SWAP, IndexPage, Swap, SwapAnswer
from proxy.coordinator.shard_calls import MAX_BATCHES_PER_CALL, MAX_ITEMS_PER_CALL, Refused, ShardCalls, merge
from proxy.coordinator.shards import partition_key, shard_of

MAX_ROWS_PER_PAGE = 500
MAX_SEGMENTS_PER_SCAN = 500
_SWAP_WEIGHT = 4
"""A swap costs the store as much as so many further rows in one."""


class IndexRewriting:
    """`interface_rewriting.RewritingCoordinator` on the scripts' calls."""

    def __init__(self, calls: ShardCalls, settings: config.Redis) -> None:
        self._calls = calls
        self._settings = settings

    async def replace(self, swaps: Sequence[Swap], *, not_after_ms: int = 0) -> list[SwapAnswer]:
        """Put new rows in the place of old ones that are unchanged; answers in the order of `swaps`.

        `not_after_ms`: by the store's clock (`store_time_ms`); later the swaps are LATE. 0 for no limit.

        Where this raises, none, some or all of the swaps may have been done; all may be repeated. Raises ShardFenced,
        and ValueError, with nothing done, where the old rows are none, too many or not in order, or the new one is not
        within their offsets, newer than they are, or of another kind than a merge makes.
        """
        for swap in swaps:
            _check(swap)
        answers: dict[int, SwapAnswer] = {}
        left = list(range(len(swaps)))
        while left:
            # One call for each shard at a time: two that are under way may be done in another order, as one is put off.
            now, left = self._cut(swaps, left)
            keys = [partition_key(swaps[place].topic_id, swaps[place].partition) for place in now]
            packed = [packing_rewriting.pack_swap(swaps[place]) for place in now]
            replies = await self._calls.run("replace", keys, packed, not_after_ms=not_after_ms)
            self._calls.certain("replace", keys, [reply for reply in replies if reply.refused is not Refused.LATE])
            told = merge(
                now,
                replies,
                lambda reply, _: packing_rewriting.unpack_swap_answers(reply),
                lambda _: SwapAnswer.LATE,
            )
            answers.update(zip(now, told, strict=True))
        return [answers[place] for place in range(len(swaps))]

    def _cut(self, swaps: Sequence[Swap], places: Sequence[int]) -> tuple[list[int], list[int]]:
        """Those of the swaps that one call for each shard may do, the first ones of it; and the others."""
        now: list[int] = []
        later: list[int] = []
        counts: dict[int, int] = {}
        weights: dict[int, int] = {}
        full: set[int] = set()
        for place in places:
            swap = swaps[place]
            shard = shard_of(partition_key(swap.topic_id, swap.partition), self._settings.shards)
            count, weight = counts.get(shard, 0), weights.get(shard, 0) + _SWAP_WEIGHT + len(swap.old)
            if shard in full or (count and (count == MAX_ITEMS_PER_CALL or weight > MAX_BATCHES_PER_CALL)):
                full.add(shard)
                later.append(place)
            else:
                counts[shard], weights[shard] = count + 1, weight
                now.append(place)
        return now, later

    async def compacted(self, logs: Sequence[tuple[bytes, int]]) -> list[int]:
        """Up to where these logs (topic ID, partition) have been compacted: the first dirty offset; 0 where never."""
        keys = [partition_key(topic_id, partition) for topic_id, partition in logs]
        replies = self._calls.certain("compacted", keys, await self._calls.run("compacted", keys, keys))
        return merge(keys, replies, lambda reply, _: packing_rewriting.unpack_offsets(reply))

    async def mark_compacted(self, marks: Sequence[tuple[bytes, int, int]]) -> None:
        """Raise that offset: (topic ID, partition, offset), the high watermark at most. No error where no log lives."""
        keys = [partition_key(topic_id, partition) for topic_id, partition, _ in marks]
        packed = [packing_rewriting.pack_mark(key, offset) for key, (_, _, offset) in zip(keys, marks, strict=True)]
        self._calls.certain("mark_compacted", keys, await self._calls.run("mark_compacted", keys, packed))

    async def index_page(self, topic_id: bytes, partition: int, from_offset: int) -> IndexPage:
        """Rows of a log that end at `from_offset` or behind it, as the index has them, some MAX_ROWS_PER_PAGE.

        Rows that are kept packed have the running maximum of their pack.
        """
        key = partition_key(topic_id, partition)
        request = packing_rewriting.pack_page(key, from_offset, MAX_ROWS_PER_PAGE)
        (reply,) = self._calls.certain("index_page", [key], await self._calls.run("index_page", [key], [request]))
        return packing_rewriting.unpack_page(reply.packed)

    async def used_segments(self, shard: int, place: bytes = b"0") -> tuple[list[tuple[bytes, SegmentUse]], bytes]:
        """Some of the segments that one shard has in use, and the place to go on from, `b"0"` at the end.

        Each that is in use from the first call to the last comes at least once; others may.
        """
        reply = await self._one_shard(
            "used_segments", shard, packing_rewriting.pack_place(MAX_SEGMENTS_PER_SCAN, place)
        )
        return packing_rewriting.unpack_used_segments(reply)

    async def tombstones_of(self, shard: int, limit: int) -> list[bytes]:
        """Segments that are tombstoned in one shard, whatever the others say; at most so many, the oldest first."""
        (reply,) = await self._calls.call("garbage", [(shard, (b"tombstones", packing.pack_age(0, limit)))])
        return packing.unpack_segments(self._calls.must_answer("garbage", shard, reply))

    async def correct_use(self, shard: int, segment: bytes, expected: SegmentUse, counted: SegmentUse) -> bool:
        """Set what one shard says of a segment's use, if that is what was expected (zeros: nothing); whether it was.

        Without rows the segment becomes garbage of that shard; with some it is neither garbage nor tombstoned there.
        """
        reply = await self._one_shard(
            "correct_use", shard, packing_rewriting.pack_correction(segment, expected, counted)
        )
        return packing.unpack_flags(reply) == [True]

    async def _one_shard(self, name: str, shard: int, argument: bytes) -> bytes:
        (reply,) = await self._calls.call(name, [(shard, (argument,))])
        return self._calls.must_answer(name, shard, reply)


def _check(swap: Swap) -> None:
    """Raises ValueError for what would spoil an index."""
    old, new = swap.old, swap.new
    if not 1 <= len(old) <= MAX_ROWS_PER_SWAP:
        raise ValueError(f"a swap is of 1 to {MAX_ROWS_PER_SWAP} rows, not of {len(old)}")
    if any(row.last_offset >= following.base_offset for row, following in pairwise(old)):
        raise ValueError("the old rows of a swap must ascend")
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
