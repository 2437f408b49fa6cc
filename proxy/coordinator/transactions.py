"""The part of the coordinator for transactions, on a Redis-compatible store."""

from __future__ import annotations

from collections.abc import Sequence

from proxy.coordinator import packing_transactions
from proxy.coordinator.interface_transactions import (
    EnlistAnswer,
    Enlistment,
    MarkersApplied,
    MarkersRead,
    OpenTransaction,
    ShadowPosition,
)
from proxy.coordinator.shard_calls import ShardCalls, merge
from proxy.coordinator.shards import partition_key

_PART_WEIGHT = 4
"""Cost of a partition for the store, in markers."""
_OPEN_PER_CALL = 500


class RedisTransactions:
    """Implements `interface_transactions.TransactionCoordinator`, which documents the methods."""

    def __init__(self, calls: ShardCalls, *, producer_id_expiration_ms: int) -> None:
        self._calls = calls
        self._expiry = packing_transactions.pack_milliseconds(producer_id_expiration_ms)

    async def enlist(self, enlistments: Sequence[Enlistment]) -> list[EnlistAnswer]:
        keys = [partition_key(one.topic_id, one.partition) for one in enlistments]
        packed = [packing_transactions.pack_enlistment(one) for one in enlistments]
        replies = self._calls.certain("enlist", keys, await self._calls.run("enlist", keys, packed))
        return merge(keys, replies, lambda reply, _: packing_transactions.unpack_enlist_answers(reply))

    async def apply_markers(self, parts: Sequence[MarkersRead]) -> list[MarkersApplied]:
        keys = [partition_key(part.topic_id, part.partition) for part in parts]
        if len(set(keys)) != len(keys):
            raise ValueError("markers of one partition are applied in one part")
        packed = [packing_transactions.pack_markers(part) for part in parts]
        weights = [_PART_WEIGHT + len(part.markers) for part in parts]
        replies = await self._calls.run("apply_markers", keys, packed, self._expiry, weights=weights)
        replies = self._calls.certain("apply_markers", keys, replies)
        return merge(keys, replies, lambda reply, _: packing_transactions.unpack_applied(reply))

    async def positions(self, logs: Sequence[tuple[bytes, int]]) -> list[ShadowPosition | None]:
        keys = [partition_key(topic_id, partition) for topic_id, partition in logs]
        replies = self._calls.certain("shadow_positions", keys, await self._calls.run("shadow_positions", keys, keys))
        return merge(keys, replies, lambda reply, _: packing_transactions.unpack_positions(reply))

    async def followed(self, for_ms: int, shards: Sequence[int] | None = None) -> list[tuple[bytes, int]]:
        packed = packing_transactions.pack_milliseconds(for_ms)
        replies = await self._calls.run_everywhere("followed", packed, shards=shards)
        return [log for reply in replies for log in packing_transactions.unpack_followed(reply)]

    async def open_transactions(self, shards: Sequence[int] | None = None) -> list[OpenTransaction]:
        found: list[OpenTransaction] = []
        left = dict.fromkeys(range(self._calls.shards) if shards is None else shards, b"")
        while left:
            calls = [
                (shard, (packing_transactions.pack_open_page(_OPEN_PER_CALL, place),)) for shard, place in left.items()
            ]
            replies = await self._calls.call("open_transactions", calls)
            for shard, reply in zip(list(left), replies, strict=True):
                reply = self._calls.must_answer("open_transactions", shard, reply)
                page, left[shard] = packing_transactions.unpack_open_page(reply)
                found += page
            left = {shard: place for shard, place in left.items() if place}
        return found
