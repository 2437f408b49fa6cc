"""High watermarks that one client is told."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from proxy.fetching import watermarks
from proxy.fetching.watermarks import Watermarks


@given(st.lists(st.tuples(st.sampled_from([b"a", b"b"]), st.integers(0, 2), st.integers(0, 2), st.integers(0, 9))))
def test_none_goes_back_while_the_leader_stays(reads):
    told, highest = Watermarks(), {}
    for topic, partition, epoch, high_watermark in reads:
        before = highest.get((topic, partition))
        expected = max(before[1], high_watermark) if before and before[0] == epoch else high_watermark
        assert told.told(topic, partition, epoch, high_watermark) == expected
        highest[topic, partition] = epoch, expected


def test_a_client_that_reads_very_many_partitions_is_forgotten_now_and_then(monkeypatch):
    monkeypatch.setattr(watermarks, "_MAX_TOLD", 3)
    told = Watermarks()
    for partition in range(3):
        assert told.told(b"t", partition, 1, 5) == 5
    assert told.told(b"t", 0, 1, 4) == 5
    assert told.told(b"t", 3, 1, 5) == 5
    assert told.told(b"t", 0, 1, 4) == 4
    assert told.told(b"t", 3, 1, 4) == 5
