"""`topics describe` shows each partition's shard of the coordinator, because alerts on an index name shards."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from proxy.cli import app, topics
from proxy.coordinator.interface_registry import DisklessTopic
from proxy.coordinator.shards import partition_key, shard_of
from proxy.inspection.shadows import BrokersView
from proxy.inspection.topics import PartitionFigures, TopicFigures

TOPIC = DisklessTopic("orders", bytes(range(16)), 3, "live")
SHARDS = 1_000
"""Number of shards that makes a shard's number different from all other figures."""


@pytest.fixture(autouse=True)
def described(monkeypatch: pytest.MonkeyPatch) -> None:
    partitions = tuple(PartitionFigures(one, True, 0, 5, 1, 99, 0, 1) for one in range(TOPIC.partitions))
    figures = TopicFigures(TOPIC, partitions, True, 1, 300, 297, ())

    async def read(_config: Path, _names: list[str], _quick: bool) -> list[dict[str, Any]]:
        return [topics._as_json(figures, BrokersView(), SHARDS)]

    monkeypatch.setattr(topics, "_described", read)


def run(*options: str) -> str:
    done = CliRunner().invoke(app, ["topics", "describe", "--config", "proxy.yaml", *options])
    assert done.exit_code == 0, done.output
    return done.stdout


def shards() -> list[int]:
    return [shard_of(partition_key(TOPIC.topic_id, one), SHARDS) for one in range(TOPIC.partitions)]


def test_shards_as_json() -> None:
    (topic,) = json.loads(run("--json"))["topics"]
    assert [one["shard"] for one in topic["partitions"]] == shards()


def test_shards_in_the_table() -> None:
    heading, *rows = [line.split() for line in run().splitlines() if "┃" in line or "│" in line]
    assert [rows[place][3] for place in range(TOPIC.partitions)] == [str(shard) for shard in shards()]
    assert heading.index("shard") > heading.index("partition")
