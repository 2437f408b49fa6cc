"""Old markers are deleted from placeholder topics, if they were applied."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from structlog.testing import capture_logs

from proxy.coordinator.interface_transactions import MarkersRead
from proxy.housekeeping.old_markers import LONGEST_INTERVAL_MS, OldMarkers, interval_ms
from proxy.housekeeping.stray import Looked
from tests.coordinator_model import ModelCoordinator
from tests.unit.markers.brokers_double import Brokers, Log, Shadow

TOPIC = bytes(range(16))
LOG, OTHER = (TOPIC, 0), (TOPIC, 1)
NOW_MS, KEPT_MS = 10_000, 5_000


class House:
    """Two placeholder partitions at two brokers: each has three old markers and a young one."""

    def __init__(self, coordinator: ModelCoordinator) -> None:
        self.coordinator = coordinator
        self.brokers = Brokers()
        self.brokers.shadows = {LOG: Shadow(0), OTHER: Shadow(1)}
        for shadow in self.brokers.shadows.values():
            for timestamp_ms in (1_000, 2_000, 4_999, 5_000):
                shadow.append(70, 0, timestamp_ms=timestamp_ms)
        self.looked = {(TOPIC.hex(), index): Looked(TOPIC, 0, 4) for index in range(2)}
        cluster: Any = SimpleNamespace(
            service=SimpleNamespace(ask=self.brokers.any), connection_to=self.brokers.connect
        )
        self.old_markers = OldMarkers(
            cluster, coordinator.transactions, lambda: self.looked, kept_ms=KEPT_MS, now_ms=lambda: NOW_MS
        )

    async def apply(self, log: Log, up_to: int) -> None:
        """Let markers count as applied."""
        await self.coordinator.transactions.apply_markers([MarkersRead(*log, 0, up_to, 0, ())])

    def starts(self) -> list[int]:
        return [shadow.start for shadow in self.brokers.shadows.values()]


@pytest.fixture
async def house() -> House:
    coordinator = ModelCoordinator()
    await coordinator.create_logs(TOPIC, range(2))
    return House(coordinator)


async def test_old_markers_that_were_applied_are_deleted(house: House) -> None:
    await house.apply(LOG, 4)
    await house.apply(OTHER, 2)
    await house.old_markers.delete()
    assert house.starts() == [3, 2]
    assert sorted(node_id for node_id, _ in house.brokers.deletions) == [0, 1]


async def test_without_a_young_marker_all_of_them_go(house: House) -> None:
    for shadow in house.brokers.shadows.values():
        shadow.times[-1] = 4_999
    await house.apply(LOG, 4)
    await house.apply(OTHER, 4)
    house.brokers.shadows[OTHER].append(70, 0, timestamp_ms=4_999)  # after the look
    await house.old_markers.delete()
    assert house.starts() == [4, 4]


async def test_a_marker_that_was_not_applied_is_kept(house: House) -> None:
    await house.old_markers.delete()
    assert (house.starts(), house.brokers.deletions) == ([0, 0], [])


async def test_nothing_is_asked_for_again(house: House) -> None:
    """Nobody has to delete in a log that has no more old markers, or whose records are not looked through."""
    await house.apply(LOG, 4)
    await house.apply(OTHER, 4)
    house.looked = {(TOPIC.hex(), 0): Looked(TOPIC, 3, 4)}
    house.brokers.shadows[LOG].start = 3
    await house.old_markers.delete()
    assert (house.starts(), house.brokers.deletions) == ([3, 0], [])


async def test_a_recreated_topic_of_the_same_name_is_left_alone(house: House) -> None:
    await house.apply(LOG, 4)
    house.looked[TOPIC.hex(), 0].topic_id = bytes(16)
    house.looked[TOPIC.hex(), 1].topic_id = bytes(16)
    await house.old_markers.delete()
    assert house.starts() == [0, 0]


async def test_a_missing_right_is_reported_once(house: House) -> None:
    house.brokers.may_delete = False
    await house.apply(LOG, 4)
    with capture_logs() as logs:
        await house.old_markers.delete()
        await house.old_markers.delete()
    assert [one["event"] for one in logs] == ["old_markers_not_deleted"]
    assert house.starts() == [0, 0]
    house.brokers.may_delete = True
    await house.old_markers.delete()
    assert house.starts() == [3, 0]


def test_how_often() -> None:
    assert interval_ms(86_400_000) == LONGEST_INTERVAL_MS
    assert interval_ms(60_000_000) == 2_500_000
    assert interval_ms(0) == 1_000
