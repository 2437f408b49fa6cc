"""The shard of a log, and the split of calls."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proxy.coordinator import shard_calls
from proxy.coordinator.shards import announcement_channel, partition_key, shard_of, split_partition_key

keys = st.lists(st.binary(min_size=20, max_size=20), max_size=40, unique=True)


def test_shards_never_change() -> None:
    """With another shard, existing data would not be found any more."""
    topic_id = bytes(range(16))
    partitions = (0, 1, 15, 16, 31, 32, 127, 128)
    assert [shard_of(partition_key(topic_id, one), 16) for one in partitions] == [8, 8, 8, 9, 9, 10, 15, 0]
    other = bytes(range(1, 17))
    assert shard_of(partition_key(other, 0), 16) != 8
    assert announcement_channel(3) == "diskless:{d3}:announcements"


@given(st.binary(min_size=16, max_size=16), st.integers(0, 2**31 - 1))
def test_partition_keys_round_trip(topic_id: bytes, partition: int) -> None:
    assert split_partition_key(partition_key(topic_id, partition)) == (topic_id, partition)


@pytest.mark.parametrize(("topic_id", "partition"), [(b"", 0), (bytes(17), 0), (bytes(16), -1), (bytes(16), 2**31)])
def test_names_that_are_not_logs(topic_id: bytes, partition: int) -> None:
    with pytest.raises(ValueError, match="does not name a log"):
        partition_key(topic_id, partition)


@given(keys, st.integers(1, 5), st.data())
def test_calls_are_cut_within_bounds_and_keep_everything(some: list[bytes], shards: int, data: st.DataObject) -> None:
    weights = data.draw(st.lists(st.integers(0, 700), min_size=len(some), max_size=len(some)))
    cuts = shard_calls._cut(some, weights, shards)
    assert sorted(item for cut in cuts for item in cut.items) == list(range(len(some)))
    for cut in cuts:
        assert {shard_of(some[item], shards) for item in cut.items} == {cut.shard}
        assert len(cut.items) <= shard_calls.MAX_ITEMS_PER_CALL
        weight = sum(weights[item] for item in cut.items)
        assert weight <= shard_calls.MAX_BATCHES_PER_CALL or len(cut.items) == 1
