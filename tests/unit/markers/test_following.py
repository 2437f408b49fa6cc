"""Shadows are read and followed at their leaders: brokers in memory, and the coordinator's model."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

import pytest

from proxy.brokers.upstream import BrokerUnreachable
from proxy.config.transactions import Transactions
from proxy.coordinator.interface import PartitionRun, ProposedBatch
from proxy.coordinator.interface_transactions import EnlistAnswer, Enlistment
from proxy.coordinator.shards import partition_key, shard_of
from proxy.markers.catching_up import CatchingUp
from proxy.markers.follower import MarkerFollower
from proxy.markers.leaders import ShadowLeaders
from proxy.markers.reader import MarkerReader
from proxy.markers.stats import MarkerStats
from proxy.telemetry.throttled_log import ThrottledLog
from tests.coordinator_model import ModelCoordinator
from tests.unit.markers.brokers_double import Brokers, Log, Shadow

TOPIC = bytes(range(16))
LOG, OTHER = (TOPIC, 0), (TOPIC, 1)
PRODUCER = 70
SHARDS = 16


class Proxy:
    """The parts of one proxy that read markers, on shared brokers and a shared coordinator."""

    def __init__(self, brokers: Brokers, coordinator: ModelCoordinator, *, live: tuple[str, ...] = ("a",)) -> None:
        now = asyncio.get_running_loop().time
        self.stats = MarkerStats()
        transactions, leaders = coordinator.transactions, ShadowLeaders(brokers.any)
        reader = MarkerReader(transactions, leaders, self.stats, ThrottledLog(now), lambda: 1_500)
        self.catching_up = CatchingUp(transactions, reader, leaders, brokers.connect, timeout_s=5.0)
        self.follower = MarkerFollower(
            transactions,
            reader,
            leaders,
            brokers.connect,
            Transactions(),
            shards=SHARDS,
            identity=live[0],
            live=lambda: dict.fromkeys(live, True),
            now=now,
        )

    @asynccontextmanager
    async def following(self) -> AsyncIterator[MarkerFollower]:
        task = asyncio.ensure_future(self.follower.follow())
        try:
            yield self.follower
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)


@pytest.fixture
async def coordinator() -> ModelCoordinator:
    coordinator = ModelCoordinator()
    await coordinator.create_logs(TOPIC, range(2))
    return coordinator


@pytest.fixture
def brokers() -> Brokers:
    brokers = Brokers()
    brokers.shadows = {LOG: Shadow(0), OTHER: Shadow(1)}
    return brokers


async def begin(coordinator: ModelCoordinator, log: Log, markers_from: int, *, sequence: int = 0) -> None:
    """Open a transaction of two records."""
    answers = await coordinator.transactions.enlist([Enlistment(*log, PRODUCER, 0, markers_from)])
    assert answers == [EnlistAnswer.ENLISTED]
    batch = ProposedBatch(100, 2, 1_000, PRODUCER, 0, sequence, 1)
    (answer,) = await coordinator.commit(os.urandom(16), [PartitionRun(*log, 1, (batch,))])
    assert [one.error_code for one in answer.batches] == [0]


async def position(coordinator: ModelCoordinator, log: Log) -> tuple[int, int]:
    ((leader_epoch, offset),) = await coordinator.transactions.positions([log])
    return leader_epoch, offset


async def until(condition: Callable[[], bool]) -> None:
    for _ in range(20_000):
        if condition():
            return
        await asyncio.sleep(0.001)
    raise AssertionError("waited too long")


async def test_catching_up_at_several_brokers(brokers: Brokers, coordinator: ModelCoordinator) -> None:
    proxy = Proxy(brokers, coordinator)
    await begin(coordinator, LOG, 0)
    for log in (LOG, OTHER):
        brokers.shadows[log].append(PRODUCER, 0, committed=False)
    await proxy.catching_up.catch_up([LOG, OTHER, (TOPIC, 7)])
    assert [await position(coordinator, log) for log in (LOG, OTHER)] == [(0, 1), (0, 1)]
    assert (proxy.stats.committed, proxy.stats.aborted, proxy.stats.lag_seconds.count) == (0, 1, 1)
    assert coordinator.logs[LOG].stable == 3


async def test_catching_up_after_the_leader_has_moved(brokers: Brokers, coordinator: ModelCoordinator) -> None:
    proxy, shadow = Proxy(brokers, coordinator), brokers.shadows[LOG]
    shadow.append(PRODUCER, 0)
    await proxy.catching_up.catch_up([LOG])
    shadow.move(1)
    shadow.append(PRODUCER, 0)
    await proxy.catching_up.catch_up([LOG])
    assert await position(coordinator, LOG) == (1, 2)


async def test_catching_up_when_the_leader_dies(brokers: Brokers, coordinator: ModelCoordinator) -> None:
    proxy, shadow = Proxy(brokers, coordinator), brokers.shadows[LOG]
    await proxy.catching_up.catch_up([LOG])
    brokers.down.add(0)
    shadow.append(PRODUCER, 0)
    waiting = asyncio.ensure_future(proxy.catching_up.catch_up([LOG]))
    await until(lambda: brokers.metadata_requests > 2)
    shadow.move(1)
    await waiting
    assert await position(coordinator, LOG) == (0, 1)


async def test_catching_up_gives_up(brokers: Brokers, coordinator: ModelCoordinator) -> None:
    proxy = Proxy(brokers, coordinator)
    brokers.down.add(0)
    proxy.catching_up.timeout_s = 0.2
    brokers.shadows[OTHER].append(PRODUCER, 0)
    with pytest.raises(BrokerUnreachable, match="of 1 placeholder"):
        await proxy.catching_up.catch_up([LOG, OTHER])
    assert await position(coordinator, OTHER) == (0, 1)


async def test_callers_share_rounds(brokers: Brokers, coordinator: ModelCoordinator) -> None:
    """Callers that come while a request is under way are answered by the next one."""
    proxy = Proxy(brokers, coordinator)
    await proxy.catching_up.catch_up([LOG])
    before = len(brokers.fetches)
    await asyncio.gather(*(proxy.catching_up.catch_up([LOG]) for _ in range(50)))
    assert len(brokers.fetches) - before <= 3


async def test_a_cancelled_caller_does_not_end_the_round(brokers: Brokers, coordinator: ModelCoordinator) -> None:
    proxy = Proxy(brokers, coordinator)
    brokers.shadows[LOG].append(PRODUCER, 0)
    callers = [asyncio.ensure_future(proxy.catching_up.catch_up([LOG])) for _ in range(3)]
    await until(lambda: brokers.metadata_requests > 0)
    callers[0].cancel()
    await asyncio.gather(*callers[1:])
    assert await position(coordinator, LOG) == (0, 1)


async def test_markers_that_were_deleted_before_they_were_read(brokers: Brokers, coordinator: ModelCoordinator) -> None:
    proxy, shadow = Proxy(brokers, coordinator), brokers.shadows[LOG]
    for _ in range(3):
        shadow.append(PRODUCER, 0)
    shadow.start = 2
    await proxy.catching_up.catch_up([LOG])
    assert (proxy.stats.lost, await position(coordinator, LOG)) == (2, (0, 3))


async def test_an_unclean_election(brokers: Brokers, coordinator: ModelCoordinator) -> None:
    """The next transaction's marker has an offset that was read before, and ends it all the same."""
    proxy, shadow = Proxy(brokers, coordinator), brokers.shadows[LOG]
    for _ in range(3):
        shadow.append(PRODUCER, 0)
    await proxy.catching_up.catch_up([LOG])
    shadow.move(1, end=1)
    await proxy.catching_up.catch_up([LOG])
    assert await position(coordinator, LOG) == (0, 1)
    await begin(coordinator, LOG, 1)
    shadow.append(PRODUCER, 0)
    await proxy.catching_up.catch_up([LOG])
    assert coordinator.logs[LOG].stable == 3


