"""Calls of the shards' scripts: what is sent with each, and what becomes of a shard that refuses.

A fenced shard refuses everything, a server that has just been started or promoted refuses writes for a while, and a
commit may come too late (`lua/fence.lua`). Only the shard concerned refuses; what was asked of others is answered.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from enum import Enum, auto
from typing import NamedTuple, TypeVar

from redis.asyncio import Redis

from proxy import config
from proxy.coordinator import packing_state, scripts
from proxy.coordinator.confirmation import wait_command
from proxy.coordinator.connect import CommandRejected, renew
from proxy.coordinator.fence import Fence
from proxy.coordinator.interface import MAX_BATCHES_PER_RUN, CoordinatorUnavailable, ShardFenced
from proxy.coordinator.packing_state import ShardState
from proxy.coordinator.shards import PARTITION_BYTES, shard_of, shard_prefix

MAX_ITEMS_PER_CALL = 200
"""Partition runs, or other requests, of one script call: the store serves nobody else meanwhile."""
MAX_BATCHES_PER_CALL = MAX_BATCHES_PER_RUN
"""A partition run with more would go in a call of its own."""
READING = frozenset(
    {
        "find",
        "list_offsets",
        "describe",
        "use",
        "segment_use",
        "garbage",
        "producers",
        "compacted",
        "index_page",
        "used_segments",
    },
)
"""Scripts that write nothing."""
LOOKING = frozenset({"state", "index_size", "unfence"})
"""Scripts that run on a fenced shard, too."""
_REFUSALS = ("LIVES", "FENCED", "SETTLING", "LATE", "FOREIGN")
FOREIGN = "redis.url leads to the store of another deployment by now; fix it, or see `diskless-proxy coordinator check`"
STILL_SETTLING = (
    "the coordinator's store takes no writes yet: its server was started or promoted, and every proxy is to say first "
    "what it knows; wait, or see whether the store is restarted again and again"
)
MOST_SETTLING = 3
"""Pauses in a row that a call waits for: the store may be restarted again meanwhile."""

Item = TypeVar("Item")
Answer = TypeVar("Answer")


class Refused(Enum):
    """Why a shard did nothing, for certain."""

    FENCED = auto()
    LATE = auto()
    SETTLING = auto()
    """Only told to `touch`; other calls wait."""
    LIVES = auto()
    """The store wants the lives that led to what is known; `call` sends them."""


class Reply(NamedTuple):
    """Of one call: the positions of its items in what was asked for, and the packed answers to them."""

    items: list[int]
    packed: bytes
    refused: Refused | None = None
    """Then `packed` is empty."""
    failure: CoordinatorUnavailable | None = None
    """Then `packed` is empty, too, and nobody knows whether the call took effect."""


class ShardCalls:
    """Runs scripts on shards by way of the shared client."""

    def __init__(self, client: Redis, settings: config.Redis) -> None:
        self.fence = Fence()
        self.bytes_sent = 0
        """Payload of calls so far."""
        self.bytes_received = 0
        """Payload of their replies."""
        self.unfit: str | None = None
        """Why nothing may be written at the moment."""
        self.closed: str | None = None
        """Why nothing may be read either: the store is another deployment's, or of a layout that nobody here knows."""
        self.command_rejected = False
        """Whether the store has rejected a command of a script since the store's commands were tried."""
        self.identity = packing_state.NO_IDENTITY
        """Of the store that all this is about."""
        self._client = client
        self._settings = settings
        self._wait = wait_command(settings)
        self._lives_asked: set[int] = set()
        """Shards whose store has missed something of what is known."""

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
        for cut, reply in zip(cuts, await self._call(name, calls, not_after_ms, None), strict=True):
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
        for reply in await self._call(name, calls, not_after_ms, known):
            if isinstance(reply, CoordinatorUnavailable):
                raise reply
            replies.append(reply)
        return replies

    async def _call(
        self,
        name: str,
        calls: Sequence[tuple[int, tuple[bytes, ...]]],
        not_after_ms: int,
        known: Mapping[int, ShardState] | None,
    ) -> list[bytes | Refused | CoordinatorUnavailable]:
        """As `call`, with the failure of each shard that failed among the replies."""
        if self.closed is not None and name not in LOOKING:
            raise CoordinatorUnavailable(self.closed)
        if self.unfit is not None and name not in READING | LOOKING | {"touch"}:
            raise CoordinatorUnavailable(f"the coordinator's store can't be trusted with writes: {self.unfit}")
        replies: dict[int, bytes | Refused | CoordinatorUnavailable] = {}
        left = list(range(len(calls)))
        for _ in range(MOST_SETTLING + 2):
            wait_ms = 0
            told = await self._send(name, [calls[place] for place in left], not_after_ms, known)
            for place, reply in zip(left, told, strict=True):
                if reply is Refused.LIVES:
                    continue
                if isinstance(reply, int) and name == "touch":
                    replies[place] = Refused.SETTLING
                elif isinstance(reply, int):
                    wait_ms = max(wait_ms, reply)
                else:
                    replies[place] = reply
            left = [place for place in left if place not in replies]
            if not left:
                break
            await asyncio.sleep(wait_ms / 1000)
        settling = CoordinatorUnavailable(STILL_SETTLING)
        return [replies.get(place, settling) for place in range(len(calls))]

    async def _send(
        self,
        name: str,
        calls: Sequence[tuple[int, tuple[bytes, ...]]],
        not_after_ms: int,
        known: Mapping[int, ShardState] | None,
    ) -> list[bytes | Refused | int | CoordinatorUnavailable]:
        """As `_call`; for a shard that settles, the ms to wait."""
        mode = _mode(name)
        packed, sent_states = [], []
        # Of this call: a shard that is made or unfenced again by the same process is another one.
        new_incarnation = os.urandom(8)
        for shard, arguments in calls:
            state = self.fence.newest(shard) if known is None else known.get(shard, packing_state.NOTHING_KNOWN)
            lives = b""
            if known is not None:
                lives = state.known_lives()
            elif mode == packing_state.LOOKS or shard in self._lives_asked or shard in self.fence.fenced:
                lives = self.fence.with_lives(shard).known_lives()
            sent_states.append(state)
            header = packing_state.pack_shard_header(
                new_incarnation,
                self._settings.shards,
                mode,
                self._settings.settle_ms,
                not_after_ms,
                sent_states[-1],
                self.identity,
                lives=lives,
                wants_lives=self.fence.wants_lives(shard),
            )
            sent = (header, *arguments)
            self.bytes_sent += sum(map(len, sent))
            packed.append(scripts.Call(shard_prefix(shard), sent))
        wait = self._wait if name == "commit" else ()
        replies = await scripts.run_all(self._client, name, packed, refusals=_REFUSALS, wait=wait, keep_failures=True)
        if any(isinstance(reply, CommandRejected) for reply in replies):
            self.command_rejected = True
        fenced_before = set(self.fence.fenced)
        judged = [
            self._judge(shard, reply, mode, sent)
            for (shard, _), sent, reply in zip(calls, sent_states, replies, strict=True)
        ]
        if self.fence.fenced.keys() - fenced_before:
            # Perhaps only this connection leads to a server that has lost writes: one that was primary once.
            await renew(self._client)
        return judged

    def _judge(
        self, shard: int, reply: bytes | scripts.Refusal | CoordinatorUnavailable, mode: int, sent: ShardState
    ) -> bytes | Refused | int | CoordinatorUnavailable:
        if isinstance(reply, CoordinatorUnavailable):
            return reply
        if not isinstance(reply, scripts.Refusal):
            self.bytes_received += len(reply)
            seen = packing_state.unpack_shard_state(reply)
            if mode != packing_state.LOOKS:
                self.fence.answered(shard, seen, sent)
                self._lives_asked.discard(shard)
            return packing_state.without_lives(reply, seen)
        word, _, text = reply.text.partition(" ")
        if word == "LIVES":
            self._lives_asked.add(shard)
            return Refused.LIVES
        if word == "FENCED":
            self.fence.refused(shard, text)
            return Refused.FENCED
        if word == "FOREIGN":
            return CoordinatorUnavailable(FOREIGN)
        return Refused.LATE if word == "LATE" else int(text)

    def heard(self, message: bytes) -> None:
        """An announcement: what clients are told by it, the store must not lose unnoticed."""
        self.bytes_received += len(message)
        key = message[packing_state.REPLY_HEADER_BYTES : packing_state.REPLY_HEADER_BYTES + PARTITION_BYTES]
        self.fence.learn(shard_of(key, self._settings.shards), packing_state.unpack_shard_state(message))

    def must_answer(self, name: str, shard: int, reply: bytes | Refused) -> bytes:
        """The reply, for whoever can't do without. Raises ShardFenced."""
        if isinstance(reply, Refused):
            why = self.fence.fenced.get(shard, "")
            raise ShardFenced(self.fence.refused(shard, why) if why else f"shard {shard} refuses {name}")
        return reply

    async def run_everywhere(self, name: str, *arguments: bytes) -> list[bytes]:
        """Run a script on every shard; their replies in order. Raises ShardFenced where any of them is."""
        replies = await self.call(name, [(shard, arguments) for shard in range(self._settings.shards)])
        return [self.must_answer(name, shard, reply) for shard, reply in enumerate(replies)]

    def certain(self, name: str, keys: Sequence[bytes], replies: list[Reply]) -> list[Reply]:
        """The replies of `run`, for whoever can't do without one of them. Raises ShardFenced."""
        for reply in replies:
            if reply.refused is not None:
                self.must_answer(name, shard_of(keys[reply.items[0]], self._settings.shards), reply.refused)
        return replies


def _mode(name: str) -> int:
    if name in LOOKING:
        return packing_state.LOOKS
    return packing_state.READS if name in READING else packing_state.MAY_WRITE


class _Cut(NamedTuple):
    """What one call is for: positions in the sequence of items, all of one shard."""

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
    refused: Callable[[Item], Answer] | None = None,
    failed: Callable[[Item], Answer] | None = None,
) -> list[Answer]:
    """The answers of all replies, in the order of `items`; what `refused` gives for those of a shard that refused, and
    `failed` for those of a shard that failed."""
    answers: dict[int, Answer] = {}
    for reply in replies:
        own = [items[item] for item in reply.items]
        if reply.refused is not None and refused is not None:
            answers.update(zip(reply.items, map(refused, own), strict=True))
        elif reply.failure is not None and failed is not None:
            answers.update(zip(reply.items, map(failed, own), strict=True))
        else:
            answers.update(zip(reply.items, unpack(reply.packed, own), strict=True))
    return [answers[item] for item in range(len(items))]
