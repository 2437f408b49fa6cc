"""What this process knows of each shard's past, and which shards are fenced: those of a store that has lost writes.

Every reply of a shard, and every announcement, carries the shard's state: its incarnation, the number of its writes,
the life of the server that took them, the offsets given. The newest is sent along with each call, and the store itself
finds whether it still has that (`lua/fence.lua`); where it has not, it fences the shard for all proxies, until an
operator decides (`diskless-proxy coordinator unfence`).

So a store is measured against what was known when the call was sent, which it can't fall behind unless it lost writes.
"""

from __future__ import annotations

from collections.abc import Mapping

import structlog

from proxy.coordinator.packing import NOTHING_KNOWN, ShardState

log = structlog.get_logger()

REMEDY = (
    "find out what happened to the store and bring its newest data back, or accept the loss with "
    "`diskless-proxy coordinator unfence`"
)


class Fence:
    """The newest state seen of each shard, and which shards the store refuses."""

    def __init__(self) -> None:
        self._newest: dict[int, ShardState] = {}
        self._fenced: dict[int, str] = {}

    @property
    def fenced(self) -> Mapping[int, str]:
        """Why, by shard; as of the last call to each."""
        return self._fenced

    def newest(self, shard: int) -> ShardState:
        """What to send with a call."""
        return self._newest.get(shard, NOTHING_KNOWN)

    def states(self) -> dict[int, ShardState]:
        """The newest state of each shard of which anything is known."""
        return dict(self._newest)

    def learn(self, shard: int, seen: ShardState) -> None:
        """Take note of a state, in whatever order they come: a shard's writes are counted on, also by `unfence`."""
        if seen.sequence > self.newest(shard).sequence:
            self._newest[shard] = seen

    def answered(self, shard: int, seen: ShardState) -> None:
        """Called with the state in each reply: the shard is not fenced, or not any more."""
        self.learn(shard, seen)
        if self._fenced and self._fenced.pop(shard, None) is not None:
            log.warning(
                "shard_unfenced", shard=shard, reason="the store has all that was known, or its loss was accepted"
            )

    def refused(self, shard: int, why: str) -> str:
        """Called where the store says that the shard is fenced; the text for whoever asked."""
        if shard not in self._fenced:
            log.error("shard_fenced", shard=shard, reason=why, remedy=REMEDY)
        self._fenced[shard] = why
        return f"shard {shard} of the coordinator's store is fenced: {why}; {REMEDY}"
