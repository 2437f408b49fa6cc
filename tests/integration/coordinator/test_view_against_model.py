"""The histories of `test_against_model.py` on a view of a journal that is emptied, falls back, and whose proxies die.

Snapshots are taken meanwhile, page by page between all that happens, and the journal is trimmed. At the end the whole
journal is applied to an empty store, and each snapshot is loaded into one: all must hold the same.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Sequence
from contextlib import suppress
from typing import Any

import pytest
from hypothesis import HealthCheck
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st
from hypothesis.stateful import invariant, rule, run_state_machine_as_test
from redis.asyncio import Redis

from proxy.coordinator import view
from proxy.coordinator.cluster import primaries
from proxy.coordinator.connect import connect
from proxy.coordinator.copying import CopyGivenUp, copy_shard
from proxy.coordinator.interface import CoordinatorUnavailable, PartitionRun, ProposedBatch
from proxy.coordinator.interface_journal import Appended
from proxy.coordinator.journal_records import JournalledCall
from proxy.coordinator.redis import RedisCoordinator
from proxy.coordinator.shards import shard_prefix
from tests.integration.coordinator.clusters import StoreCluster
from tests.integration.coordinator.conftest import Store
from tests.integration.coordinator.test_against_model import (
    LOGS,
    SHARDS,
    Histories,
    HistoriesOnACluster,
    cut_calls_small,
    loose_batches,
)
from tests.support.memory_journal import MemoryJournal
from tests.support.memory_snapshots import MemorySnapshot, MemorySnapshots
from tests.support.view_digest import digest_of
from tests.tiers import Tier

EXAMPLES_OF_TIER = {Tier.QUICK: 8, Tier.FULL: int(os.environ.get("VIEW_HISTORIES", "40"))}
STEPS = int(os.environ.get("VIEW_STEPS", "25"))
"""Operations of each history. With 1,000 histories of 100 steps, set a longer `timeout` of the test, too."""


class JournalledHistories(Histories):
    def __init__(self) -> None:
        self.journal = MemoryJournal()
        self.copy: dict[bytes, bytes] = {}
        """A copy of the store, as it was at some time."""
        self.snapshots = MemorySnapshots()
        self.copying: dict[int, asyncio.Task[None]] = {}
        self.may_go_on = asyncio.Event()
        """Set for a moment: then every copy that waits reads its next page."""
        self.waiting: set[int] = set()
        """Shards of which the next page was read."""
        super().__init__()

    def coordinator(self, client: Redis) -> RedisCoordinator:
        return RedisCoordinator(
            client,
            self.settings,
            producer_id_expiration_ms=86_400_000,
            producer_batches_remembered=5,
            journal=self.journal,
            snapshots=self.snapshots,
        )

    def make_real(self) -> RedisCoordinator:
        return self.coordinator(self.client)

    def teardown(self) -> None:
        self.loop.run_until_complete(self.compare_with_a_replay())
        super().teardown()

    def url_of_a_replay(self) -> str:
        """Return the URL of the store that the journal is applied to at the end."""
        return self.store.url[:-1] + "1"

    async def compare_with_a_replay(self) -> None:
        while not all(task.done() for task in self.copying.values()):
            await self.next_pages()
        await asyncio.gather(*self.copying.values())
        live = await digest_of(self.client, self.real, SHARDS)
        client = await connect(self.settings.model_copy(update={"url": self.url_of_a_replay()}))
        taken = {shard: list(some) for shard, some in self.snapshots.taken.items()}
        self.journal.starts.clear()
        try:
            for number in range(max(map(len, taken.values()), default=0) + 1):
                # None at first, and then the first one of each shard, the second one, and so on.
                for shard, some in taken.items():
                    self.snapshots.taken[shard] = some[number - 1 : number] if number else []
                await client.flushdb()
                assert await digest_of(client, self.coordinator(client), SHARDS) == live
        finally:
            await client.aclose()

    @invariant()
    def copies_go_on(self) -> None:
        """Let each copy go on by a page, and begin the next one when it has ended."""
        for shard in range(SHARDS):
            if shard not in self.copying or self.copying[shard].done():
                self.copying[shard] = self.loop.create_task(self.copy_in_steps(shard))
        self.loop.run_until_complete(self.next_pages())

    async def next_pages(self) -> None:
        """Wait until each copy has read its next page, or has ended."""
        self.waiting.clear()
        self.may_go_on.set()
        await asyncio.sleep(0)
        self.may_go_on.clear()
        while any(not task.done() and shard not in self.waiting for shard, task in self.copying.items()):  # noqa: ASYNC110
            await asyncio.sleep(0.001)

    async def copy_in_steps(self, shard: int) -> None:
        pages: list[bytes] = []

        async def keep(page: bytes) -> None:
            pages.append(page)
            self.waiting.add(shard)
            await self.may_go_on.wait()

        with suppress(CopyGivenUp):
            view = self.make_real().view
            assert view is not None
            if copied := await copy_shard(view, shard, 1, keep):
                self.snapshots.taken[shard].append(MemorySnapshot(copied.position, copied.state, pages))

    @rule(shard=st.integers(0, SHARDS - 1))
    def trim_the_journal(self, shard: int) -> None:
        positions = sorted(snapshot.position for snapshot in self.snapshots.taken[shard])
        if len(positions) > 1:
            self.loop.run_until_complete(self.journal.trim(shard, positions[-2]))

    def bring_up(self) -> None:
        self.loop.run_until_complete(self.make_real().view.prove(range(SHARDS)))  # type: ignore[union-attr]

    async def flush(self) -> None:
        for server in (await primaries(self.client)).values():
            await server.flushdb()

    @rule(newcomer=st.booleans())
    def empty_the_store(self, newcomer: bool) -> None:
        """Lose everything; the next call of a proxy, which may know nothing, rebuilds it."""
        self.loop.run_until_complete(self.flush())
        if newcomer:
            self.real = self.make_real()
        self.bring_up()

    @rule()
    def take_a_copy(self) -> None:
        async def copy() -> dict[bytes, bytes]:
            servers = (await primaries(self.client)).values()
            return {key: await self.client.dump(key) for server in servers async for key in server.scan_iter()}

        self.copy = self.loop.run_until_complete(copy())

    @rule()
    def fall_back(self) -> None:
        """Lose what came after the copy, as a failover to a replica that was behind does."""

        async def restore() -> None:
            await self.flush()
            for key, dumped in self.copy.items():
                await self.client.restore(key, 0, dumped)
            for shard in range(SHARDS):
                await self.client.hdel(f"{shard_prefix(shard)}meta", "proved", "snapshot")

        self.loop.run_until_complete(restore())
        self.bring_up()

    @rule(shard=st.integers(0, SHARDS - 1))
    def stop_halfway(self, shard: int) -> None:
        """Leave a shard as a script does whose command is rejected."""
        self.loop.run_until_complete(self.client.hset(f"{shard_prefix(shard)}meta", "unfinished", "commit"))
        self.bring_up()

    @rule(
        chosen=st.lists(st.sampled_from(LOGS), min_size=1, max_size=6, unique=True),
        batches=st.lists(st.lists(loose_batches, min_size=1, max_size=4), min_size=6, max_size=6),
        proxy_dies=st.booleans(),
    )
    def commit_without_an_answer(
        self, chosen: list[tuple[bytes, int]], batches: list[list[ProposedBatch]], proxy_dies: bool
    ) -> None:
        """The records are in the journal, but nobody knows, or their proxy dies before it applies them."""
        self.segments += 1
        segment = self.segments.to_bytes(16, "big")
        runs = [PartitionRun(*log, 1, tuple(some)) for log, some in zip(chosen, batches, strict=False)]
        unlucky = self.make_real()
        if proxy_dies:
            unlucky.view.apply = die  # type: ignore[union-attr, method-assign]
        else:
            self.journal.lost_replies = 1000
        with suppress(CoordinatorUnavailable):
            self.loop.run_until_complete(unlucky.commit(segment, runs))
        self.journal.lost_replies = 0
        for shard in range(SHARDS):
            self.loop.run_until_complete(self.client.hdel(f"{shard_prefix(shard)}meta", "proved"))
        self.bring_up()
        self.loop.run_until_complete(self.model.commit(segment, runs))
        self.ever_used |= self.use().keys()
        self.committed.append((segment, runs))

    @rule()
    def forget_producers(self) -> None:
        assert self.loop.run_until_complete(self.real.forget_producers(LOGS)) == 0


async def die(shard: int, appended: Appended, call: JournalledCall) -> Any:
    raise CoordinatorUnavailable("it died")


class JournalledHistoriesOnACluster(JournalledHistories, HistoriesOnACluster):
    """The same on three primaries, between which slots move. The journal is applied to a single server at the end."""

    def url_of_a_replay(self) -> str:
        return self.store.url


def run_histories(
    histories: type[JournalledHistories],
    pytestconfig: pytest.Config,
    monkeypatch: pytest.MonkeyPatch,
    suppressed: Sequence[HealthCheck] = (),
) -> None:
    cut_calls_small(monkeypatch)
    monkeypatch.setattr(view, "WAITS_S", (0,))
    monkeypatch.setattr(view, "MAX_READ_BYTES", 500)
    run_state_machine_as_test(
        histories,
        settings=hypothesis_settings(
            max_examples=EXAMPLES_OF_TIER[pytestconfig.getoption("tier")],
            stateful_step_count=STEPS,
            deadline=None,
            database=None,
            suppress_health_check=suppressed,
        ),
    )


@pytest.mark.timeout(300)
def test_random_histories_of_a_view(store: Store, monkeypatch, pytestconfig: pytest.Config) -> None:
    JournalledHistories.store = store
    run_histories(JournalledHistories, pytestconfig, monkeypatch)


@pytest.mark.timeout(300)
def test_random_histories_of_a_view_on_a_cluster(
    cluster: StoreCluster, store: Store, monkeypatch, pytestconfig: pytest.Config
) -> None:
    JournalledHistoriesOnACluster.cluster = cluster
    JournalledHistoriesOnACluster.store = store
    run_histories(JournalledHistoriesOnACluster, pytestconfig, monkeypatch, [HealthCheck.too_slow])
