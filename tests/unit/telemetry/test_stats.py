"""Record bytes are counted under labels whose number clients cannot increase without limit."""

from __future__ import annotations

from proxy.telemetry.stats import OTHER_TOPICS, UNKNOWN_TOPIC, Stats

FETCH = "classic", "fetch", "rack-a", "rack-b"
PRODUCE = "classic", "produce", "rack-a", "rack-b"
TOPIC_ID = bytes(range(16))


def test_bytes_add_up_under_their_key() -> None:
    stats = Stats()
    stats.count_records(*FETCH, "orders", 5)
    stats.count_records(*FETCH, "orders", 7)
    stats.count_records("diskless", "produce", "rack-a", "rack-a", "orders", 1)
    assert stats.record_bytes == {
        (*FETCH, "orders"): 12,
        ("diskless", "produce", "rack-a", "rack-a", "orders"): 1,
    }


def test_topics_beyond_the_limit_are_counted_as_one() -> None:
    stats = Stats(max_counted_topics=2)
    for topic in ("a", "b", "c", "a", "d"):
        stats.count_records(*FETCH, topic, 1)
    assert stats.record_bytes == {(*FETCH, "a"): 2, (*FETCH, "b"): 1, (*FETCH, OTHER_TOPICS): 2}


def test_a_topic_without_records_takes_no_place() -> None:
    stats = Stats(max_counted_topics=1)
    stats.count_records(*FETCH, "made up", 0)
    stats.count_records(*FETCH, "orders", 1)
    assert stats.record_bytes == {(*FETCH, "orders"): 1}


def test_an_invalid_topic_name_is_counted_as_unknown() -> None:
    stats = Stats()
    stats.count_records(*FETCH, "x" * 249, 1)
    stats.count_records(*FETCH, "x" * 250, 2)
    assert stats.record_bytes == {(*FETCH, "x" * 249): 1, (*FETCH, UNKNOWN_TOPIC): 2}


def test_a_topic_by_id_is_counted_under_its_name_once_that_is_known() -> None:
    stats = Stats(max_counted_topics=2)
    stats.count_records(*FETCH, TOPIC_ID, 1)
    stats.count_records(*FETCH, "orders", 2)
    assert stats.record_bytes == {(*FETCH, "orders"): 2}
    assert sorted(stats.all_record_bytes(), key=str) == [(FETCH, "orders", 2), (FETCH, None, 1)]
    stats.settle(TOPIC_ID, "orders")
    assert stats.record_bytes == {(*FETCH, "orders"): 3}
    stats.count_records(*PRODUCE, TOPIC_ID, 5)
    assert stats.record_bytes == {(*FETCH, "orders"): 3, (*PRODUCE, "orders"): 5}
    assert not stats.unsettled_bytes


def test_invented_names_take_no_place_for_longer_than_it_takes_to_deny_them() -> None:
    """A client may produce to any name: brokers reject it only after the records have passed."""
    stats = Stats(max_counted_topics=200)
    for number in range(300):
        stats.count_records(*PRODUCE, f"invented-{number}", 1)
    assert stats.record_bytes == {(*PRODUCE, OTHER_TOPICS): 100}, "memory is bounded until it is settled"
    for topic in list(stats.unsettled_bytes):
        stats.settle(topic, None)
    assert stats.record_bytes == {(*PRODUCE, OTHER_TOPICS): 100, (*PRODUCE, UNKNOWN_TOPIC): 200}
    stats.count_records(*PRODUCE, "invented-7", 1)
    assert not stats.unsettled_bytes, "it is not asked for again at once"
    for number in range(200):
        stats.count_records(*PRODUCE, f"real-{number}", 1)
        stats.settle(f"real-{number}", f"real-{number}")
    assert len(stats.record_bytes) == 202
    stats.count_records(*PRODUCE, "one more", 1)
    stats.settle("one more", "one more")
    assert stats.record_bytes[*PRODUCE, OTHER_TOPICS] == 101


def test_a_topic_of_which_records_were_fetched_exists() -> None:
    stats = Stats()
    stats.count_records(*FETCH, "orders", 1)
    stats.count_records(*PRODUCE, "orders", 1)
    stats.count_records("diskless", "produce", "rack-a", "rack-a", "events", 1)
    assert not stats.unsettled_bytes


def test_at_the_end_all_is_counted() -> None:
    stats = Stats()
    stats.count_records(*PRODUCE, "orders", 4)
    stats.settle_all()
    assert stats.record_bytes == {(*PRODUCE, UNKNOWN_TOPIC): 4}