async def test_a_clean_election_changes_nothing(brokers: Brokers, coordinator: ModelCoordinator) -> None:
    proxy, shadow = Proxy(brokers, coordinator), brokers.shadows[LOG]
    for _ in range(3):
        shadow.append(PRODUCER, 0)
    await proxy.catching_up.catch_up([LOG])
    shadow.move(1)
    await proxy.catching_up.catch_up([LOG])
    assert await position(coordinator, LOG) == (0, 3)


async def test_a_transaction_is_followed_to_its_end(brokers: Brokers, coordinator: ModelCoordinator) -> None:
    proxy, shadow = Proxy(brokers, coordinator), brokers.shadows[LOG]
    await begin(coordinator, LOG, 0)
    async with proxy.following() as follower:
        await until(lambda: len(follower) == 1)
        await until(lambda: any(epoch > 0 for _, epoch, _, _ in brokers.fetches))
        shadow.append(PRODUCER, 0)
        await until(lambda: coordinator.logs[LOG].stable == 3)
    assert {node for node, _, _, _ in brokers.fetches} == {0}
    again = [named for _, epoch, _, named in brokers.fetches if epoch > 0 and named]
    assert len(again) <= 1, "the session names a partition again only after it was read further"


async def test_a_hint_is_followed_at_once(brokers: Brokers, coordinator: ModelCoordinator) -> None:
    """It does not wait for the poll of other shadows that is under way, nor for the next look."""
    proxy = Proxy(brokers, coordinator)
    brokers.shadows[OTHER] = Shadow(0)
    await begin(coordinator, LOG, 0)
    async with proxy.following() as follower:
        await until(lambda: any(epoch > 0 for _, epoch, _, _ in brokers.fetches))
        await begin(coordinator, OTHER, 0)
        follower.hint(*OTHER)
        brokers.shadows[OTHER].append(PRODUCER, 0)
        await until(lambda: coordinator.logs[OTHER].stable == 3)
    joined = [epoch for _, epoch, _, named in brokers.fetches if OTHER in named]
    assert joined[0] == -1


