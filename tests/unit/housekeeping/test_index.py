"""The choice of logs to pack."""

from __future__ import annotations

from typing import Any, cast

from proxy.coordinator.interface import Coordinator
from proxy.coordinator.interface_registry import DisklessTopic
from proxy.housekeeping.index import IndexPacker
from tests.unit.housekeeping.registry import topics_of


class Asked:
    """A coordinator that records the logs to pack."""

    def __init__(self) -> None:
        self.packed: list[tuple[list[tuple[bytes, int]], int]] = []

    async def pack_rows(self, logs: Any, older_than_ms: int) -> None:
        self.packed.append((list(logs), older_than_ms))


async def test_every_partition_of_the_live_topics_in_steps() -> None:
    many, few, going = b"m" * 16, b"f" * 16, b"g" * 16
    asked = Asked()
    topics = topics_of(
        DisklessTopic("many", many, 1_500, "live"),
        DisklessTopic("reserved", bytes(16), 3, "reserved"),
        DisklessTopic("going", going, 3, "deleting"),
        DisklessTopic("few", few, 2, "live"),
    )
    await IndexPacker(cast(Coordinator, asked), topics, age_ms=7).sweep()
    assert [(len(logs), age_ms) for logs, age_ms in asked.packed] == [(1_000, 7), (502, 7)]
    logs = [log for some, _ in asked.packed for log in some]
    assert logs == [*((many, partition) for partition in range(1_500)), (few, 0), (few, 1)]
