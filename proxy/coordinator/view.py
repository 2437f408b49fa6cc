"""The store as a view of the journal: shards apply its records in order, and a proxy that waits helps.

How a shard decides is in `lua/journal.lua`.

There is no lease and no leader. A proxy applies its own record. If records before it are missing in the shard, their
proxies are about to apply them; after a short wait this proxy reads them from the journal and applies them itself. A
store that has lost its newest writes, or all of them, is in no other state: it is behind.

A shard's server may have lost writes whenever it was started or promoted. So it answers reads only after a proxy has
proved that the shard has all records up to the journal's end.
"""

from __future__ import annotations

import asyncio
import os
from collections import Counter, defaultdict
from collections.abc import AsyncIterator, Collection, Sequence
from contextlib import asynccontextmanager
from itertools import groupby
from struct import Struct

import structlog

from proxy import config
from proxy.coordinator import packing_state, scripts
from proxy.coordinator.cluster import Store
from proxy.coordinator.interface import CoordinatorUnavailable
from proxy.coordinator.interface_journal import Appended, Journal, JournalRecord, JournalUnavailable, PositionTrimmed
from proxy.coordinator.interface_snapshots import Snapshots
from proxy.coordinator.journal_records import JournalledCall, pack_record
from proxy.coordinator.journal_time import JournalTime
from proxy.coordinator.loading import Loader
from proxy.coordinator.packing_state import APPLIES, LOADS, LOOKS, QUIET, READS, TIDIES
from proxy.coordinator.rebuilds import Rebuilds
from proxy.coordinator.scripts import Mode, Refusal
from proxy.coordinator.view_calls import NO_NEW_CHANGE, packed_call, part_name, unpacked_call, why_refused

log = structlog.get_logger()

WAITS_S = (0.002, 0.004, 0.008, 0.006)
"""Pauses in which the proxies of earlier records apply them; then this proxy helps."""
MAX_READ_BYTES = 1 << 20
"""Records that are read from the journal at once."""
QUIET_BEFORE = 256
"""Records that are applied without an announcement if they are further from the end: nobody waits for them."""
MOST_TRIES = 8
"""Refusals in a row that a call deals with: the store may be restarted or emptied meanwhile."""
_REFUSALS = ("BEHIND", "UNPROVED", "LATE", "BROKEN", "RESTORING", "APPLIED", "FOREIGN", "GUARDED")
_ANSWERS = ("TAKEN", "MISSING", "CHANGED")
"""Refusals that are a script's answer."""
_PROOF = Struct(">q16s")


class Late(Exception):
    """The record was appended after its `not_after_ms`; it did nothing."""


