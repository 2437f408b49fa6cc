"""The registry of diskless topics on a Redis-compatible store: one hash and a version, under one hash tag."""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import AsyncIterator
from contextlib import aclosing
from struct import Struct
from typing import cast

from proxy import config
from proxy.coordinator import packing_state, scripts, subscription
from proxy.coordinator.carrying import FOREIGN
from proxy.coordinator.cluster import Store
from proxy.coordinator.connect import store_call
from proxy.coordinator.fence import REMEDY
from proxy.coordinator.guarded_calls import MOST_SETTLING, STILL_SETTLING
from proxy.coordinator.interface import CoordinatorUnavailable
from proxy.coordinator.interface_journal import JournalUnavailable
from proxy.coordinator.interface_registry import (
    NO_CHANGE,
    NO_MARK,
    NO_TOPIC_ID,
    RegistryChange,
    RegistryChanged,
    RegistrySnapshot,
    TopicNotReserved,
    TopicReserved,
)
from proxy.coordinator.journal_records import JournalledCall
from proxy.coordinator.packing import unpack_strings
from proxy.coordinator.packing_registry import RESERVED, pack_entry, unpack_entry
from proxy.coordinator.packing_state import NO_IDENTITY
from proxy.coordinator.shards import REGISTRY_PREFIX, STORE_KEY
from proxy.coordinator.view import View
from proxy.coordinator.view_calls import OF_THE_REGISTRY

_PAUSE_S = 0.2
_CHANGE = Struct(">q8s")
_GUARD = Struct(">I16s?")
"""How long to settle in ms, identity of the store, whether nothing may be written."""
_REFUSALS = ("FENCED", "SETTLING", "FOREIGN", "JOURNALLED")


