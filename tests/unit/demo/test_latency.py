import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proxy.demo.latency import PRECISION, Latencies


def test_without_a_latency_there_is_no_percentile() -> None:
    assert Latencies().percentile_ms(50) is None


@given(st.lists(st.integers(1, 10**9), min_size=1, max_size=300), st.integers(1, 100))
def test_a_percentile_is_within_the_precision_of_the_exact_one(taken: list[int], percent: int) -> None:
    latencies = Latencies()
    for microseconds in taken:
        latencies.add(microseconds)
    exact_ms = sorted(taken)[math.ceil(len(taken) * percent / 100) - 1] / 1000
    assert latencies.percentile_ms(percent) == pytest.approx(exact_ms, rel=PRECISION * 1.01)
    assert latencies.count == len(taken)


def test_a_latency_below_a_microsecond_counts_as_one() -> None:
    latencies = Latencies()
    latencies.add(0)
    assert latencies.percentile_ms(99) == pytest.approx(0.001, rel=PRECISION * 1.01)
