from __future__ import annotations

import re
from typing import Any

import pytest

from pipeline.source.errors import DataLoss, OptionError, SourceError
from pipeline.source.filters import ANY, Bounds
from pipeline.source.options import parse_options
from pipeline.source.planning import batch_ranges, sized
from pipeline.source.positions import TimeLookup
from pipeline.source.selection import ChosenTopic, choose
from pipeline.source.splits import LogRange
from pipeline.source.times import offset_since
from proxy.coordinator.interface import DeleteRequest
from proxy.coordinator.interface_registry import DisklessTopic
from proxy.diskless.wal.segment import segment_key
from tests.batches import make_batch, make_timed_batch
from tests.support.memory_log import TOPIC, MemoryLog, new_log

ORDERS = DisklessTopic("orders", TOPIC, 3, "live")
TOPICS = [ORDERS, DisklessTopic("soon", bytes(16), 1, "reserved")]


async def plan(
    log: MemoryLog, bounds: Bounds = ANY, lookup: TimeLookup | None = None, **options: str
) -> dict[int, tuple[int, int]]:
    async def in_the_log(topic: ChosenTopic, partition: int, timestamp_ms: int) -> int | None:
        storage: Any = log.storage
        return await offset_since(log.coordinator, storage, topic.name, topic.topic_id, partition, timestamp_ms)

    chosen = {"config": "c", **({} if "assign" in options else {"subscribe": "orders"}), **options}
    parsed = parse_options(chosen, kind="batch")
    ranges = await batch_ranges(log.coordinator, TOPICS, parsed, lookup or in_the_log, bounds)
    assert all((one.topic, one.topic_id) == ("orders", TOPIC) for one in ranges)
    return {one.partition: (one.start, one.end) for one in ranges}


async def filled() -> MemoryLog:
    """Partition 0 with offsets 4 to 9, partition 1 with 0 to 4, partition 2 empty; a second between batches of two."""
    log = await new_log()
    for number in range(5):
        await log.write([(0, make_batch([b"a", b"b"], timestamp_ms=1_000 * number))])
    await log.write([(1, make_batch([b"v"] * 5, timestamp_ms=2_500))])
    await log.coordinator.delete_records([DeleteRequest(TOPIC, 0, 4)])
    return log


async def test_whole_logs() -> None:
    log = await filled()
    assert await plan(log) == {0: (4, 10), 1: (0, 5)}
    assert await plan(log, assign='{"orders": [1]}') == {1: (0, 5)}
    assert await plan(log, subscribe="orders", endingOffsets='{"orders": {"0": 7, "1": -1, "2": -1}}') == {
        0: (4, 7), 1: (0, 5),
    }  # fmt: skip


async def test_missing_offsets_are_a_loss() -> None:
    log = await filled()
    early = '{"orders": {"0": 2, "1": -2, "2": -2}}'
    with pytest.raises(DataLoss, match="orders-0 begins at offset 4, 2 was asked for"):
        await plan(log, startingOffsets=early)
    late = '{"orders": {"0": -1, "1": 9, "2": -1}}'
    with pytest.raises(DataLoss, match="orders-1 ends at offset 5, 9 was asked for"):
        await plan(log, endingOffsets=late)
    found = await plan(log, startingOffsets=early, endingOffsets=late, failOnDataLoss="false")
    assert found == {0: (4, 10), 1: (0, 5)}


async def test_a_start_beyond_the_end_is_a_loss() -> None:
    log = await filled()
    beyond = '{"orders": {"0": 11, "1": -2, "2": 0}}'
    with pytest.raises(DataLoss, match="orders-0 ends at offset 10, 11 was asked for"):
        await plan(log, startingOffsets=beyond)
    assert await plan(log, startingOffsets=beyond, failOnDataLoss="false") == {1: (0, 5)}
    assert await plan(log, startingOffsets='{"orders": {"0": 10, "1": 5, "2": 0}}') == {}


async def test_records_written_during_a_time_lookup_are_not_a_loss() -> None:
    log = await filled()

    async def much_later(topic: ChosenTopic, partition: int, timestamp_ms: int) -> int:
        return 20

    for name, expected in (("startingTimestamp", {}), ("endingTimestamp", {0: (4, 10), 1: (0, 5)})):
        assert await plan(log, lookup=much_later, **{name: "9999"}) == expected


async def test_all_partitions_have_to_be_named() -> None:
    log = await filled()
    with pytest.raises(OptionError, match="orders-1 is read but not named"):
        await plan(log, startingOffsets='{"orders": {"0": 5}}')
    with pytest.raises(OptionError, match="orders-0 is named but not read"):
        await plan(log, assign='{"orders": [1]}', startingOffsetsByTimestamp='{"orders": {"0": 5, "1": 5}}')


async def test_by_time_exact_to_the_record() -> None:
    log = await filled()
    assert await plan(log, startingTimestamp="2001", assign='{"orders": [0, 1]}') == {0: (5, 10), 1: (0, 5)}
    assert await plan(log, endingTimestamp="2503") == {0: (4, 6), 1: (0, 3)}
    assert await plan(log, endingTimestamp="9999") == {0: (4, 10), 1: (0, 5)}
    with pytest.raises(SourceError, match="orders-1 has no record of time 2505 or later; set startingOffsetsBy"):
        await plan(log, startingTimestamp="2505", assign='{"orders": [0, 1]}')
    each = '{"orders": {"0": 4001, "1": 2505}}'
    found = await plan(
        log, startingOffsetsByTimestamp=each, startingOffsetsByTimestampStrategy="latest", assign='{"orders": [0, 1]}'
    )
    assert found == {0: (9, 10)}


