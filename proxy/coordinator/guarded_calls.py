"""Carries calls to shards whose store may lose what it acknowledged: the guard (`lua/fence.lua`).

A fenced shard refuses everything, a server that has just been started or promoted refuses writes for a while, and a
commit may come too late. Only the shard concerned refuses; the others answer.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Mapping, Sequence

from proxy import config
from proxy.coordinator import packing_state, scripts
from proxy.coordinator.carrying import FOREIGN, LOOKING, READING, CarriedReply, Refused, StoreTrust, check_trust
from proxy.coordinator.cluster import Store
from proxy.coordinator.confirmation import wait_command
from proxy.coordinator.connect import CommandRejected, renew
from proxy.coordinator.fence import Fence
from proxy.coordinator.interface import CoordinatorUnavailable
from proxy.coordinator.packing_state import ShardState
from proxy.coordinator.shards import shard_prefix

_REFUSALS = ("LIVES", "FENCED", "SETTLING", "LATE", "FOREIGN", "JOURNALLED")
STILL_SETTLING = (
    "the coordinator's store takes no writes yet: its server was started or promoted, and every proxy is to say first "
    "what it knows; wait, or see whether the store is restarted again and again"
)
MOST_SETTLING = 3
"""Pauses in a row that a call waits for: the store may be restarted again meanwhile."""


class GuardedCarrier:
    """Sends with each call what this process knows of the shard, so that a shard that has less fences itself."""

    def __init__(self, client: Store, settings: config.Redis, trust: StoreTrust, fence: Fence) -> None:
        self.bytes_sent = 0
        self.bytes_received = 0
        self._client = client
        self._settings = settings
        self._trust = trust
        self._fence = fence
        self._wait = wait_command(settings)
        self._lives_asked: set[int] = set()
        """Shards whose store has missed something of what is known."""

    async def carry(
        self,
        name: str,
        calls: Sequence[tuple[int, tuple[bytes, ...]]],
        not_after_ms: int,
        known: Mapping[int, ShardState] | None,
    ) -> list[CarriedReply]:
        """Run a script on shards; wait for those that settle."""
        check_trust(self._trust, name)
        replies: dict[int, bytes | Refused | CoordinatorUnavailable] = {}
        left = list(range(len(calls)))
        for _ in range(MOST_SETTLING + 2):
            wait_ms = 0
            sent = await self._send(name, [calls[place] for place in left], not_after_ms, known)
            for place, reply in zip(left, sent, strict=True):
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
        """Run a script on shards, once; for a shard that settles, return the ms to wait."""
        mode = _mode(name)
        packed, sent_states = [], []
        # Of this call: a shard that is made or unfenced again by the same process is another one.
        new_incarnation = os.urandom(8)
        for shard, arguments in calls:
            state = self._fence.newest(shard) if known is None else known.get(shard, packing_state.NOTHING_KNOWN)
            lives = b""
            if known is not None:
                lives = state.known_lives()
            elif mode == packing_state.LOOKS or shard in self._lives_asked or shard in self._fence.fenced:
                lives = self._fence.with_lives(shard).known_lives()
            sent_states.append(state)
            header = packing_state.pack_shard_header(
                new_incarnation,
                self._settings.shards,
                mode,
                self._settings.settle_ms,
                not_after_ms,
                sent_states[-1],
                self._trust.identity,
                lives=lives,
                wants_lives=self._fence.wants_lives(shard),
            )
            sent = (header, *arguments)
            self.bytes_sent += sum(map(len, sent))
            packed.append(scripts.Call(shard_prefix(shard), sent))
        wait = self._wait if name == "commit" else ()
        replies = await scripts.run_all(self._client, name, packed, refusals=_REFUSALS, wait=wait, keep_failures=True)
        if any(isinstance(reply, CommandRejected) for reply in replies):
            self._trust.command_rejected = True
        fenced_before = set(self._fence.fenced)
        judged = [
            self._judge(shard, reply, mode, sent)
            for (shard, _), sent, reply in zip(calls, sent_states, replies, strict=True)
        ]
        if self._fence.fenced.keys() - fenced_before:
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
                self._fence.answered(shard, seen, sent)
                self._lives_asked.discard(shard)
            return packing_state.without_lives(reply, seen)
        word, _, text = reply.text.partition(" ")
        if word == "LIVES":
            self._lives_asked.add(shard)
            return Refused.LIVES
        if word == "FENCED":
            self._fence.refused(shard, text)
            return Refused.FENCED
        if word == "FOREIGN":
            return CoordinatorUnavailable(FOREIGN)
        if word == "JOURNALLED":
            return CoordinatorUnavailable(
                f"shard {shard} of the store is a view of a journal; set journal.mode: required"
            )
        return Refused.LATE if word == "LATE" else int(text)

    def heard(self, shard: int, message: bytes) -> None:
        """Take note of an announcement: the store must not lose unnoticed what clients learn from it."""
        self.bytes_received += len(message)
        self._fence.learn(shard, packing_state.unpack_shard_state(message))

    def why_refused(self, shard: int) -> str:
        """Return why a shard refuses calls; empty if it does not."""
        why = self._fence.fenced.get(shard, "")
        return self._fence.refused(shard, why) if why else ""


def _mode(name: str) -> int:
    if name in LOOKING:
        return packing_state.LOOKS
    return packing_state.READS if name in READING else packing_state.MAY_WRITE