class View:
    """Applies records of the journal to the shards, and reads shards that have all of them."""

    def __init__(
        self, client: Store, settings: config.Redis, journal: Journal, snapshots: Snapshots | None = None
    ) -> None:
        self.helped_records = 0
        """Records of other proxies, or of the past, that this process has applied."""
        self.unproved: set[int] = set()
        """Shards that this process is bringing up to the journal's end."""
        self.rebuilds = Rebuilds()
        """Rebuilds of shards by this process."""
        self.memory_is_full = False
        """True if the store held more than its `maxmemory` when the watch looked at it."""
        self._client = client
        self._settings = settings
        self._journal = journal
        self._loader = Loader(self._run_load, snapshots)
        self._known: Counter[int] = Counter()
        """Position up to which each shard is known to have applied records: it must never have less."""
        self._index_bytes: Counter[int] = Counter()
        """Bytes of each shard's indexes, as its last reply or announcement says."""
        self.time = JournalTime()
        self._applying: dict[int, asyncio.Lock] = defaultdict(asyncio.Lock)
        """Held while a record of this process is applied: they come in order."""
        self._repairing: dict[int, asyncio.Lock] = defaultdict(asyncio.Lock)
        """Held while this process brings a shard up to a position."""
        self._repairs: Counter[int] = Counter()
        """Number of times that this process has brought a shard up."""

    @property
    def registry(self) -> int:
        """The registry's partition of the journal, which is the one after the last shard's."""
        return self._settings.shards

    def note(self, shard: int, reply: bytes) -> int:
        """Note up to which position a shard has applied records, as its reply or announcement says; return it."""
        state = packing_state.unpack_shard_state(reply)
        self._note_applied(shard, state.sequence)
        self._index_bytes[shard] = state.began_sequence
        return state.sequence

    def applied(self, partition: int) -> int:
        """Return the position up to which a partition's records are known to be applied, or are about to be."""
        return self._known[partition]

    def _note_applied(self, partition: int, position: int) -> None:
        self._known[partition] = max(self._known[partition], position)

    def _note_reply(self, partition: int, position: int, reply: bytes) -> int:
        """Note the position in a reply, of the registry the given one; return it."""
        if partition != self.registry:
            return self.note(partition, reply)
        self._note_applied(partition, position)
        return position

    async def append(self, partition: int, call: JournalledCall) -> Appended:
        """Append a record. Raises JournalUnavailable."""
        return await self._journal.append(partition, pack_record(call))

    async def apply(self, partition: int, appended: Appended, call: JournalledCall) -> bytes | Refusal:
        """Apply a record of this process, after all records before it; return the reply.

        Raises Late, and CoordinatorUnavailable: then the record may be applied by another proxy.
        """
        self.time.note_appended(partition, appended.time_ms)
        async with self._turn(partition):
            for wait_s in (*WAITS_S, *[None] * MOST_TRIES):
                repairs_before = self._repairs[partition]
                (reply,) = await self._run_records(partition, [(appended, call)], quiet=False)
                if not isinstance(reply, Refusal) or reply.text in _ANSWERS:
                    self._note_reply(partition, appended.position + 1, reply if isinstance(reply, bytes) else b"")
                    return reply
                if wait_s is not None and reply.text.startswith("BEHIND"):
                    await asyncio.sleep(wait_s)
                else:
                    await self._repair(partition, reply, appended.position, repairs_before)
        raise CoordinatorUnavailable(f"{self._name(partition)} fell back behind the journal again and again")

    async def read(self, name: str, calls: Sequence[tuple[int, tuple[bytes, ...]]], mode: int = READS) -> list[bytes]:
        """Run a script that no record is about on shards that have all known records; replies in order.

        Raises CoordinatorUnavailable.
        """
        replies: dict[int, bytes] = {}
        left = list(range(len(calls)))
        for _ in range(MOST_TRIES):
            repairs_before = {shard: self._repairs[shard] for shard, _ in calls}
            some = [(calls[place][0], calls[place][1]) for place in left]
            refused = []
            for place, reply in zip(left, await self._run_reads(name, some, mode), strict=True):
                shard = calls[place][0]
                if isinstance(reply, Refusal):
                    refused.append((shard, reply))
                else:
                    self._note_reply(shard, 0, reply)
                    replies[place] = reply
            left = [place for place in left if place not in replies]
            if not left:
                return [replies[place] for place in range(len(calls))]
            # Each shard once, all at the same time.
            repairs = [
                self._repair(shard, reply, self._known[shard], repairs_before[shard])
                for shard, reply in dict(reversed(refused)).items()
            ]
            for outcome in await asyncio.gather(*repairs, return_exceptions=True):
                if isinstance(outcome, BaseException):
                    raise outcome
        raise CoordinatorUnavailable("the store fell back behind the journal again and again")

    def is_full(self, shard: int) -> bool:
        """True if no commit to a shard may be appended: the store's memory is full, or the shard's indexes take
        `redis.max_index_bytes`. Records are applied even then, so the limit must hold before they are appended."""
        most = self._settings.max_index_bytes
        return self.memory_is_full or 0 < most <= self._index_bytes[shard]

    async def catch_up(self, shards: Collection[int]) -> None:
        """Require that the next read of these shards finds all records that the journal has now.

        A consumer may have read, through another proxy, records that this proxy's server does not have yet: while two
        primaries live. Raises CoordinatorUnavailable.
        """
        for shard in shards:
            async with self._journal_call():
                self.require(shard, await self._journal.end(shard))

    def require(self, partition: int, position: int) -> None:
        """Require that the next read of a partition finds all records before a position."""
        self._note_applied(partition, position)

    async def bring_up(self, partition: int) -> None:
        """Apply the records of a partition that the journal has now. Raises CoordinatorUnavailable."""
        await self.catch_up([partition])
        if partition == self.registry:
            await self.prove_registry()
        else:
            await self.prove([partition])

    async def prove(self, shards: Sequence[int]) -> None:
        """Bring shards up to the journal's end, unless that was done since their server began. Raises as `read`."""
        await self.read("index_size", [(shard, ()) for shard in shards])

    async def prove_registry(self) -> None:
        """Do the same for the registry."""
        await self.read("registry_load", [(self.registry, (NO_NEW_CHANGE,))])

    async def _repair(self, shard: int, refusal: Refusal, position: int, repairs_before: int) -> None:
        """Do what a shard's refusal asks for, so that the call can be repeated.

        `position`: up to which the shard has to apply records. `repairs_before`: `_repairs` before the call. Raises
        Late, and CoordinatorUnavailable if nothing helps.
        """
        word, _, rest = refusal.text.partition(" ")
        if word == "LATE":
            self.time.note_reached(shard, int(rest))
            raise Late
        if word not in ("BEHIND", "UNPROVED", "BROKEN", "RESTORING"):
            raise CoordinatorUnavailable(why_refused(word, self._name(shard)))
        async with self._repairing[shard]:
            if self._repairs[shard] != repairs_before:
                return  # another call of this process did it
            self.unproved.add(shard)
            try:
                if word == "BROKEN":
                    log.warning("shard_rebuilt", shard=shard, reason=rest, effect="its records are applied again")
                    await self._run_reads("reset", [(shard, (os.urandom(8),))], LOOKS)
                elif word == "RESTORING":
                    await self._loader.wait(shard, rest)
                elif word == "BEHIND":
                    await self._help(shard, int(rest), position)
                else:
                    applied, _, server = rest.partition(" ")
                    await self._prove(shard, int(applied), server)
            finally:
                self.unproved.discard(shard)
            self._repairs[shard] += 1

    async def _prove(self, shard: int, applied: int, server: str) -> None:
        if not server:
            raise CoordinatorUnavailable(
                "the store rejects INFO replication, so nobody can know whether it has lost writes; let the user of "
                "redis.url run INFO"
            )
        async with self._journal_call():
            end = await self._journal.end(shard)
        if end < applied:
            raise CoordinatorUnavailable(
                f"the journal of {self._name(shard)} ends at position {end}, and the store has applied {applied} "
                "records: the journal was truncated; see `diskless-proxy coordinator check`"
            )
        await self._help(shard, applied, end)
        proof = _PROOF.pack(end, server.encode())
        if shard == self.registry:
            await self._run_reads("registry_prove", [(shard, (proof, NO_NEW_CHANGE))], LOOKS)
        else:
            await self._run_reads("prove", [(shard, (proof,))], LOOKS)

    async def _help(self, shard: int, at: int, until: int) -> None:
        """Apply the journal's records from position `at` on, up to `until`; others may do so at the same time."""
        if at == 0 and until > 0:
            with self.rebuilds.of(shard):
                await self._help_from(shard, await self.load(shard, at), until)
        else:
            await self._help_from(shard, at, until)

    async def _help_from(self, shard: int, at: int, until: int) -> None:
        began = at
        while at < until:
            async with self._journal_call():
                try:
                    records = await self._journal.read(shard, at, MAX_READ_BYTES)
                except PositionTrimmed:
                    began = await self.load(shard, at)
                    if began <= at:
                        raise
                    at = began
                    continue
            if not records:
                raise CoordinatorUnavailable(
                    f"the journal of {self._name(shard)} ends at position {at}, before {until}"
                )
            at = await self._apply_records(shard, [record for record in records if record.position < until], until)
        self.helped_records += max(at - began, 0)

    async def load(self, partition: int, at: int) -> int:
        """Load the newest snapshot of a partition that is ahead of a position, if there is one.

        Return the position of the next record to apply. Raises CoordinatorUnavailable.
        """
        if partition == self.registry:
            return await self._loader.load_registry(partition, at)
        return await self._loader.load(partition, at)

    async def _apply_records(self, shard: int, records: Sequence[JournalRecord], until: int) -> int:
        """Apply records one after another; return the position of the next one to apply."""
        at = records[0].position
        calls = [(record, unpacked_call(self._settings.shards, shard, record)) for record in records]
        for _, group in groupby(calls, key=lambda one: (one[1].name, one[0].position < until - QUIET_BEFORE)):
            same = list(group)
            if same[-1][0].position < at:
                continue  # another proxy is ahead
            quiet = same[0][0].position < until - QUIET_BEFORE
            placed = [(Appended(record.position, record.time_ms), call) for record, call in same]
            at = same[-1][0].position + 1
            for (record, _), reply in zip(same, await self._run_records(shard, placed, quiet=quiet), strict=True):
                if not isinstance(reply, Refusal) or reply.text in _ANSWERS:
                    # What the shard says now: what it said before it was emptied would pass over records.
                    at = max(
                        at, self._note_reply(shard, record.position + 1, reply if isinstance(reply, bytes) else b"")
                    )
                elif reply.text.startswith("BEHIND"):
                    return int(reply.text.partition(" ")[2])
                elif reply.text.startswith("LATE"):
                    self.time.note_reached(shard, int(reply.text.partition(" ")[2]))
                elif not reply.text.startswith("APPLIED"):
                    raise CoordinatorUnavailable(why_refused(reply.text, self._name(shard)))
        return at

    async def _run_records(
        self, shard: int, records: Sequence[tuple[Appended, JournalledCall]], *, quiet: bool
    ) -> list[bytes | Refusal]:
        """Run the calls of records, which are all of one script."""
        calls = [
            self._call(
                shard, call.arguments, APPLIES + quiet * QUIET, appended.position, appended.time_ms, call.not_after_ms
            )
            for appended, call in records
        ]
        name = records[0][1].name
        return await scripts.run_all(self._client, name, calls, refusals=(*_REFUSALS, *_ANSWERS), mode=Mode.APPLYING)

    async def _run_reads(
        self, name: str, calls: Sequence[tuple[int, tuple[bytes, ...]]], mode: int
    ) -> list[bytes | Refusal]:
        packed = [self._call(shard, arguments, mode, self._known[shard]) for shard, arguments in calls]
        return await scripts.run_all(self._client, name, packed, refusals=_REFUSALS, mode=Mode.VIEW)

    async def tidy(self, name: str, shard: int, argument: bytes) -> bytes:
        """Run a script that changes no answer; return the reply without the state. Raises as `read`."""
        (reply,) = await self.read(name, [(shard, (argument,))], TIDIES)
        return reply[packing_state.REPLY_HEADER_BYTES :]

    async def _run_load(self, name: str, partition: int, arguments: tuple[bytes, ...]) -> bytes | Refusal:
        """Run a script that loads a snapshot. Raises CoordinatorUnavailable."""
        mode = LOOKS if partition == self.registry else LOADS
        call = self._call(partition, arguments, mode, 0)
        replies: list[bytes | Refusal] = await scripts.run_all(
            self._client, name, [call], refusals=_REFUSALS, mode=Mode.APPLYING
        )
        return replies[0]

    def _call(
        self,
        partition: int,
        arguments: tuple[bytes, ...],
        mode: int,
        position: int,
        time_ms: int = 0,
        not_after_ms: int = 0,
    ) -> scripts.Call:
        identity, shards = self._journal.identity, self._settings.shards
        return packed_call(identity, shards, partition, arguments, mode, position, time_ms, not_after_ms)

    def _name(self, partition: int) -> str:
        return part_name(self._settings.shards, partition)

    @asynccontextmanager
    async def _turn(self, partition: int) -> AsyncIterator[None]:
        """Wait until the earlier records of this process are applied, `redis.timeout_ms` at most."""
        try:
            async with asyncio.timeout(self._settings.timeout_ms / 1000):
                await self._applying[partition].acquire()
        except TimeoutError:
            raise CoordinatorUnavailable(
                f"{self._name(partition)} has not applied the records before this one"
            ) from None
        try:
            yield
        finally:
            self._applying[partition].release()

    @asynccontextmanager
    async def _journal_call(self) -> AsyncIterator[None]:
        try:
            yield
        except (JournalUnavailable, PositionTrimmed) as error:
            raise CoordinatorUnavailable(f"the store is behind the journal, and {error}") from error
