"""Carries calls to shards that are a view of a journal: a write is appended to the journal, and then applied."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence

import structlog

from proxy.coordinator.carrying import LOOKING, CarriedReply, Refused, StoreTrust, check_trust
from proxy.coordinator.interface import CoordinatorUnavailable
from proxy.coordinator.interface_journal import JournalUnavailable
from proxy.coordinator.journal_records import JournalledCall
from proxy.coordinator.packing_state import LOOKS, READS, TIDIES, ShardState
from proxy.coordinator.view import Late, View
from proxy.coordinator.view_calls import JOURNALLED

log = structlog.get_logger()

_TIDYING = frozenset({"pack"})
"""Scripts that change how records are kept, and no answer."""
_GUARDS_OWN = frozenset({"unfence"})


class JournalledCarrier:
    """Appends each write to the journal before it is applied to the view."""

    def __init__(self, view: View, trust: StoreTrust) -> None:
        self.bytes_sent = 0
        self.bytes_received = 0
        self._view = view
        self._trust = trust
        self._why_refused: dict[int, str] = {}
        """Why no record of a shard was appended, the last time."""
        self._failing: set[int] = set()
        """Shards to which the last record was not applied."""

    async def carry(
        self,
        name: str,
        calls: Sequence[tuple[int, tuple[bytes, ...]]],
        not_after_ms: int,
        known: Mapping[int, ShardState] | None,
    ) -> list[CarriedReply]:
        """Run a script on shards; each shard has a record of its own. A view is never held against what is known."""
        check_trust(self._trust, name)
        if name in _GUARDS_OWN:
            raise CoordinatorUnavailable("a store with a journal loses nothing that an operator has to accept")
        self.bytes_sent += sum(len(argument) for _, arguments in calls for argument in arguments)
        replies: list[CarriedReply]
        if name in JOURNALLED:
            writes = [self._write(shard, name, arguments, not_after_ms) for shard, arguments in calls]
            replies = await asyncio.gather(*writes)
        else:
            mode = LOOKS if name in LOOKING or name == "touch" else TIDIES if name in _TIDYING else READS
            replies = [*await self._view.read(name, calls, mode)]
        self.bytes_received += sum(len(reply) for reply in replies if isinstance(reply, bytes))
        return replies

    async def _write(self, shard: int, name: str, arguments: tuple[bytes, ...], not_after_ms: int) -> CarriedReply:
        if name == "commit" and self._view.is_full(shard):
            return Refused.FULL
        if not_after_ms:
            if self._view.time.own_ms() > not_after_ms:
                return Refused.LATE
            not_after_ms = self._view.time.of_shard(shard, not_after_ms)
        call = JournalledCall(name, arguments, not_after_ms)
        if shard in self._failing and (why := await self._why_failing(shard)):
            self._why_refused[shard] = why
            return Refused.JOURNAL
        try:
            appended = await self._view.append(shard, call)
        except JournalUnavailable as error:
            if error.appended:
                return CoordinatorUnavailable(f"nobody knows whether the journal has the call: {error}")
            self._why_refused[shard] = f"the journal takes no record of shard {shard}: {error}"
            return Refused.JOURNAL
        self._why_refused.pop(shard, None)
        try:
            reply = await self._view.apply(shard, appended, call)
        except Late:
            log.warning(
                "journal_record_late",
                shard=shard,
                reason="it was appended too late, or a broker's clock leapt ahead",
                effect="what it was to change is not changed; its sender tries again",
                remedy="none if it happens once; else compare the brokers' clocks",
            )
            return Refused.LATE
        except CoordinatorUnavailable as error:
            self._failing.add(shard)
            return error
        return reply if isinstance(reply, bytes) else CoordinatorUnavailable(reply.text)

    async def _why_failing(self, shard: int) -> str:
        """Return why a shard does not apply records; empty if it does again.

        A record that is appended now would be applied later, after its client has sent the batches again.
        """
        try:
            await self._view.prove([shard])
        except CoordinatorUnavailable as error:
            return str(error)
        self._failing.discard(shard)
        return ""

    def heard(self, shard: int, message: bytes) -> None:
        """Take note of an announcement: the store must not have less from now on."""
        self.bytes_received += len(message)
        self._view.note(shard, message)

    def why_refused(self, shard: int) -> str:
        """Return why no record of a shard was appended; empty if one was."""
        return self._why_refused.get(shard, "")