async def test_a_row_whose_newest_record_is_deleted_is_passed() -> None:
    log = await new_log()
    await log.write([(0, make_timed_batch([9_000, 1, 2]))])
    await log.write([(0, make_timed_batch([5_000]))])
    await log.coordinator.delete_records([DeleteRequest(TOPIC, 0, 1)])
    storage: Any = log.storage
    assert await offset_since(log.coordinator, storage, "orders-0", TOPIC, 0, 3_000) == 3
    assert await offset_since(log.coordinator, storage, "orders-0", TOPIC, 0, 5_001) is None
    log.storage.objects.pop(segment_key(log.coordinator.logs[TOPIC, 0].rows[-1].segment))
    with pytest.raises(SourceError, match="orders-0 can't be searched for time 3000"):
        await offset_since(log.coordinator, storage, "orders-0", TOPIC, 0, 3_000)


async def test_filters_narrow_what_is_planned() -> None:
    log = await filled()
    assert await plan(log, Bounds(partitions=frozenset([0]), lowest_offset=5, highest_offset=7)) == {0: (5, 8)}
    assert await plan(log, Bounds(topics=frozenset(["other"]))) == {}
    assert await plan(log, Bounds(lowest_offset=6)) == {0: (6, 10)}


def test_topics_that_are_not_there_are_named() -> None:
    def chosen(missing_ok: bool = False, **options: str) -> list[str]:
        selection = parse_options({"config": "c", **options}).selection
        return [
            f"{one.name}-{partition}"
            for one in choose(TOPICS, selection, missing_ok=missing_ok)
            for partition in one.partitions
        ]

    with pytest.raises(SourceError, match="soon is not a diskless topic; see `diskless-proxy topics list`"):
        chosen(subscribe="orders,soon")
    with pytest.raises(SourceError, match=re.escape("orders has 3 partitions; there is no orders-5 to assign")):
        chosen(assign='{"orders": [1, 5]}')
    assert chosen(missing_ok=True, assign='{"orders": [1, 5], "gone": [0]}') == ["orders-1"]
    assert chosen(subscribePattern="order") == []
    assert chosen(subscribePattern="o.*|soon") == ["orders-0", "orders-1", "orders-2"]


def ranges(start: int, end: int) -> list[LogRange]:
    return [LogRange("orders", TOPIC, 0, start, end)]


async def cut(log: MemoryLog, start: int, end: int, split_bytes: int, bounds: Bounds = ANY) -> list[tuple[int, int]]:
    pieces = await sized(
        log.coordinator, ranges(start, end), split_bytes=split_bytes, bounds=bounds, fail_on_data_loss=True
    )
    return [(one.start, one.end) for one in pieces]


async def test_ranges_are_cut_where_rows_end() -> None:
    log = await filled()
    length = log.coordinator.logs[TOPIC, 0].rows[0].length
    assert await cut(log, 4, 10, 2 * length) == [(4, 8), (8, 10)]
    assert await cut(log, 5, 9, 1) == [(5, 6), (6, 8), (8, 9)]
    assert await cut(log, 4, 10, 1 << 30) == [(4, 10)]
    recent = Bounds(lowest_timestamp_ms=3_500)
    assert await cut(log, 4, 10, 1 << 30, recent) == [(8, 10)]
    assert await cut(log, 4, 8, 1 << 30, recent) == []


async def test_a_range_without_rows_is_left_to_who_reads_it() -> None:
    log = await filled()
    await log.coordinator.delete_records([DeleteRequest(TOPIC, 0, 10)])
    assert await cut(log, 4, 10, 100) == [(4, 10)]
    await log.coordinator.delete_logs(TOPIC, [0])
    with pytest.raises(DataLoss, match="orders-0 was deleted; offsets 4 to 9 were to be read"):
        await cut(log, 4, 10, 100)
    left = await sized(log.coordinator, ranges(4, 10), split_bytes=9, bounds=ANY, fail_on_data_loss=False)
    assert left == []


async def test_a_query_of_committed_records_ends_at_the_last_stable_offset() -> None:
    log = await new_log()
    await log.write([(0, make_batch([b"v"] * 2)), (1, make_batch([b"v"] * 3))])
    await log.begin(0, 7)
    batch = make_batch([b"v"] * 3, transactional=True, producer_id=7, producer_epoch=0, base_sequence=0)
    await log.write([(0, batch)])
    asked = '{"orders": {"0": 4, "1": -1, "2": -1}}'
    assert await plan(log) == {0: (0, 5), 1: (0, 3)}
    assert await plan(log, isolation="read_committed") == {0: (0, 2), 1: (0, 3)}
    with pytest.raises(
        DataLoss, match="orders-0 is committed up to offset 2, where a transaction is open, 4 was asked"
    ):
        await plan(log, isolation="read_committed", endingOffsets=asked)
    limits = {"endingOffsets": asked, "failOnDataLoss": "false"}
    assert await plan(log, isolation="READ_COMMITTED", **limits) == {0: (0, 2), 1: (0, 3)}
    await log.end(0, 7, committed=False)
    assert await plan(log, isolation="read_committed", endingOffsets=asked) == {0: (0, 4), 1: (0, 3)}
    with pytest.raises(OptionError, match="'isolation' is read_uncommitted or read_committed"):
        await plan(log, isolation="serializable")
