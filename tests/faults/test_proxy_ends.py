"""Terminate or kill a proxy under load: no acknowledged record is lost, and no idempotent record is stored twice."""

from __future__ import annotations

from confluent_kafka import KafkaError, Producer

from proxy.demo.stack import Stack
from tests.support.confluent import read
from tests.support.load import assert_right, load_of, wait_for_more
from tests.support.metrics import Metrics
from tests.support.topics import CLASSIC, DISKLESS, KINDS, new_topic
from tests.support.waiting import wait_for


def test_nothing_is_lost_or_repeated_if_a_proxy_is_terminated_under_load(stack: Stack) -> None:
    with load_of(stack) as load:
        wait_for_more(load, DISKLESS)
        assert stack.terminate_proxy("rack-a") == 0
        for kind in KINDS:
            wait_for_more(load, kind)
        stack.start_proxy("rack-a")
        wait_for_more(load, DISKLESS, 200)
        tally = load.stop()
    assert_right(tally)


def test_a_terminated_proxy_still_answers_a_client_that_does_not_retry(stack: Stack) -> None:
    topic = new_topic(stack, "terminated", DISKLESS)
    producer = Producer({"bootstrap.servers": stack.bootstrap("rack-c"), "retries": 0, "linger.ms": 0})
    errors: list[KafkaError | None] = []
    for _ in range(20):
        producer.produce(topic, b"taken", partition=0, on_delivery=lambda error, _: errors.append(error))
    while not Metrics(stack, "rack-c").value("wal_buffer_bytes") and not errors:
        producer.poll(0.01)
    stack.terminate_proxy("rack-c")
    producer.flush(30)
    assert errors == [None] * 20
    assert len(read(stack.bootstrap("rack-a"), topic)) == 20


def uncommitted(stack: Stack) -> float:
    """Return the segments that rack-c's proxy has uploaded and not committed."""
    seen = Metrics(stack, "rack-c")
    return seen.value("uploads_total") - seen.value("commits_total")


def test_nothing_is_lost_or_repeated_if_a_proxy_is_killed_under_load(stack: Stack) -> None:
    at_rest = uncommitted(stack)
    with load_of(stack) as load:
        for rack in ("rack-a", "rack-b"):
            wait_for_more(load, DISKLESS)
            stack.kill_proxy(rack)
            wait_for_more(load, CLASSIC)
            stack.start_proxy(rack)

        # Between commit and answer: the producers must resend batches that are committed already.
        wait_for_more(load, DISKLESS)
        stack.pause("redis")
        wait_for(lambda: uncommitted(stack) > at_rest, "no commit lies before the hanging store")
        wait_for_more(load, CLASSIC, 100)
        stack.kill_proxy("rack-c")
        stack.resume("redis")  # now Redis carries them out, and the answers have no receiver
        stack.start_proxy("rack-c")
        wait_for_more(load, DISKLESS, 200)
        tally = load.stop()
    assert_right(tally)
    assert Metrics(stack, "rack-c").value("duplicate_batches_total") > 0, "nothing was sent again"
