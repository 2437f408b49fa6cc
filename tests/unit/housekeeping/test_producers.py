"""Expired producers are removed from every partition of every live topic."""

from __future__ import annotations

from proxy.coordinator.interface import PartitionRun, ProposedBatch
from proxy.coordinator.interface_registry import DisklessTopic
from proxy.housekeeping import producers
from proxy.housekeeping.producers import ProducerExpiry
from tests.coordinator_model import ModelCoordinator
from tests.unit.housekeeping.registry import topics_of

TOPICS = [DisklessTopic(f"topic-{number}", bytes([number]) * 16, 3, "live") for number in range(1, 4)]


async def test_all_partitions_are_checked_in_steps(monkeypatch) -> None:
    monkeypatch.setattr(producers, "PARTITIONS_PER_STEP", 2)
    clock = [0]
    coordinator = ModelCoordinator(producer_id_expiration_ms=100, clock=lambda: clock[0])
    logs = [(topic.topic_id, partition) for topic in TOPICS for partition in range(topic.partitions)]
    for topic in TOPICS:
        await coordinator.create_logs(topic.topic_id, range(topic.partitions))
    for number, log in enumerate(logs):
        clock[0] = number * 10
        batch = ProposedBatch(100, 1, 1_000, number, 0, 0)
        await coordinator.commit(bytes([number]) * 16, [PartitionRun(*log, 1, (batch,))])
    deleting = DisklessTopic("deleting", b"d" * 16, 1, "deleting")
    expiry = ProducerExpiry(coordinator, topics_of(*TOPICS, deleting))
    for clock[0], forgotten in ((99, 0), (100, 1), (149, 4), (179, 3), (180, 1), (1_000, 0)):
        assert await expiry.sweep() == forgotten
    assert not any(coordinator.logs[log].producers for log in logs)
