"""Audit a store that changes all the time: nothing right is reported, and defects are still found."""

from __future__ import annotations

import asyncio
import random
import threading
from collections.abc import Iterator

import pytest

from pipeline.audit.audit import AuditOptions
from proxy.config import Settings
from proxy.coordinator import rewriting
from proxy.coordinator.connect import connect
from proxy.coordinator.interface import DeleteRequest, FindRequest
from proxy.coordinator.interface_registry import DisklessTopic
from proxy.coordinator.interface_rewriting import Swap, SwapAnswer
from proxy.coordinator.registry import RedisTopicRegistry
from proxy.housekeeping.garbage import GarbageCollector
from proxy.inspection.stores import Stores, open_stores
from proxy.telemetry.stats import Stats
from tests.pipeline.audit.healthy import Hands, audited, kinds, merged_row
from tests.support.segments import make_topic, write_segments

AUDITS = 12
FIRST_ROWS, MOST_ROWS = 20, 120
"""Number of rows of a log that is extended and trimmed all the time."""
QUICK = {"grace_ms": 200, "orphan_age_ms": 60_000}


class Changes:
    """Produces, trims, merges, packs, creates and deletes topics, and collects garbage, in a thread."""

    def __init__(self, settings: Settings, topics: list[DisklessTopic]) -> None:
        self._settings = settings
        self._topics = topics
        self._chance = random.Random(7)
        self._end = threading.Event()
        self.done: dict[str, int] = {}
        self.error: BaseException | None = None
        self._thread = threading.Thread(target=self._run, name="changes")
        self._thread.start()

    def end(self) -> None:
        self._end.set()
        self._thread.join(60)
        assert not self._thread.is_alive()
        if self.error is not None:
            raise self.error

    def _run(self) -> None:
        try:
            asyncio.run(self._all())
        except BaseException as error:
            self.error = error

    async def _all(self) -> None:
        async with open_stores(self._settings) as stores:
            collector = GarbageCollector(stores.coordinator, stores.storage, stores.settings.garbage, Stats())
            async with asyncio.TaskGroup() as group:
                for work in (self._write, self._trim, self._merge, self._pack, self._come_and_go):
                    group.create_task(self._again(work, stores))
                group.create_task(self._again(lambda _: collector.collect(), stores, "collected"))

    async def _again(self, work, stores: Stores, name: str = "") -> None:  # type: ignore[no-untyped-def]
        while not self._end.is_set():
            await work(stores)
            self.done[name or work.__name__] = self.done.get(name or work.__name__, 0) + 1
            await asyncio.sleep(0.002)

    def _any_log(self) -> tuple[DisklessTopic, int]:
        topic = self._chance.choice(self._topics)
        return topic, self._chance.randrange(topic.partitions)

    async def _write(self, stores: Stores) -> None:
        topic = self._chance.choice(self._topics)
        (log,) = await stores.coordinator.describe(topic.topic_id, [0])
        assert log is not None
        if log.rows < MOST_ROWS:
            await write_segments(self._settings, topic, 2)

    async def _trim(self, stores: Stores) -> None:
        topic, partition = self._any_log()
        (log,) = await stores.coordinator.describe(topic.topic_id, [partition])
        assert log is not None
        before = log.log_start_offset + self._chance.randrange(25)
        if log.high_watermark - before > FIRST_ROWS * 10:
            await stores.coordinator.delete_records([DeleteRequest(topic.topic_id, partition, before)])

    async def _merge(self, stores: Stores) -> None:
        topic, partition = self._any_log()
        (log,) = await stores.coordinator.describe(topic.topic_id, [partition])
        assert log is not None
        from_offset = self._chance.randrange(log.log_start_offset, log.high_watermark + 1)
        (answer,) = await stores.coordinator.find([FindRequest(topic.topic_id, partition, from_offset, 1 << 40)])
        old = answer.rows[: self._chance.randrange(2, 12)]
        if old:
            new = await merged_row(stores, old)
            answers = await stores.coordinator.rows.replace([Swap(topic.topic_id, partition, old, new)]) if new else []
            self.done["swapped"] = self.done.get("swapped", 0) + answers.count(SwapAnswer.REPLACED)

    async def _pack(self, stores: Stores) -> None:
        topic, partition = self._any_log()
        await stores.coordinator.pack_rows([(topic.topic_id, partition)], 0)

    async def _come_and_go(self, stores: Stores) -> None:
        number = self.done.get("_come_and_go", 0)
        topic = await make_topic(self._settings, f"passing-{number}", 3)
        await write_segments(self._settings, topic, 6)
        client = await connect(self._settings.redis)
        try:
            registry = RedisTopicRegistry(client, self._settings.redis)
            await registry.begin_delete(topic.name, topic.topic_id)
            await stores.coordinator.delete_logs(topic.topic_id, range(topic.partitions))
            await registry.remove(topic.name, topic.topic_id)
        finally:
            await client.aclose()


@pytest.fixture
def busy_settings(light_settings: Settings) -> Settings:
    return light_settings.model_copy(update={"garbage": light_settings.garbage.model_copy(update=QUICK)})


@pytest.fixture
def topics(busy_settings: Settings) -> list[DisklessTopic]:
    async def make() -> list[DisklessTopic]:
        made = [await make_topic(busy_settings, name, 3) for name in ("first", "second")]
        for topic in made:
            await write_segments(busy_settings, topic, FIRST_ROWS)
        return made

    return asyncio.run(make())


@pytest.fixture
def changes(busy_settings: Settings, topics: list[DisklessTopic]) -> Iterator[Changes]:
    changes = Changes(busy_settings, topics)
    yield changes
    changes.end()


@pytest.mark.timeout(300)
def test_no_false_alarm(busy_settings: Settings, changes: Changes, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rewriting, "MAX_ROWS_PER_PAGE", 16)  # so that much happens between two pages of one log
    options = AuditOptions(orphan_age_ms=60_000, settle_ms=500)
    reports = [audited(busy_settings, options) for _ in range(AUDITS)]
    changes.end()
    assert [report.findings for report in reports] == [[]] * AUDITS
    assert sum(report.figures["suspicions"] for report in reports) > 0, "nothing ever looked wrong: no test of anything"
    assert sum(report.figures["batches_checked"] for report in reports) > 0
    for work in ("_write", "_trim", "swapped", "_pack", "_come_and_go", "collected"):
        assert changes.done.get(work, 0) > 0, changes.done
    at_rest = audited(busy_settings, options)
    assert not at_rest.findings
    assert at_rest.figures["suspicions_unsettled"] == 0


@pytest.mark.timeout(300)
def test_defects_are_still_found(busy_settings: Settings, topics: list[DisklessTopic], changes: Changes) -> None:
    still = asyncio.run(make_topic(busy_settings, "still", 1))
    asyncio.run(write_segments(busy_settings, still, 4))
    hands = Hands(busy_settings, still)
    rows = hands.rows()
    hands.path(rows[1].segment).unlink()
    hands.change_use(rows[2].segment, 1, 0)
    hands.change_log(bytes=3)
    report = audited(busy_settings, AuditOptions(orphan_age_ms=60_000, settle_ms=500))
    assert kinds(report) == {"missing_object", "wrong_used_bytes", "wrong_log_size"}
    assert len(report.findings) == 3