async def test_the_tail_goes_on_at_a_new_leader(brokers: Brokers, coordinator: ModelCoordinator) -> None:
    proxy, shadow = Proxy(brokers, coordinator), brokers.shadows[LOG]
    await begin(coordinator, LOG, 0)
    async with proxy.following() as follower:
        await until(lambda: bool(brokers.fetches))
        brokers.down.add(0)
        await until(lambda: follower.stalled_seconds() > 0)
        shadow.move(1)
        shadow.append(PRODUCER, 0)
        await until(lambda: coordinator.logs[LOG].stable == 3)
        await until(lambda: follower.stalled_seconds() == 0)


async def test_a_session_that_the_broker_has_dropped(brokers: Brokers, coordinator: ModelCoordinator) -> None:
    proxy, shadow = Proxy(brokers, coordinator), brokers.shadows[LOG]
    await begin(coordinator, LOG, 0)
    async with proxy.following():
        await until(lambda: any(epoch > 0 for _, epoch, _, _ in brokers.fetches))
        brokers.sessions.clear()
        shadow.append(PRODUCER, 0)
        await until(lambda: coordinator.logs[LOG].stable == 3)


async def test_each_shard_has_one_follower(brokers: Brokers, coordinator: ModelCoordinator) -> None:
    """All proxies agree about the shards of each, and follow nothing else, not even by a hint."""
    names = ("a", "b", "c")
    proxies = [Proxy(brokers, coordinator, live=(name, *(set(names) - {name}))) for name in names]
    await begin(coordinator, LOG, 0)
    owner = None
    for proxy in proxies:
        async with proxy.following() as follower:
            await until(lambda: bool(follower.own_shards))
            if shard_of(partition_key(*LOG), SHARDS) in follower.own_shards:
                owner = proxy
            else:
                follower.hint(*LOG)
                await asyncio.sleep(0)
                assert not follower._hinted
    owned = [shard for proxy in proxies for shard in proxy.follower.own_shards]
    assert sorted(owned) == list(range(SHARDS))
    assert owner is not None


async def test_nothing_to_follow_costs_no_request_to_brokers(brokers: Brokers, coordinator: ModelCoordinator) -> None:
    proxy = Proxy(brokers, coordinator)
    async with proxy.following() as follower:
        await until(lambda: bool(follower.own_shards))
        await asyncio.sleep(0.05)
    assert (brokers.fetches, brokers.metadata_requests, len(follower)) == ([], 0, 0)


async def test_two_tails_end_a_transaction_once(brokers: Brokers, coordinator: ModelCoordinator) -> None:
    """Each proxy takes the other one for dead."""
    proxies = [Proxy(brokers, coordinator, live=(name,)) for name in ("a", "b")]
    async with proxies[0].following(), proxies[1].following():
        for number in range(5):
            await begin(coordinator, LOG, number, sequence=2 * number)
            await until(lambda: all(len(proxy.follower) == 1 for proxy in proxies))
            brokers.shadows[LOG].append(PRODUCER, 0)
            await until(lambda end=3 * (number + 1): coordinator.logs[LOG].stable == end)
    assert sum(proxy.stats.committed for proxy in proxies) == 5
    assert [row.base_offset for row in coordinator.logs[LOG].rows if not row.length] == [2, 5, 8, 11, 14]
