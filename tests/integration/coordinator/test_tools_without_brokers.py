"""The command's tools read coordinator and storage directly: no proxy runs here, and no broker."""

from __future__ import annotations

import asyncio
import json
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml
from redis.asyncio import Redis
from typer.testing import CliRunner

from proxy import config
from proxy.cli import app
from proxy.coordinator.registry import RedisTopicRegistry
from proxy.diskless.wal.segment import SegmentBuilder, segment_key
from proxy.records.batches import read_header
from tests.batches import make_batch

TOPIC = uuid.UUID(int=0x1234).bytes


class Tools:
    """One diskless topic of two partitions, with an object that has two batches of one and one of the other."""

    def __init__(self, directory: Path, settings: config.Redis) -> None:
        self.wal = directory / "wal"
        self._config = directory / "proxy.yaml"
        written = {
            "rack": "a",
            "brokers": {"bootstrap": ["127.0.0.1:1"], "connect_timeout_ms": 500},
            "redis": {"url": settings.url, "shards": settings.shards},
            "journal": {"mode": "off"},
            "storage": {"url": self.wal.as_uri()},
        }
        self._config.write_text(yaml.safe_dump(written))

    def use_a_journal(self) -> None:
        """Leave `journal.mode` to its default."""
        settings = yaml.safe_load(self._config.read_text())
        self._config.write_text(yaml.safe_dump({name: one for name, one in settings.items() if name != "journal"}))

    async def fill(self, client: Redis, settings: config.Redis, coordinator: Any) -> str:
        registry = RedisTopicRegistry(client, settings)
        await registry.reserve("orders", 2, {"retention.ms": "-1", "diskless.enable": "true"}, "nobody")
        await coordinator.create_logs(TOPIC, [0, 1])
        await registry.activate("orders", TOPIC, 2)
        builder = SegmentBuilder()
        for partition, values in ((1, [b"a", b"b"]), (0, [b"c"]), (1, [b"d"])):
            batch = memoryview(make_batch(values))
            builder.add(TOPIC, partition, batch, read_header(batch))
        built = builder.build()
        key = segment_key(built.segment)
        path = self.wal / key
        path.parent.mkdir(parents=True)
        path.write_bytes(built.data)
        await coordinator.commit(built.segment, built.runs)
        return key

    async def run(self, *arguments: str, exit_code: int = 0) -> str:
        command = [*arguments, "--config", str(self._config)]
        done = await asyncio.to_thread(CliRunner().invoke, app, command)
        assert done.exit_code == exit_code, f"{done.stdout}\n{done.stderr}\n{done.exception!r}"
        return done.stdout if exit_code == 0 else done.stderr


@pytest.fixture
async def tools(tmp_path: Path, settings: config.Redis) -> Tools:
    return Tools(tmp_path, settings)


@pytest.fixture
async def key(tools: Tools, client: Redis, settings: config.Redis, make_coordinator: Callable[..., Any]) -> str:
    return await tools.fill(client, settings, make_coordinator())


async def test_diskless_topics_are_listed(tools: Tools, key: str) -> None:
    (row,) = json.loads(await tools.run("topics", "list", "--diskless", "--json"))["topics"]
    assert row == {
        "topic": "orders",
        "kind": "diskless",
        "partitions": 2,
        "state": "live",
        "topic_id": "AAAAAAAAAAAAAAAAAAASNA",
    }
    assert "orders" in await tools.run("topics", "list", "--diskless")
    assert "127.0.0.1:1" in await tools.run("topics", "list", exit_code=1)


async def test_a_topic_is_described_except_for_what_brokers_know(tools: Tools, key: str) -> None:
    (topic,) = json.loads(await tools.run("topics", "describe", "orders", "--json"))["topics"]
    size = (tools.wal / key).stat().st_size
    assert (topic["live_bytes"], topic["total_bytes"], topic["dead_bytes"]) == (size - 1, size, 0)
    assert [(one["log_start_offset"], one["high_watermark"]) for one in topic["partitions"]] == [(0, 1), (0, 3)]
    assert (topic["shadow"], topic["stray_records"]) == ("unknown", None)
    assert "127.0.0.1:1" in topic["brokers_failure"]
    assert topic["configs"] == {"diskless.enable": "true", "retention.ms": "-1"}
    text = await tools.run("topics", "describe")
    assert "retention.ms=-1" in text
    assert "stray records are not known" in text


async def test_a_lost_object_is_reported_and_ends_with_1(tools: Tools, key: str) -> None:
    (tools.wal / key).unlink()
    await tools.run("topics", "describe", "orders", exit_code=1)
    await tools.run("segments", "describe", key, exit_code=1)
    assert "no object" in await tools.run("segments", "dump", key, exit_code=1)


async def test_the_owners_of_a_segments_batches(tools: Tools, key: str) -> None:
    (one,) = json.loads(await tools.run("segments", "describe", key, "--json"))["segments"]
    assert [(extent["partition"], extent["base_offset"], extent["last_offset"]) for extent in one["extents"]] == [
        (0, 0, 0),
        (1, 0, 2),
    ]
    shown = [
        json.loads(line)
        for line in (await tools.run("segments", "dump", key, "--offsets", "--records", "--json")).splitlines()
    ]
    assert [
        (batch["partition"], batch["baseOffset"], [record["value"] for record in batch["records"]]) for batch in shown
    ] == [(0, 0, ["c"]), (1, 0, ["a", "b"]), (1, 2, ["d"])]
    assert "orders-1" in await tools.run("segments", "dump", key, "--offsets")
    for arguments in ((key,), ("--topic", "orders")):
        assert "orders" in await tools.run("segments", "describe", *arguments)


async def test_nothing_is_written(tools: Tools, key: str, client: Redis) -> None:
    async def everything() -> dict[bytes, bytes | None]:
        return {name: await client.dump(name) for name in sorted(await client.keys("*"))}

    before, files = await everything(), sorted(tools.wal.rglob("*"))
    for arguments in (("topics", "describe"), ("segments", "describe", key), ("segments", "dump", key, "--offsets")):
        await tools.run(*arguments)
    assert await everything() == before
    assert sorted(tools.wal.rglob("*")) == files


async def test_a_journal_cannot_be_read_without_brokers(tools: Tools, key: str) -> None:
    tools.use_a_journal()
    line = await tools.run("topics", "describe", exit_code=1)
    assert "the journal does not answer: 127.0.0.1:1" in line
    assert "set `brokers` as for a proxy" in line
