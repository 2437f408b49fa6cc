"""High watermarks that one client has received."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from proxy.fetching import watermarks
from proxy.fetching.watermarks import Watermarks


@given(
    st.lists(
        st.tuples(
            st.sampled_from([b"a", b"b"]),
            st.integers(0, 2),
            st.integers(0, 2),
            st.tuples(st.integers(0, 9), st.integers(0, 9)),
        )
    )
)
def test_no_watermark_falls_while_the_leader_stays(reads):
    seen, highest = Watermarks(), {}
    for topic, partition, epoch, ends in reads:
        before = highest.get((topic, partition))
        expected = tuple(map(max, before[1], ends)) if before and before[0] == epoch else ends
        assert seen.record(topic, partition, epoch, *ends) == expected
        assert seen.last(topic, partition) == expected
        highest[topic, partition] = epoch, expected
    assert seen.last(b"c", 0) is None


def test_a_client_that_reads_very_many_partitions_is_forgotten_now_and_then(monkeypatch):
    monkeypatch.setattr(watermarks, "_MAX_RECORDED", 3)
    seen = Watermarks()
    for partition in range(3):
        assert seen.record(b"t", partition, 1, 5, 5) == (5, 5)
    assert seen.record(b"t", 0, 1, 4, 4) == (5, 5)
    assert seen.record(b"t", 3, 1, 5, 5) == (5, 5)
    assert seen.record(b"t", 0, 1, 4, 4) == (4, 4)
    assert seen.record(b"t", 3, 1, 4, 4) == (5, 5)
