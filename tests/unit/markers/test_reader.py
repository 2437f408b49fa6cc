"""Answers of leaders, also those that are older than the position that another reader has stored meanwhile."""

from __future__ import annotations

import pytest

from proxy.coordinator.interface_transactions import NO_EPOCH, MarkersRead, ShadowPosition
from proxy.markers.leaders import ShadowLeaders
from proxy.markers.reader import MarkerReader, Outcome
from proxy.markers.stats import MarkerStats
from proxy.telemetry.throttled_log import ThrottledLog
from proxy.wire.fetch_response import PartitionFetched
from tests.coordinator_model import ModelCoordinator
from tests.unit.markers.brokers_double import Brokers, Shadow

TOPIC = bytes(range(16))
LOG, OTHER = (TOPIC, 0), (TOPIC, 1)
PRODUCER = 70


@pytest.fixture
async def coordinator() -> ModelCoordinator:
    coordinator = ModelCoordinator()
    await coordinator.create_logs(TOPIC, range(1))
    return coordinator


@pytest.fixture
def brokers() -> Brokers:
    brokers = Brokers()
    brokers.shadows = {LOG: Shadow(0), OTHER: Shadow(0)}
    for shadow in brokers.shadows.values():
        for _ in range(4):
            shadow.append(PRODUCER, 0)
    return brokers


async def take(brokers: Brokers, coordinator: ModelCoordinator, log: tuple[bytes, int], from_offset: int) -> Outcome:
    """Take the leader's answer to a Fetch from an offset."""
    leaders = ShadowLeaders(brokers.any)
    await leaders.know(brokers.shadows)
    reader = MarkerReader(coordinator.transactions, leaders, MarkerStats(), ThrottledLog(lambda: 0.0), lambda: 1_500)
    shadow = brokers.shadows[log]
    records = b"".join(shadow.batches[from_offset:])
    answer = PartitionFetched(log[1], 0, shadow.end, shadow.end, 0, (records,), len(records))
    return await reader.take(brokers.connect(0), {log: answer}, {log: ShadowPosition(0, from_offset)})


async def test_markers_up_to_the_end(brokers: Brokers, coordinator: ModelCoordinator) -> None:
    outcome = await take(brokers, coordinator, LOG, 0)
    assert outcome == Outcome({LOG: ShadowPosition(0, 4)}, {LOG}, set(), {})


async def test_a_position_that_another_reader_has_set_back(brokers: Brokers, coordinator: ModelCoordinator) -> None:
    """An unclean election was noticed by the other one: the markers of this answer are not applied, so the shadow is
    not at its end."""
    await coordinator.transactions.apply_markers([MarkersRead(*LOG, 0, 3, 0, ())])
    await coordinator.transactions.apply_markers([MarkersRead(*LOG, 3, 1, 0, ())])
    outcome = await take(brokers, coordinator, LOG, 3)
    assert outcome == Outcome({LOG: ShadowPosition(NO_EPOCH, 1)}, set(), set(), {})


async def test_another_reader_was_faster(brokers: Brokers, coordinator: ModelCoordinator) -> None:
    """Its markers are applied, so the shadow is at its end all the same."""
    await coordinator.transactions.apply_markers([MarkersRead(*LOG, 0, 5, 0, ())])
    outcome = await take(brokers, coordinator, LOG, 2)
    assert outcome == Outcome({LOG: ShadowPosition(NO_EPOCH, 5)}, {LOG}, set(), {})


async def test_a_log_that_is_gone(brokers: Brokers, coordinator: ModelCoordinator) -> None:
    outcome = await take(brokers, coordinator, OTHER, 0)
    assert outcome == Outcome({}, set(), {OTHER}, {})
