"""The comparison itself: which differences it allows, how it reduces operations, and that the seed decides
everything."""

from __future__ import annotations

import random
from itertools import islice
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proxy.records.batches import RecordsError, check_batch
from tests.differential.differences import DOCUMENTED, LEFT_OUT, differences
from tests.differential.generate import Generator
from tests.differential.model import Log, Model
from tests.differential.operations import (
    Asked,
    DeleteRecords,
    Fetch,
    ListOffsets,
    OffsetForLeaderEpoch,
    Operation,
    Produce,
    lags,
)
from tests.differential.shapes import DAMAGES, Given, Shape
from tests.differential.shrink import shrunk
from tests.differential.side import CLASSIC, Side
from tests.differential.views import APPEND_TIME, BATCHES, CUT, View

PAGE = Path(__file__).resolve().parents[2] / "docs" / "differences.md"
PLAIN = Shape((Given(10, -60_000), Given(3, -59_000)))
BEGAN_MS = 1_700_000_000_000


def test_every_allowed_difference_is_documented() -> None:
    text = PAGE.read_text()
    assert [one for one in (*DOCUMENTED, *LEFT_OUT) if one not in text] == []


@given(st.integers(0, 40).flatmap(lambda last: st.tuples(st.sets(st.integers(0, last)), st.just(last))))
def test_operations_are_reduced_to_the_necessary_ones(case: tuple[set[int], int]) -> None:
    needed, last = case
    kept = shrunk(range(last + 1), lambda items: needed <= set(items), most_tries=10_000)
    assert kept == sorted(needed | {last})


def test_shrinking_ends_after_the_maximum_number_of_tries() -> None:
    tried: list[list[int]] = []
    assert shrunk(range(100), lambda items: bool(tried.append(items)), most_tries=7) == list(range(100))
    assert len(tried) == 7


def generated(seed: str) -> list[Operation]:
    generator, model = Generator(random.Random(seed)), Model([Log(), Log(3, 9)], {})
    return list(islice(iter(lambda: generator.next(model), None), 300))


def test_the_seed_decides() -> None:
    assert generated("1") == generated("1")
    assert generated("1") != generated("2")


def test_every_operation_can_be_rebuilt_from_its_printed_form() -> None:
    from tests.differential import operations, shapes

    names = vars(operations) | vars(shapes)
    for operation in generated("3"):
        assert eval(repr(operation), names) == operation


@pytest.mark.parametrize("codec", range(5))
def test_good_batches_are_valid_for_a_broker(codec: int) -> None:
    batch = Shape(PLAIN.records, codec, producer_id=5, producer_epoch=1, base_sequence=2**31 - 1).build(BEGAN_MS)
    header = check_batch(memoryview(batch), max_message_bytes=10_000)
    assert (header.record_count, header.max_timestamp_ms) == (2, BEGAN_MS - 59_000)


@pytest.mark.parametrize("damage", [one for one in DAMAGES if one != "epoch without producer"])
def test_damaged_batches_are_invalid(damage: str) -> None:
    damaged = Shape(PLAIN.records, damage=damage).build(BEGAN_MS)
    with pytest.raises(RecordsError):
        check_batch(memoryview(damaged), max_message_bytes=10_000)


def fetched(*partitions: dict[str, Any]) -> dict[str, Any]:
    return {"responses": [{"topic": "the topic", "partitions": list(partitions)}]}


def partition(index: int, batches: list[bytes], cut: int = 0) -> dict[str, Any]:
    view = View(Side(CLASSIC, (), "topic", BEGAN_MS))
    found, rest = view.batches(b"".join(batches) + bytes(cut))
    return {"partition_index": index, BATCHES: found, CUT: rest}


def test_a_broker_may_cut_a_batch_and_leave_less_for_the_next_partition() -> None:
    batch = PLAIN.build(BEGAN_MS)
    operation = Fetch(0, 11, (Asked(1, 0), Asked(0, 0)), max_bytes=2 * len(batch) + 5)
    classic = fetched(partition(0, []), partition(1, [batch], cut=5))
    assert differences(operation, classic, fetched(partition(0, [batch]), partition(1, [batch]))) == []
    too_many = fetched(partition(0, [batch] * 3), partition(1, [batch]))
    assert [one.path[-1] for one in differences(operation, classic, too_many)] == [BATCHES]
    not_cut = fetched(partition(0, []), partition(1, [batch]))
    assert differences(operation, not_cut, fetched(partition(0, [batch]), partition(1, [batch])))
    assert differences(operation, classic, fetched(partition(0, []), partition(1, [batch], cut=4)))


