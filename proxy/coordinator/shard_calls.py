"""Calls of the shards' scripts: items are cut into calls by shard, and the replies are merged again.

How a call gets to its shard, and when a shard refuses it, is the carrier's part (`carrying.py`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import NamedTuple, TypeVar

from proxy import config
from proxy.coordinator.carrying import Carrier, Refused
from proxy.coordinator.interface import MAX_BATCHES_PER_RUN, CoordinatorUnavailable, ShardFenced
from proxy.coordinator.packing_state import REPLY_HEADER_BYTES, ShardState
from proxy.coordinator.shards import PARTITION_BYTES, shard_of

MAX_ITEMS_PER_CALL = 200
"""Partition runs, or other requests, of one script call: the store serves nobody else meanwhile."""
MAX_BATCHES_PER_CALL = MAX_BATCHES_PER_RUN
"""A partition run with more would go in a call of its own."""

Item = TypeVar("Item")
Answer = TypeVar("Answer")


class Reply(NamedTuple):
    """Answer to one call: the positions of its items among all items, and the packed answers to them."""

    items: list[int]
    packed: bytes
    refused: Refused | None = None
    """Then `packed` is empty."""
    failure: CoordinatorUnavailable | None = None
    """Then `packed` is empty, too, and nobody knows whether the call took effect."""


class ShardCalls:
    """Runs scripts on shards by way of a carrier."""

    def __init__(self, carrier: Carrier, settings: config.Redis) -> None:
        self._carrier = carrier
        self._settings = settings

    @property
    def shards(self) -> int:
        """Number of shards."""
        return self._settings.shards

    @property
    def bytes_sent(self) -> int:
        """Payload of calls so far."""
        return self._carrier.bytes_sent

    @property
    def bytes_received(self) -> int:
        """Payload of their replies."""
        return self._carrier.bytes_received

    async def run(
        self,
        name: str,
        keys: Sequence[bytes],
        packed: Sequence[bytes],
        *arguments: bytes,
        weights: Sequence[int] | None = None,
        not_after_ms: int = 0,
        keep_failures: bool = False,
    ) -> list[Reply]:
        """Run a script on each shard that has some of `keys`, with the `packed` items of those.

        `keep_failures`: a shard that fails has a `Reply.failure`, and the others are answered.
        """
        cuts = _cut(keys, weights or [1] * len(keys), self._settings.shards)
        calls = [(cut.shard, (b"".join([packed[item] for item in cut.items]), *arguments)) for cut in cuts]
        answered = []
        for cut, reply in zip(cuts, await self._carrier.carry(name, calls, not_after_ms, None), strict=True):
            if isinstance(reply, CoordinatorUnavailable):
                if not keep_failures:
                    raise reply
                answered.append(Reply(cut.items, b"", failure=reply))
            elif isinstance(reply, Refused):
                answered.append(Reply(cut.items, b"", reply))
            else:
                answered.append(Reply(cut.items, reply))
        return answered

    async def call(
        self,
        name: str,
        calls: Sequence[tuple[int, tuple[bytes, ...]]],
        *,
        not_after_ms: int = 0,
        known: Mapping[int, ShardState] | None = None,
    ) -> list[bytes | Refused]:
        """Run a script with arguments on shards; replies in the order of `calls`. Raises CoordinatorUnavailable.

        `known`: what is held against the store, by shard; what this process knows where None.
        """
        replies: list[bytes | Refused] = []
        for reply in await self._carrier.carry(name, calls, not_after_ms, known):
            if isinstance(reply, CoordinatorUnavailable):
                raise reply
            replies.append(reply)
        return replies

    def heard(self, message: bytes) -> None:
        """Take note of an announcement."""
        key = message[REPLY_HEADER_BYTES : REPLY_HEADER_BYTES + PARTITION_BYTES]
        self._carrier.heard(shard_of(key, self._settings.shards), message)

    def must_answer(self, name: str, shard: int, reply: bytes | Refused) -> bytes:
        """Return the reply. Raises ShardFenced if there is none."""
        if isinstance(reply, Refused):
            raise ShardFenced(self._carrier.why_refused(shard) or f"shard {shard} refuses {name}")
        return reply

    async def run_everywhere(self, name: str, *arguments: bytes, shards: Sequence[int] | None = None) -> list[bytes]:
        """Run a script on every shard, or on these; their replies in order. Raises ShardFenced where any of them is."""
        called = range(self._settings.shards) if shards is None else shards
        replies = await self.call(name, [(shard, arguments) for shard in called])
        return [self.must_answer(name, shard, reply) for shard, reply in zip(called, replies, strict=True)]

    def certain(self, name: str, keys: Sequence[bytes], replies: list[Reply]) -> list[Reply]:
        """Return the replies of `run`. Raises ShardFenced if a shard refused."""
        for reply in replies:
            if reply.refused is not None:
                self.must_answer(name, shard_of(keys[reply.items[0]], self._settings.shards), reply.refused)
        return replies


class _Cut(NamedTuple):
    """Items of one call: positions in the sequence of items, all of one shard."""

    shard: int
    items: list[int]


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


def merge(
    items: Sequence[Item],
    replies: list[Reply],
    unpack: Callable[[bytes, list[Item]], Iterable[Answer]],
    refused: Callable[[Item, Refused], Answer] | None = None,
    failed: Callable[[Item], Answer] | None = None,
) -> list[Answer]:
    """The answers of all replies, in the order of `items`; what `refused` gives for those of a shard that refused, and
    `failed` for those of a shard that failed."""
    answers: dict[int, Answer] = {}
    for reply in replies:
        own = [items[item] for item in reply.items]
        if reply.refused is not None and refused is not None:
            answers.update((item, refused(items[item], reply.refused)) for item in reply.items)
        elif reply.failure is not None and failed is not None:
            answers.update(zip(reply.items, map(failed, own), strict=True))
        else:
            answers.update(zip(reply.items, unpack(reply.packed, own), strict=True))
    return [answers[item] for item in range(len(items))]
