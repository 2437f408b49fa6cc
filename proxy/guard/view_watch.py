"""Every proxy's check of a store that is a view of the journal: is it fit, and does it have all records.

A store that was emptied, restored or failed over is brought up to the journal's end, without an operator. Traffic does
that too, shard by shard; the watch does it for all shards when their server was started or promoted.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import structlog

from proxy import config
from proxy.coordinator.carrying import FOREIGN
from proxy.coordinator.cluster import Store
from proxy.coordinator.commands import check_commands
from proxy.coordinator.connect import StoreUnfit, renew
from proxy.coordinator.fitness import check_fitness, fitness, life_of_fit
from proxy.coordinator.interface import CoordinatorUnavailable
from proxy.coordinator.interface_journal import JournalUnavailable
from proxy.coordinator.layout import layout_problems, settle_layout
from proxy.coordinator.redis import RedisCoordinator
from proxy.coordinator.view import View
from proxy.guard.identity import adopt_identity, settle_identity, store_identity, stored_identity
from proxy.guard.journal_identity import of_another, settle_journal, stored_journal
from proxy.journal.errors import JournalUnfit
from proxy.journal.journal import KafkaJournal
from proxy.storage.interface import ObjectStorage
from proxy.topics.topics import Topics

log = structlog.get_logger()

_NEW_DEPLOYMENT_POLL_S = 0.5
NOT_CHECKED = "the coordinator's store has not answered since this proxy started"


class ViewWatch:
    """Checks the store, and brings it up to the journal's end."""

    def __init__(
        self,
        settings: config.Redis,
        client: Store,
        coordinator: RedisCoordinator,
        view: View,
        journal: KafkaJournal,
        storage: ObjectStorage,
        topics: Topics,
    ) -> None:
        self.unfit: str | None = None
        """Why nothing may be committed to the store at the moment."""
        self._settings = settings
        self._client = client
        self._coordinator = coordinator
        self._view = view
        self._journal = journal
        self._storage = storage
        self._topics = topics
        self._identity = ""
        self._checked = False
        """True once the store was seen to be this deployment's."""
        self._server = ""
        """The server at the last check that found all shards complete."""

    async def open_journal(self) -> None:
        """Open the journal for the time until the store answers. A new deployment's is waited for: `open` creates it.

        Until `open` the store gets no call. Raises StoreUnfit, StorageError and CoordinatorUnavailable.
        """
        noted = await self._noted_journal()
        try:
            await self._journal.open(create_missing=False)
        except JournalUnfit as error:
            raise StoreUnfit(str(error)) from error
        except JournalUnavailable as error:
            raise CoordinatorUnavailable(str(error)) from error
        if (identity := self._journal.identity.hex()) != noted:
            raise StoreUnfit(of_another(identity, noted))
        if not self._checked:
            self._coordinator.shards.refuse_all(NOT_CHECKED)

    async def _noted_journal(self) -> str:
        while True:
            if (noted := await stored_journal(self._storage)) is not None:
                return noted
            await asyncio.sleep(_NEW_DEPLOYMENT_POLL_S)

    async def open(self) -> None:
        """Open the journal, see that journal, store and storage belong together, and bring the store up to date.

        Raises StoreUnfit, StorageError and CoordinatorUnavailable.
        """
        noted = await stored_journal(self._storage)
        try:
            await self._journal.open(create_missing=noted is None)
            if noted is not None:
                await self._adopt()
            self._identity = await settle_identity(self._client, self._storage)
            await settle_journal(self._client, self._storage, self._journal, self._view.registry + 1)
        except JournalUnfit as error:
            raise StoreUnfit(str(error)) from error
        except JournalUnavailable as error:
            raise CoordinatorUnavailable(str(error)) from error
        self._coordinator.shards.expect_identity(self._identity)
        server = await check_fitness(self._client, self._settings, is_view=True)
        self._checked = True
        self._coordinator.shards.refuse_all(None)
        await self._coordinator.shards.look()  # for the time, until the first record was appended
        await self._bring_up()
        self._server = server

    async def keep_watching(self) -> None:
        """Check forever. A store that does not answer is not reported here, because heartbeats report it."""
        while True:
            await asyncio.sleep(self._settings.check_interval_ms / 1000)
            try:
                await self.look()
            except CoordinatorUnavailable as error:
                self._server = ""
                log.debug("store_not_checked", reason=str(error))

    async def keep_known(self) -> None:
        """Do nothing: what a store with a journal has to know is in the journal."""

    async def look(self) -> None:
        """Check the store once. Raises CoordinatorUnavailable."""
        try:
            identity, emptied = await self._adopt()
            foreign = identity != self._identity
            unknown = [] if foreign else await layout_problems(self._client, self._settings)
            self._coordinator.shards.refuse_all(FOREIGN if foreign else next(iter(unknown), None))
            if foreign or unknown:
                raise StoreUnfit(FOREIGN if foreign else unknown[0])
            found = await fitness(self._client, self._settings, is_view=True)
            server = life_of_fit(found)
            self._look_at_memory(is_full=found.memory_is_full)
            if server != self._server or self._coordinator.shards.command_rejected:
                await check_commands(self._client, self._settings)
                self._coordinator.shards.commands_tried()
        except StoreUnfit as error:
            if self.unfit != str(error):
                log.error("store_unfit", reason=str(error), effect="nothing is committed until it is fixed")
            self.unfit = str(error)
            self._coordinator.shards.refuse_writes(self.unfit)
            await renew(self._client)  # perhaps redis.url leads to another server by now
            return
        if self.unfit is not None:
            log.info("store_fit_again")
        self.unfit = None
        self._coordinator.shards.refuse_writes(None)
        if emptied or server != self._server:
            await self._bring_up()
            await self._topics.load()
            log.info(
                "store_server_changed",
                reason="it was emptied" if emptied else "it was started again, promoted, or could not be reached",
                effect="it has all records of the journal",
            )
            self._server = server

    def _look_at_memory(self, *, is_full: bool) -> None:
        """Append no commits while the store's memory is full: it has to apply every record that the journal has."""
        was_full = self._view.memory_is_full
        self._view.memory_is_full = is_full
        if is_full and not was_full:
            log.error(
                "store_memory_full",
                reason="the store holds more than its maxmemory",
                effect="produces to diskless topics are throttled, and no diskless topic is created",
                remedy="give the store more maxmemory, or shorten retention",
            )
        elif was_full and not is_full:
            log.info("store_memory_has_room")

    async def _adopt(self) -> tuple[str | None, bool]:
        """Give a store that was emptied the deployment's identity again. Return its identity, and whether it was.

        Raises StoreUnfit, StorageError and CoordinatorUnavailable.
        """
        identity, _ = await store_identity(self._client)
        if identity is not None:
            return identity, False
        own = self._identity or await stored_identity(self._storage)
        if own is None:
            return None, False
        log.warning(
            "store_emptied",
            reason="the coordinator's store has no identity: it was emptied, or is a new one",
            effect="it is rebuilt from the journal",
        )
        await settle_layout(self._client, self._settings)
        await adopt_identity(self._client, own)
        identity, _ = await store_identity(self._client)
        return identity, True

    async def _bring_up(self) -> None:
        await self._view.prove_registry()
        await self._view.prove(self._all_shards())

    def _all_shards(self) -> Sequence[int]:
        return range(self._settings.shards)
