"""The bytes that every call of a shard begins with, and every reply: the shard's state, and what its guard asks."""

from __future__ import annotations

from dataclasses import dataclass, field
from struct import Struct
from typing import NamedTuple

_SHARD_HEADER = Struct(">8sIBIQ8s16sQQQQQQ16s")
_VIEW_HEADER = Struct(">8xIBqqQ16s")
_REGISTRY_CHANGE = Struct(">q8s8s")
_REGISTRY_HEADER = Struct(">Bq16s")
_REPLY_HEADER = Struct(">8s16sQQQQQQI")
_LIFE = Struct(">8s16sQQQ")
_LOOK = Struct(">qqQQ")
_UNFENCED = Struct(">QII")

REPLY_HEADER_BYTES = _REPLY_HEADER.size
NO_INCARNATION = bytes(8)
NO_IDENTITY = bytes(16)
"""Identity that stands for any store."""


MAY_WRITE, READS, LOOKS = 0, 1, 2
"""Modes of a script: it may change something, reads only, or looks at a shard whatever is wrong with it."""
APPLIES, TIDIES, LOADS, QUIET = 0, 3, 4, 16
"""Modes in a view of a journal: a script applies a record; it changes how records are kept, and no answer; it loads a
snapshot; it announces nothing."""
_WANTS_LIVES = 16


@dataclass(frozen=True, slots=True)
class ShardState:
    """State of a shard, with which each of its replies begins."""

    incarnation: bytes
    """8 random bytes, made with the shard; zeros where nothing was ever written to it."""
    sequence: int
    """Writes so far."""
    life: bytes = bytes(16)
    """ID of the server that took the newest write: half of its replication ID, in hex digits."""
    offsets: int = 0
    """Offsets that were given to batches so far, in all logs of the shard."""
    began_sequence: int = 0
    """Writes when the life began."""
    began_offsets: int = 0
    """Offsets given when the life began."""
    began_written_ms: int = 0
    """Time of the newest write when the life began."""
    must_last_ms: int = 0
    """Time of the newest write that must not be lost; what comes after it is bookkeeping."""
    lives: bytes = field(default=b"", compare=False, repr=False)
    """The lives that led to this state, as the store packs them (`LIFE` in `shard.lua`), if they are known."""

    def is_of_life(self, other: ShardState) -> bool:
        """Whether both are of one life of one shard: of these the higher sequence has all that the lower one has."""
        return self.life == other.life and self._began() == other._began() and self.incarnation == other.incarnation

    def known_lives(self) -> bytes:
        """Return the lives that led to this state; its own life if no more is known."""
        return self.lives or self._own_life()

    def is_in(self, lives: bytes) -> bool:
        """True if its life is one of these."""
        own = self._own_life()
        return any(lives.startswith(own, at) for at in range(0, len(lives), _LIFE.size))

    def _own_life(self) -> bytes:
        """Return its life as the store packs it. The server's ID is not enough: a shard of a cluster may come back."""
        return _LIFE.pack(self.incarnation, self.life, *self._began())

    def _began(self) -> tuple[int, int, int]:
        return self.began_sequence, self.began_offsets, self.began_written_ms


NOTHING_KNOWN = ShardState(NO_INCARNATION, 0)


class ShardLook(NamedTuple):
    """State of a shard, fenced or not, and its figures."""

    state: ShardState
    time_ms: int
    """Time by the store's clock, in ms since 1970."""
    logs: int
    writes_lost: int
    """Writes that somebody knows and the shard does not have."""
    offsets_lost: int
    """Offsets that were given by these."""
    why_fenced: str
    """Empty where it is not."""


class Unfenced(NamedTuple):
    """Effect of `unfence.lua` on one shard."""

    raised_by: int
    """Offsets by which the ends of all logs were moved."""
    raised: int
    """Logs that were."""
    made: int
    """Logs that had to be recreated."""


def pack_shard_header(
    new_incarnation: bytes,
    shards: int,
    mode: int,
    settle_ms: int,
    not_after_ms: int,
    known: ShardState,
    identity: bytes = NO_IDENTITY,
    *,
    lives: bytes = b"",
    wants_lives: bool = False,
) -> bytes:
    """The first argument of every script of a shard. `lives`: those that led to `known`, if the store asks for them."""
    return (
        _SHARD_HEADER.pack(
            new_incarnation,
            shards,
            mode + wants_lives * _WANTS_LIVES,
            settle_ms,
            not_after_ms,
            known.incarnation,
            known.life,
            known.began_sequence,
            known.began_offsets,
            known.began_written_ms,
            known.sequence,
            known.offsets,
            known.must_last_ms,
            identity,
        )
        + lives
    )


def pack_view_header(
    shards: int, mode: int, identity: bytes, *, position: int, time_ms: int = 0, not_after_ms: int = 0
) -> bytes:
    """Return the first argument of every script of a shard that is a view of the journal `identity`.

    `position`: of the record that is applied, at `time_ms`; else the position up to which the shard must have applied.
    """
    return _VIEW_HEADER.pack(shards, mode, position, time_ms, not_after_ms, identity)


def pack_registry_change(known_version: int, known_mark: bytes, new_mark: bytes) -> bytes:
    """Return the beginning of the last argument of a script of the registry, which is part of the journal's record.

    `new_mark`: mark of the change that the call makes.
    """
    return _REGISTRY_CHANGE.pack(known_version, known_mark, new_mark)


def pack_registry_header(mode: int, position: int, identity: bytes) -> bytes:
    """Return the rest of that argument if the registry is a view of the journal `identity`."""
    return _REGISTRY_HEADER.pack(mode, position, identity)


def unpack_shard_state(reply: bytes) -> ShardState:
    """The beginning of a shard's reply, and of its announcements; the lives follow it, if there are any."""
    fields = _REPLY_HEADER.unpack_from(reply)
    incarnation, life, began_sequence, began_offsets, began_written_ms, sequence, offsets, must_last_ms, length = fields
    lives = reply[REPLY_HEADER_BYTES : REPLY_HEADER_BYTES + length]
    return ShardState(
        incarnation, sequence, life, offsets, began_sequence, began_offsets, began_written_ms, must_last_ms, lives
    )


def without_lives(reply: bytes, state: ShardState) -> bytes:
    """The reply as it is for a caller who knows the life: what scripts answer begins after REPLY_HEADER_BYTES."""
    if not state.lives:
        return reply
    return reply[: REPLY_HEADER_BYTES - 4] + bytes(4) + reply[REPLY_HEADER_BYTES + len(state.lives) :]


def unpack_look(reply: bytes) -> ShardLook:
    """The reply of `state.lua` and `touch.lua`."""
    time_ms, logs, writes_lost, offsets_lost = _LOOK.unpack_from(reply, REPLY_HEADER_BYTES)
    why_fenced = reply[REPLY_HEADER_BYTES + _LOOK.size :].decode()
    return ShardLook(unpack_shard_state(reply), time_ms, logs, writes_lost, offsets_lost, why_fenced)


def unpack_unfenced(reply: bytes) -> Unfenced:
    """The reply of `unfence.lua`."""
    return Unfenced(*_UNFENCED.unpack_from(reply, REPLY_HEADER_BYTES))
