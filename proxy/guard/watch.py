"""Every proxy's check of the coordinator's store: is it fit, is it the same store, and does it have all known state.

Traffic detects a loss too, because each call says what this proxy knows. The watch detects a loss without traffic:
right after a server was started or promoted, and before others write to it (`redis.settle_ms`).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence

import structlog

from proxy import config
from proxy.coordinator.carrying import FOREIGN
from proxy.coordinator.cluster import Store
from proxy.coordinator.commands import check_commands
from proxy.coordinator.connect import StoreUnfit, WrongServer, renew
from proxy.coordinator.fitness import check_fitness
from proxy.coordinator.interface import CoordinatorUnavailable
from proxy.coordinator.interface_registry import NO_CHANGE
from proxy.coordinator.layout import layout_problems
from proxy.coordinator.redis import RedisCoordinator
from proxy.guard.identity import settle_identity, store_identity
from proxy.guard.journal_identity import check_no_journal
from proxy.guard.remembered import UNKNOWN_SIDE, Remembered, keys_of, read_sides, remember
from proxy.storage.interface import ObjectStorage, StorageError
from proxy.topics.topics import Topics

log = structlog.get_logger()

SHARDS_PER_LOOK = 64
"""Shards per check of a server that stays the same; the checks go through all shards in turn."""
_FIRST_RENEWED_AFTER_LOOKS = 30
"""With a shard fenced; connections are renewed then, after twice as many, and so on: readers ask again each time."""
_LONGEST_KEEP_S = 60.0
"""For a few small objects: storage that hangs for longer is asked again."""


class StoreWatch:
    """Checks the store; `holds_lease` says whether this proxy is the one that keeps the known state in object
    storage."""

    def __init__(
        self,
        settings: config.Redis,
        client: Store,
        coordinator: RedisCoordinator,
        storage: ObjectStorage,
        topics: Topics,
        holds_lease: Callable[[], bool],
    ) -> None:
        self.unfit: str | None = None
        """Why nothing may be committed to the store at the moment."""
        self._settings = settings
        self._client = client
        self._coordinator = coordinator
        self._storage = storage
        self._topics = topics
        self._holds_lease = holds_lease
        self._identity = ""
        self._foreign = False
        self._closed = False
        """Whether nothing is asked of the store, as it is foreign or of a layout that this release does not know."""
        self._server = ""
        self._next_shard = 0
        self._looks_fenced = 0
        """Number of checks in a row that found a fenced shard."""
        self._renewed_after_looks = _FIRST_RENEWED_AFTER_LOOKS
        self._side = ""
        """Half of the replication ID of the server that answered last."""

    async def open(self) -> None:
        """Load the kept state before the first use of the store, so that the store is compared with it from now on.

        Raises StoreUnfit, StorageError and CoordinatorUnavailable.
        """
        await check_no_journal(self._storage)
        self._identity = await settle_identity(self._client, self._storage)
        self._coordinator.shards.expect_identity(self._identity)
        sides = await read_sides(self._storage, self._identity)
        for one in sides.values():
            for shard, state in one.shards.items():
                self._coordinator.fence.learn(shard, state)
        self._topics.registry.expect_identity(self._identity)
        changes = [one.registry_change for one in sides.values()]
        self._topics.remembered = max(changes, key=lambda change: change.version, default=NO_CHANGE)
        self._note_server(await check_fitness(self._client, self._settings))
        await self._ask_for(sides)
        for start in range(0, self._settings.shards, SHARDS_PER_LOOK):
            await self._coordinator.shards.touch(range(start, min(start + SHARDS_PER_LOOK, self._settings.shards)))

    async def keep_watching(self) -> None:
        """Check forever. A store that does not answer is not reported here, because heartbeats report it."""
        async with asyncio.TaskGroup() as tasks:
            # Object storage may be slow, or away; looks must go on meanwhile.
            tasks.create_task(self._keep_keeping())
            while True:
                await asyncio.sleep(self._settings.check_interval_ms / 1000)
                try:
                    await self.look()
                except CoordinatorUnavailable:
                    self._server = ""

    async def _keep_keeping(self) -> None:
        while True:
            await asyncio.sleep(self._settings.remember_interval_ms / 1000)
            if not self._holds_lease() or self._closed:
                continue
            try:
                async with asyncio.timeout(_LONGEST_KEEP_S):
                    await self.keep_known()
            except (StorageError, StoreUnfit, TimeoutError) as error:
                reason = str(error) or f"object storage did not answer within {_LONGEST_KEEP_S:g} s"
                log.warning("state_not_kept", reason=reason, remedy="none; it is retried")
            except Exception as error:
                # One odd answer must not end the watch: the store would not be looked at any more either.
                log.exception(
                    "keeping_broken",
                    reason=f"{type(error).__name__}: {error}",
                    remedy="report it with this trace; it is retried",
                )

    async def look(self) -> None:
        """Check the store once. Raises CoordinatorUnavailable.

        The store of another deployment is not compared with our known state: it is healthy, and would be fenced.
        """
        try:
            identity, _ = await store_identity(self._client)
            self._foreign = identity is not None and identity != self._identity
            unknown = [] if self._foreign else await layout_problems(self._client, self._settings)
            self._coordinator.shards.refuse_all(FOREIGN if self._foreign else next(iter(unknown), None))
            self._closed = self._foreign or bool(unknown)
            if unknown:
                raise StoreUnfit(unknown[0])
            if identity != self._identity:
                raise WrongServer(
                    f"the store has identity {identity}, but had {self._identity} before: it was emptied, or "
                    f"redis.url leads to another store now; restore its data or fix redis.url, see "
                    f"`diskless-proxy coordinator check`"
                )
            server = await check_fitness(self._client, self._settings)
            if server != self._server or self._coordinator.shards.command_rejected:
                # Another server may have other users, and other names for commands.
                await check_commands(self._client, self._settings)
                self._coordinator.shards.commands_tried()
        except StoreUnfit as error:
            if self.unfit != str(error):
                log.error("store_unfit", reason=str(error), effect="no batch is committed until the problem is fixed")
            self.unfit = str(error)
            if isinstance(error, WrongServer):
                # It goes on serving the connections that it has, whatever redis.url leads to.
                await renew(self._client)
        else:
            if self.unfit is not None:
                log.info("store_fit_again")
            self.unfit = None
            if server != self._server:
                # All at once: other proxies wait no longer than redis.settle_ms before they write.
                await self._touch_all()
                await self._topics.load()
                log.info(
                    "store_server_changed",
                    reason="the server was restarted or promoted, or could not be reached for a while",
                )
                self._note_server(server)
        self._coordinator.shards.refuse_writes(self.unfit)
        if not self._coordinator.fence.fenced:
            self._looks_fenced, self._renewed_after_looks = 0, _FIRST_RENEWED_AFTER_LOOKS
        else:
            self._looks_fenced += 1
            if self._looks_fenced == self._renewed_after_looks:
                # It may be the one that was primary before, cut off from the one that redis.url leads to by now.
                self._renewed_after_looks *= 2
                await renew(self._client)
        if self._closed:
            return
        if self._topics.gone_back:
            await self._topics.load()
        if passed_over := self._coordinator.fence.passed_over():
            await self._coordinator.shards.missing(passed_over)
            self._coordinator.fence.asked(passed_over)
        await self._coordinator.shards.touch(self._some_shards())

    async def keep_known(self) -> None:
        """Keep what this proxy knows in object storage, and ask the store for what other sides know.

        Raises StorageError, and StoreUnfit for an unknown format.
        """
        side = self._side or UNKNOWN_SIDE
        sides = await read_sides(self._storage, self._identity)
        own = sides.pop(side, Remembered(self._identity))
        try:
            superseded = await self._ask_for(sides)
        except CoordinatorUnavailable:
            superseded = []
        known = Remembered(self._identity, self._coordinator.fence.states(), self._topics.change)
        await remember(self._storage, side, known, own)
        if superseded:
            # Perhaps they have stored more meanwhile: a side that was cut off, and is not over.
            now = await read_sides(self._storage, self._identity)
            unchanged = [other for other in superseded if now.get(other) == sides[other]]
            await self._storage.delete([key for other in unchanged for key in keys_of(other)])

    async def _ask_for(self, sides: Mapping[str, Remembered]) -> list[str]:
        """Ask the store for the state that other sides know; it fences the shards that lack some of it.

        Return the sides whose state it has in full. Raises CoordinatorUnavailable.
        """
        complete = []
        for side, one in sides.items():
            missing = await self._coordinator.shards.missing(one.shards) if one.shards else set()
            registry = await self._topics.registry.load(one.registry_change)
            if not missing and not registry.why_fenced:
                complete.append(side)
        return complete

    def _note_server(self, server: str) -> None:
        self._server, self._side = server, server.partition(" ")[0][:16]

    async def _touch_all(self) -> None:
        for start in range(0, self._settings.shards, SHARDS_PER_LOOK):
            await self._coordinator.shards.touch(range(start, min(start + SHARDS_PER_LOOK, self._settings.shards)))

    def _some_shards(self) -> Sequence[int]:
        shards = self._settings.shards
        first, self._next_shard = self._next_shard, (self._next_shard + SHARDS_PER_LOOK) % shards
        return sorted({number % shards for number in range(first, first + min(SHARDS_PER_LOOK, shards))})
