"""The known state of each shard, and the fenced shards: a shard is fenced if the store has lost some of its writes.

Every reply of a shard, and every announcement, has the shard's state: its incarnation, the number of its writes, the
life of the server that took them, and the number of given offsets. Each call sends the newest known state, and the
store checks that it still has this state (`lua/fence.lua`). If it does not, it fences the shard for all proxies, until
an operator decides (`diskless-proxy coordinator unfence`).

So a store is compared with the state that was known when the call was sent. It can't be behind that state unless it
lost writes.

Therefore the known state of one life of the server is replaced by another life's state only if the store was asked with
the known state. A state from an announcement may come from a server that never had the known state. Such a state is
passed over, and the store is asked for it once: it may be the only trace of a write that was lost since.

A state comes with the list of the lives that led to it. A store that lacks something requests this list. It compares
the list with its own, and counts the losses after the last life that both lists have.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import structlog

from proxy.coordinator.packing_state import NO_INCARNATION, NOTHING_KNOWN, ShardState

log = structlog.get_logger()

REMEDY = (
    "find out what happened to the store and restore its newest data, or accept the loss with "
    "`diskless-proxy coordinator unfence`"
)


class Fence:
    """The newest known state of each shard, and the shards that the store has fenced."""

    def __init__(self) -> None:
        self._newest: dict[int, ShardState] = {}
        self._vouched: dict[int, tuple[ShardState, ShardState]] = {}
        """Known state by shard, with another life's state that has all of it and nothing more."""
        self._passed_over: dict[int, ShardState] = {}
        """States of another life that have more writes than the known state: the highest of each shard."""
        self._lives: dict[int, bytes] = {}
        """Lives that led to the known state, by shard; perhaps without its newest life yet."""
        self._lives_wanted: set[int] = set()
        self._fenced: dict[int, str] = {}

    @property
    def fenced(self) -> Mapping[int, str]:
        """Return the reason by fenced shard, as of the last call to each shard."""
        return self._fenced

    def newest(self, shard: int) -> ShardState:
        """Return the state to send with a call."""
        return self._newest.get(shard, NOTHING_KNOWN)

    def with_lives(self, shard: int) -> ShardState:
        """Return the newest state, with the lives that led to it."""
        return replace(self.newest(shard), lives=self._lives.get(shard, b""))

    def wants_lives(self, shard: int) -> bool:
        """True if the lives that led to the known state are unknown."""
        return shard in self._lives_wanted

    def states(self) -> dict[int, ShardState]:
        """Return the newest state of each shard that has a known state, with its lives."""
        return {shard: self.with_lives(shard) for shard in self._newest}

    def _know(self, shard: int, seen: ShardState) -> None:
        """Record a state as the newest of its shard."""
        before = self._newest.get(shard, NOTHING_KNOWN)
        self._newest[shard] = replace(seen, lives=b"") if seen.lives else seen
        if seen.lives or not seen.is_of_life(before):
            self._note_lives(shard, seen.lives)

    def _note_lives(self, shard: int, lives: bytes) -> None:
        newest = self._newest[shard]
        if newest.is_in(lives):
            self._lives[shard] = lives
        if newest.is_in(self._lives.get(shard, b"")):
            self._lives_wanted.discard(shard)
        else:
            self._lives_wanted.add(shard)

    def learn(self, shard: int, seen: ShardState) -> None:
        """Take a state that was seen. States may come in any order, because a shard's number of writes only grows.

        A state of another life is passed over. A reply brings it once the store was asked with the known state.
        """
        newest = self.newest(shard)
        if newest == NOTHING_KNOWN:
            if seen.incarnation != NO_INCARNATION:
                self._know(shard, seen)
        elif seen.sequence > newest.sequence:
            if seen.is_of_life(newest) or self._is_vouched_for(shard, newest, seen):
                self._know(shard, seen)
            elif seen.sequence > self._passed_over.get(shard, NOTHING_KNOWN).sequence:
                self._passed_over[shard] = seen

    def answered(self, shard: int, seen: ShardState, sent: ShardState) -> None:
        """Take the state in a reply, and the state that the call sent. The shard is not fenced, or not any more."""
        newest = self.newest(shard)
        if seen.is_of_life(newest) or not sent.is_of_life(newest) or sent.sequence < newest.sequence:
            self.learn(shard, seen)
        elif seen.sequence > newest.sequence or seen.incarnation != newest.incarnation:
            if NO_INCARNATION != newest.incarnation != seen.incarnation and shard not in self._fenced:
                log.info(
                    "shard_continued",
                    shard=shard,
                    reason="only unacknowledged writes were lost, or the loss was accepted",
                )
            self._know(shard, seen)
        else:
            # A life that has written nothing may be lost with nothing, and then nobody is to miss it.
            self._vouched[shard] = newest, seen
        if seen.lives and shard in self._newest:
            self._note_lives(shard, seen.lives)
        if self._fenced and self._fenced.pop(shard, None) is not None:
            log.warning(
                "shard_unfenced", shard=shard, reason="the store has the whole known state, or its loss was accepted"
            )

    def passed_over(self) -> dict[int, ShardState]:
        """Return the states that the store has to be asked for, with their known lives, whose losses count too.

        The caller calls `asked` after it has asked.
        """
        return {shard: replace(state, lives=self._lives.get(shard, b"")) for shard, state in self._passed_over.items()}

    def asked(self, states: Mapping[int, ShardState]) -> None:
        """Drop passed-over states that the store was asked for, no matter what it answered."""
        for shard, state in states.items():
            if self._passed_over.get(shard) == state:
                del self._passed_over[shard]

    def _is_vouched_for(self, shard: int, newest: ShardState, seen: ShardState) -> bool:
        of, by = self._vouched.get(shard, (NOTHING_KNOWN, NOTHING_KNOWN))
        return of == newest and seen.is_of_life(by)

    def refused(self, shard: int, why: str) -> str:
        """Record that the store reports the shard as fenced; return the text for the caller's error."""
        if shard not in self._fenced:
            log.error("shard_fenced", shard=shard, reason=why, remedy=REMEDY)
        self._fenced[shard] = why
        return f"shard {shard} of the coordinator's store is fenced: {why}; {REMEDY}"
