"""Recognise a store that has lost commits which it had acknowledged.

Every reply of a shard carries the shard's incarnation, made with it, and the number of its writes so far. Neither goes
back unless the store was emptied, restored, or failed over to a replica that lagged. From then on offsets could be
given twice, so this process does not use the shard any more: an operator decides, and starts it again.

A store that lost writes and took as many new ones, before this process looked again, is not recognised by this process
(by others that wrote to it meanwhile it was).

Replies may be read in another order than they were made. So a reply is measured against what was known when its request
was *sent*, which it can't fall behind.
"""

from __future__ import annotations

import structlog

from proxy.coordinator.interface import ShardFenced
from proxy.coordinator.packing import NO_INCARNATION, ShardState

log = structlog.get_logger()

_NOTHING_KNOWN = ShardState(NO_INCARNATION, 0)


class Fence:
    """The newest state seen of each shard; remembers for ever which shards went back."""

    def __init__(self) -> None:
        self._newest: dict[int, ShardState] = {}
        self._fenced: dict[int, str] = {}

    def before(self, shard: int) -> ShardState:
        """Called when a request is sent: what its reply is to be measured against. Raises ShardFenced."""
        if shard in self._fenced:
            raise ShardFenced(self._fenced[shard])
        return self._newest.get(shard, _NOTHING_KNOWN)

    def after(self, shard: int, known: ShardState, seen: ShardState) -> None:
        """Called with each reply. Raises ShardFenced, from now on for ever, where the shard went back."""
        newest = self._newest.get(shard, _NOTHING_KNOWN)
        if known.incarnation not in (NO_INCARNATION, seen.incarnation):
            finding = "it is not the one that this proxy wrote to before (emptied, or another store)"
        elif NO_INCARNATION not in (newest.incarnation, seen.incarnation) and newest.incarnation != seen.incarnation:
            finding = "two stores answer for it"
        elif seen.sequence < known.sequence:
            finding = (
                f"{known.sequence - seen.sequence} of its writes are gone (restored, or a failover that lost them)"
            )
        else:
            if seen.sequence >= newest.sequence:
                self._newest[shard] = seen
            if shard in self._fenced:
                raise ShardFenced(self._fenced[shard])
            return
        text = (
            f"shard {shard} of the coordinator's store is fenced: {finding}; find out what happened to the store, "
            "bring its newest data back, then restart this proxy"
        )
        if shard not in self._fenced:
            self._fenced[shard] = text
            log.error("shard_fenced", shard=shard, finding=finding)
        raise ShardFenced(self._fenced[shard])
