"""Record bytes are counted under labels that clients can't make endless."""

from __future__ import annotations

from proxy.stats import OTHER_TOPICS, UNKNOWN_TOPIC, Stats

FETCH = "classic", "fetch", "rack-a", "rack-b"
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


def test_what_no_topic_can_be_called_is_unknown() -> None:
    stats = Stats()
    stats.count_records(*FETCH, "x" * 249, 1)
    stats.count_records(*FETCH, "x" * 250, 2)
    assert stats.record_bytes == {(*FETCH, "x" * 249): 1, (*FETCH, UNKNOWN_TOPIC): 2}


def test_a_topic_id_is_to_be_named_once() -> None:
    stats = Stats(max_counted_topics=2)
    stats.count_records(*FETCH, TOPIC_ID, 1)
    stats.count_records(*FETCH, "orders", 1)
    stats.count_records(*FETCH, bytes(16), 1)
    assert stats.unnamed_topics == {TOPIC_ID}
    stats.topic_names[TOPIC_ID] = "orders"
    stats.unnamed_topics.clear()
    stats.count_records("classic", "produce", "rack-a", "rack-b", TOPIC_ID, 1)
    assert not stats.unnamed_topics