@pytest.mark.parametrize(
    ("operation", "field", "classic", "diskless", "allowed"),
    [
        (Produce(0, 9, -1, ()), "error_message", "one text", "another", True),
        (Produce(0, 9, -1, ()), "error_message", None, "a text", True),
        (Produce(0, 9, -1, ()), "error_message", "a text", None, False),
        (Produce(0, 9, -1, ()), "error_code", 87, 2, False),
        (Produce(0, 9, -1, ()), "error_code", 100, 56, False),
        (Produce(0, 13, -1, ()), "error_code", 100, 56, True),
        (Produce(0, 9, -1, ()), "error_code", 76, 10, False),
        (Produce(0, 6, -1, ()), "error_code", 76, 10, True),
        (Produce(0, 6, -1, ()), "error_code", 76, 0, False),
        (Produce(0, 9, -1, ()), "base_offset", 5, 6, False),
        (Produce(0, 9, -1, ()), "log_append_time", -60_000, -1, False),
        (Produce(0, 9, -1, ()), "log_append_time", APPEND_TIME, 5, False),
        (ListOffsets(0, 5, ((0, -1),)), "offset", 5, 4, False),
        (DeleteRecords(0, 1, ((0, 5),)), "error_code", 1, 0, False),
    ],
)
def test_only_listed_differences_are_allowed(
    operation: Operation, field: str, classic: Any, diskless: Any, allowed: bool
) -> None:
    assert (not differences(operation, {field: classic}, {field: diskless})) is allowed


@pytest.mark.parametrize(("epoch", "answered", "allowed"), [(0, 0, False), (7, 7, True), (7, 6, False)])
def test_other_epochs_are_returned_as_requested(epoch: int, answered: int, allowed: bool) -> None:
    operation = OffsetForLeaderEpoch(0, 4, ((0, epoch),))
    sides = [{"partitions": [{"leader_epoch": one, "end_offset": one}]} for one in (-1, answered)]
    assert (not differences(operation, *sides)) is allowed


def test_a_view_has_no_names_and_no_times() -> None:
    side = Side(CLASSIC, (), "topic-1", BEGAN_MS, topic_id=b"i" * 16)
    answer = {"name": "topic-1", "topic_id": b"i" * 16, "throttle_time": 3, "timestamp": BEGAN_MS - 500_000}
    assert View(side).of(answer) == {"name": "the topic", "topic_id": "the topic", "timestamp": -500_000}
    assert View(side).of({"log_append_time": BEGAN_MS + 50}) == {"log_append_time": APPEND_TIME}
    assert View(side).of({"log_append_time": -1}) == {"log_append_time": -1}
    unsorted = {"partitions": [{"partition_index": 2}, {"partition_index": 0}]}
    assert View(side).of(unsorted) == {"partitions": [{"partition_index": 0}, {"partition_index": 2}]}


def test_an_answer_with_records_may_lag_behind() -> None:
    batch = PLAIN.build(BEGAN_MS)
    now = partition(0, [batch]) | {"high_watermark": 9, "log_start_offset": 2}
    assert not lags(fetched(now), fetched(now))
    assert lags(fetched(now | {"high_watermark": 7}), fetched(now))
    assert lags(fetched(now | {"log_start_offset": 1}), fetched(now))
    assert not lags(fetched(now | {"high_watermark": 11}), fetched(now))
    assert not lags(fetched(now | {"high_watermark": 7, BATCHES: []}), fetched(now))
    assert not lags("closed", fetched(now))
    assert lags(fetched(now | {"high_watermark": 7}), fetched(now | {BATCHES: [*now[BATCHES]] * 2}))
    other = partition(0, [Shape(PLAIN.records[:1]).build(BEGAN_MS)])[BATCHES]
    assert not lags(fetched(now | {"high_watermark": 7, BATCHES: other}), fetched(now))
