"""Copies a shard, in pages, to the state that it has at exactly one position of the journal (`lua/copying.lua`)."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Awaitable, Callable
from struct import Struct
from typing import NamedTuple

from proxy.coordinator.packing_state import LOOKS
from proxy.coordinator.view import View
from proxy.coordinator.view_calls import NO_NEW_CHANGE

KINDS = b"lkcuspirgtxobhfa"
"""Kinds of things that are read in pages, as `lua/copying.lua` names them."""
MOST_DRAINS = 10_000
"""Calls for what has changed meanwhile; after them the copy is given up."""
LONGEST_MS = 600_000
"""Time after which a copy whose proxy has ended costs nothing more."""
_BEGIN = Struct(">16sQ")
_PAGE = Struct(">16scI")
_DRAIN = Struct(">16sI")
_LENGTH = Struct(">I")
_DRAINED = Struct(">BI")
_SEQUENCE = Struct(">8xQ")
_POSITION = Struct(">q")

_GIVEN_UP = "the shard was emptied, has moved to another server, or changed too much meanwhile"

Keep = Callable[[bytes], Awaitable[None]]


class CopyGivenUp(Exception):
    """The shard could not be copied this time; nothing was changed by that."""


class Copied(NamedTuple):
    """The end of a copy."""

    position: int
    """Position of the next record to apply to it."""
    state: bytes
    """The packed state; empty for the registry."""


async def copy_shard(view: View, shard: int, step_bytes: int, keep: Keep) -> Copied | None:
    """Copy a shard; `keep` gets the pages. Return None if the shard is empty.

    `step_bytes`: about how much one call copies, while the store serves nobody else. Raises CopyGivenUp and
    CoordinatorUnavailable.
    """
    token = os.urandom(8).hex().encode()
    while await view.tidy("forget_answers", shard, b"") == b"\1":
        pass
    if not await view.tidy("snapshot_begin", shard, _BEGIN.pack(token, LONGEST_MS)):
        return None
    for kind in KINDS:
        place = b"0"
        while True:
            reply = await view.tidy("snapshot_page", shard, _PAGE.pack(token, bytes([kind]), step_bytes) + place)
            (length,) = _LENGTH.unpack_from(reply)
            if not length:
                raise CopyGivenUp(_GIVEN_UP)
            place = reply[_LENGTH.size : _LENGTH.size + length]
            await _keep(keep, reply[_LENGTH.size + length :])
            if place == b"0":
                break
    for _ in range(MOST_DRAINS):
        reply = await view.tidy("snapshot_drain", shard, _DRAIN.pack(token, step_bytes))
        outcome, length = _DRAINED.unpack_from(reply)
        if outcome == 0:
            raise CopyGivenUp(_GIVEN_UP)
        state = reply[_DRAINED.size : _DRAINED.size + length]
        await _keep(keep, reply[_DRAINED.size + length :])
        if outcome == 2:
            return Copied(_SEQUENCE.unpack_from(state)[0], state)
    raise CopyGivenUp("the shard changes faster than it is copied")


async def copy_registry(view: View, keep: Keep) -> Copied | None:
    """Copy the registry, in one step. Return None if it is empty."""
    (reply,) = await view.read("registry_copy", [(view.registry, (NO_NEW_CHANGE,))], LOOKS)
    (position,) = _POSITION.unpack_from(reply)
    if position == 0:
        return None
    await _keep(keep, reply[_POSITION.size :])
    return Copied(position, b"")


async def _keep(keep: Keep, page: bytes) -> None:
    if page:
        await keep(page)
    await asyncio.sleep(0)
