"""The bucket behind a quota: its burst, its rate, and bytes taken on credit."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proxy.quotas.token_bucket import BURST_S, TokenBucket

LIMIT = 1000.0
sizes = st.integers(1, 5000)
pauses_s = st.floats(0, 30)


def test_a_burst_of_ten_seconds_is_free():
    bucket = TokenBucket()
    assert bucket.take(10_000, LIMIT, 5.0) == 0
    assert bucket.take(1, LIMIT, 5.0) == pytest.approx(0.001)


def test_taken_bytes_refill_at_the_rate_of_the_quota():
    bucket = TokenBucket()
    bucket.take(10_000, LIMIT, 0.0)
    assert bucket.take(500, LIMIT, 0.5) == 0
    assert bucket.take(2000, LIMIT, 0.5) == pytest.approx(2.0)
    assert bucket.take(1, LIMIT, 2.5) == pytest.approx(0.001)


def test_while_credit_is_paid_back_nothing_is_taken():
    bucket = TokenBucket()
    assert bucket.available(LIMIT, 0.0) == 10_000
    assert bucket.take_if_any(9_900, LIMIT, 0.0) == 0
    assert bucket.available(LIMIT, 0.0) == 100
    assert bucket.take_if_any(400, LIMIT, 0.0) == 0, "a batch that is too large is taken on credit"
    assert bucket.available(LIMIT, 0.0) == 0
    assert bucket.take_if_any(1, LIMIT, 0.0) == pytest.approx(0.3)
    assert bucket.take_if_any(1, LIMIT, 0.31) == 0


def test_readers_of_large_batches_get_a_share_next_to_readers_of_small_ones():
    bucket, moved, free_s = TokenBucket(), {40_000: 0, 50: 0}, {40_000: 0.0, 50: 0.0}
    for step in range(10_000):
        now_s = step * 0.05
        for size in moved:
            if now_s >= free_s[size]:
                wait_s = bucket.take_if_any(size, LIMIT, now_s)
                free_s[size] = now_s + wait_s
                moved[size] += 0 if wait_s else size
    assert sum(moved.values()) == pytest.approx(LIMIT * (500 + BURST_S), rel=0.1)
    assert moved[40_000] > 0.2 * LIMIT * 500


def test_a_new_limit_holds_at_once():
    bucket = TokenBucket()
    bucket.take(0, LIMIT, 0.0)
    assert bucket.take(2_000, 100.0, 0.0) == pytest.approx(10.0)


def test_a_bucket_is_full_again_after_as_long_as_it_holds():
    bucket = TokenBucket()
    assert bucket.is_full(LIMIT, 0.0)
    bucket.take(10_000, LIMIT, 0.0)
    assert not bucket.is_full(LIMIT, BURST_S - 0.1)
    assert bucket.is_full(LIMIT, BURST_S)


@given(st.lists(st.tuples(sizes, pauses_s), min_size=1), st.booleans())
def test_a_client_that_obeys_throttle_times_never_gets_more_than_burst_and_rate(requests, ask_first):
    bucket, now_s, moved = TokenBucket(), 0.0, 0
    for size, pause_s in requests:
        if ask_first:
            wait_s = bucket.take_if_any(size, LIMIT, now_s)
            if wait_s:
                now_s += wait_s + 1e-6
                assert bucket.take_if_any(size, LIMIT, now_s) == 0
        else:
            now_s += bucket.take(size, LIMIT, now_s)
        moved += size
        on_credit = size if ask_first else 0
        assert moved <= LIMIT * (BURST_S + now_s) * (1 + 1e-9) + 1e-3 + on_credit
        now_s += pause_s


@given(st.lists(sizes, min_size=1))
def test_a_client_that_never_pauses_gets_all_of_its_rate(requests):
    bucket, now_s, moved = TokenBucket(), 0.0, 0
    for size in [10_000, *requests]:
        now_s += bucket.take(size, LIMIT, now_s)
        moved += size
    assert moved == pytest.approx(LIMIT * (BURST_S + now_s))