class RedisTopicRegistry:
    """`interface_registry.TopicRegistry` on the shared client of `connect.py`, which stays the caller's to close.

    What changes nothing raises no version. No call is safe to repeat blindly after CoordinatorUnavailable but the ones
    that say so: `reserve` may then find its own reservation.
    """

    def __init__(self, client: Store, settings: config.Redis, *, view: View | None = None) -> None:
        self._client = client
        self._view = view
        self._idle_s = settings.timeout_ms / 1000
        self._settle_ms = settings.settle_ms
        self._identity = NO_IDENTITY

    def expect_identity(self, identity: str) -> None:
        self._identity = bytes.fromhex(identity)

    async def load(self, known: RegistryChange = NO_CHANGE, *, looks: bool = False) -> RegistrySnapshot:
        """Write nothing with `looks`, not even that the registry is fenced."""
        packed = await self._run("registry_load", known=known, looks=looks)
        change = RegistryChange(*_CHANGE.unpack_from(packed))
        strings = unpack_strings(packed, _CHANGE.size)
        why_fenced = next(strings).decode()
        topics = [unpack_entry(name.decode(), entry) for name, entry in zip(strings, strings, strict=True)]
        in_order = tuple(sorted(topics, key=lambda topic: topic.name))
        return RegistrySnapshot(change.version, in_order, change.mark, why_fenced)

    async def accept_loss(self, known_version: int) -> int:
        """Go on after changes were lost, from a version behind those that anybody has seen; proxies take it up."""
        return await self._change("accept", str(known_version))

    async def reserve(self, name: str, partitions: int, configs: dict[str, str], owner: str) -> int:
        entry = pack_entry(RESERVED, NO_TOPIC_ID, partitions, owner, configs)
        try:
            return await self._change("reserve", name, entry, expected_errors=("TAKEN",))
        except scripts.ScriptError:
            raise TopicReserved(f"{name} is already in the registry of diskless topics") from None

    async def activate(self, name: str, topic_id: bytes, partitions: int) -> int:
        try:
            return await self._change("activate", name, topic_id, partitions, expected_errors=("MISSING",))
        except scripts.ScriptError:
            raise TopicNotReserved(
                f"{name} can't become a live diskless topic: its reservation is gone, it is being deleted, or it is "
                "live under another ID; delete what is left of it and create it again"
            ) from None

    async def configure(self, name: str, read: RegistryChange, configs: dict[str, str]) -> int:
        packed = json.dumps(configs).encode()
        errors = ("CHANGED", "MISSING")
        try:
            return await self._change("configure", name, read.version, packed, expected_errors=errors, known=read)
        except scripts.ScriptError:
            raise RegistryChanged(f"{name} was changed by somebody else meanwhile, or is gone") from None

    async def begin_delete(self, name: str, topic_id: bytes = b"") -> int:
        return await self._change("begin_delete", name, topic_id)

    async def remove(self, name: str, topic_id: bytes = b"", owner: str = "") -> int:
        return await self._change("remove", name, topic_id, owner.encode())

    async def belongs_to(self, cluster_id: str) -> bool:
        # Not written where it is there: the server refuses even that when memory is short.
        if (stored := await self.cluster_id()) is None:
            async with store_call(self._client, "storing the Kafka cluster's ID"):
                await self._client.hsetnx(STORE_KEY, "cluster_id", cluster_id)
            stored = await self.cluster_id()
        return stored == cluster_id

    async def cluster_id(self) -> str | None:
        """Return the ID of the Kafka cluster of these topics; None if none was ever named. Nothing is written."""
        async with store_call(self._client, "reading the Kafka cluster's ID"):
            stored = await self._client.hget(STORE_KEY, "cluster_id")
        return stored.decode() if isinstance(stored, bytes) else stored

    async def changes(self) -> AsyncIterator[RegistryChange]:
        messages = subscription.messages(self._client, [f"{REGISTRY_PREFIX}changes"], idle_s=self._idle_s)
        async with aclosing(messages):
            async for message in messages:
                if message is not None:
                    yield RegistryChange(*_CHANGE.unpack(message))
                    continue
                yield await self._newest_at_last()

    async def newest_change(self) -> RegistryChange:
        async with store_call(self._client, "reading the registry's version"):
            version, mark = await self._client.hmget(f"{REGISTRY_PREFIX}meta", ["version", "mark"])
        return RegistryChange(int(version or 0), bytes(mark or NO_MARK))  # type: ignore[arg-type]

    async def _newest_at_last(self) -> RegistryChange:
        while True:
            try:
                return await self.newest_change()
            except CoordinatorUnavailable:
                await asyncio.sleep(_PAUSE_S)

    async def _change(
        self,
        operation: str,
        name: str,
        *arguments: bytes | int,
        expected_errors: tuple[str, ...] = (),
        known: RegistryChange = NO_CHANGE,
    ) -> int:
        script = f"registry_{operation}"
        return int(await self._run(script, name.encode(), *arguments, expected_errors=expected_errors, known=known))

    async def _run(
        self,
        script: str,
        *arguments: bytes | int,
        expected_errors: tuple[str, ...] = (),
        known: RegistryChange = NO_CHANGE,
        looks: bool = False,
    ) -> bytes:
        """Run a script; wait while the registry settles. Raises ScriptError for `expected_errors`."""
        if self._view is not None:
            return await self._run_on_view(self._view, script, arguments, known)
        for _ in range(MOST_SETTLING + 1):
            # Of this call: a change that is repeated has another mark.
            change = packing_state.pack_registry_change(*known, os.urandom(8))
            header = change + _GUARD.pack(self._settle_ms, self._identity, looks)
            call = scripts.Call(REGISTRY_PREFIX, (*arguments, header))
            (reply,) = await scripts.run_all(self._client, script, [call], refusals=(*_REFUSALS, *expected_errors))
            if not isinstance(reply, scripts.Refusal):
                return cast(bytes, reply)
            word, _, text = reply.text.partition(" ")
            if word in expected_errors:
                raise scripts.ScriptError(word)
            if word == "FOREIGN":
                raise CoordinatorUnavailable(FOREIGN)
            if word == "JOURNALLED":
                raise CoordinatorUnavailable(
                    "the registry of diskless topics is a view of a journal; set journal.mode: required"
                )
            if word == "FENCED":
                raise CoordinatorUnavailable(f"the registry of diskless topics is fenced: {text}; {REMEDY}")
            await asyncio.sleep(int(text) / 1000)
        raise CoordinatorUnavailable(STILL_SETTLING)

    async def _run_on_view(
        self, view: View, script: str, arguments: tuple[bytes | int, ...], known: RegistryChange
    ) -> bytes:
        """Run a script of a registry that is a view of the journal. Raises ScriptError."""
        change = packing_state.pack_registry_change(*known, os.urandom(8))
        packed = (*[one if isinstance(one, bytes) else str(one).encode() for one in arguments], change)
        if script not in OF_THE_REGISTRY:
            (reply,) = await view.read(script, [(view.registry, packed)])
            return reply
        if script == "registry_reserve" and view.memory_is_full:
            raise CoordinatorUnavailable("the store's memory is full; give it more `maxmemory`, or shorten retention")
        call = JournalledCall(script, packed)
        try:
            appended = await view.append(view.registry, call)
        except JournalUnavailable as error:
            raise CoordinatorUnavailable(f"the journal takes no change of the registry: {error}") from error
        answer = await view.apply(view.registry, appended, call)
        if isinstance(answer, scripts.Refusal):
            raise scripts.ScriptError(answer.text)
        return answer
