"""What this process knows of each shard's past, and which shards are fenced: those of a store that has lost writes.

Every reply of a shard, and every announcement, carries the shard's state: its incarnation, the number of its writes,
the life of the server that took them, the offsets given. The newest is sent along with each call, and the store itself
finds whether it still has that (`lua/fence.lua`); where it has not, it fences the shard for all proxies, until an
operator decides (`diskless-proxy coordinator unfence`).

So a store is measured against what was known when the call was sent, which it can't fall behind unless it lost writes.

What is known of one life of the server is therefore given up for another's only where the store has been asked with it.
A state that is merely heard of, by an announcement, may be that of a server that never had what this process knows. It
is passed over, and the store is asked for it once: it may be all that tells of a write that was lost since.

With a state goes the list of the lives that led to it. A store that misses something asks for it. It compares the list
with its own, and counts what was lost after the life in which the two part.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import structlog

from proxy.coordinator.packing_state import NO_INCARNATION, NOTHING_KNOWN, ShardState

log = structlog.get_logger()

REMEDY = (
    "find out what happened to the store and bring its newest data back, or accept the loss with "
    "`diskless-proxy coordinator unfence`"
)


class Fence:
    """The newest state seen of each shard, and which shards the store refuses."""

    def __init__(self) -> None:
        self._newest: dict[int, ShardState] = {}
        self._vouched: dict[int, tuple[ShardState, ShardState]] = {}
        """By shard what was known, and another life's state that has all of it and nothing more."""
        self._passed_over: dict[int, ShardState] = {}
        """States of another life than is known that tell of more writes: the highest of each shard."""
        self._lives: dict[int, bytes] = {}
        """The lives that led to what is known, by shard; perhaps not to its newest life yet."""
        self._lives_wanted: set[int] = set()
        self._fenced: dict[int, str] = {}

    @property
    def fenced(self) -> Mapping[int, str]:
        """Why, by shard; as of the last call to each."""
        return self._fenced

    def newest(self, shard: int) -> ShardState:
        """Return the state to send with a call."""
        return self._newest.get(shard, NOTHING_KNOWN)

    def with_lives(self, shard: int) -> ShardState:
        """Return the newest state, with the lives that led to it."""
        return replace(self.newest(shard), lives=self._lives.get(shard, b""))

    def wants_lives(self, shard: int) -> bool:
        """True if the lives that led to what is known are not known."""
        return shard in self._lives_wanted

    def states(self) -> dict[int, ShardState]:
        """The newest state of each shard of which anything is known, with its lives."""
        return {shard: self.with_lives(shard) for shard in self._newest}

    def _know(self, shard: int, seen: ShardState) -> None:
        """Take a state for the newest of its shard."""
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
        """Take note of a state, in whatever order they come: a shard's writes are counted on.

        One of another life is passed over: a reply tells of it when the store has what is known here.
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
        """Called with the state in each reply, and what the store was asked with: it is not fenced, or not any more."""
        newest = self.newest(shard)
        if seen.is_of_life(newest) or not sent.is_of_life(newest) or sent.sequence < newest.sequence:
            self.learn(shard, seen)
        elif seen.sequence > newest.sequence or seen.incarnation != newest.incarnation:
            if NO_INCARNATION != newest.incarnation != seen.incarnation and shard not in self._fenced:
                log.info("shard_continued", shard=shard, reason="writes that nobody has to have were lost, or given up")
            self._know(shard, seen)
        else:
            # A life that has written nothing may be lost with nothing, and then nobody is to miss it.
            self._vouched[shard] = newest, seen
        if seen.lives and shard in self._newest:
            self._note_lives(shard, seen.lives)
        if self._fenced and self._fenced.pop(shard, None) is not None:
            log.warning(
                "shard_unfenced", shard=shard, reason="the store has all that was known, or its loss was accepted"
            )

    def passed_over(self) -> dict[int, ShardState]:
        """Return the states that the store is to be asked for; say `asked` when it was.

        With the lives that are known: what is lost of these is counted, too.
        """
        return {shard: replace(state, lives=self._lives.get(shard, b"")) for shard, state in self._passed_over.items()}

    def asked(self, states: Mapping[int, ShardState]) -> None:
        """Whatever the store has answered."""
        for shard, state in states.items():
            if self._passed_over.get(shard) == state:
                del self._passed_over[shard]

    def _is_vouched_for(self, shard: int, newest: ShardState, seen: ShardState) -> bool:
        of, by = self._vouched.get(shard, (NOTHING_KNOWN, NOTHING_KNOWN))
        return of == newest and seen.is_of_life(by)

    def refused(self, shard: int, why: str) -> str:
        """Called where the store says that the shard is fenced; the text for whoever asked."""
        if shard not in self._fenced:
            log.error("shard_fenced", shard=shard, reason=why, remedy=REMEDY)
        self._fenced[shard] = why
        return f"shard {shard} of the coordinator's store is fenced: {why}; {REMEDY}"
