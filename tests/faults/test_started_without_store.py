"""A proxy starts while the coordinator's store is away: with a journal, classic topics do not wait for the store."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from confluent_kafka import KafkaError, Producer

from proxy.demo.stack import Stack
from tests.support.confluent import produce, read
from tests.support.readiness import readiness, wait_not_ready, wait_ready
from tests.support.records import samples
from tests.support.topics import CLASSIC, DISKLESS, new_topic
from tests.support.waiting import wait_for

pytestmark = pytest.mark.stack


def is_acknowledged(bootstrap: str, topic: str) -> bool:
    """Send one record; return whether it was acknowledged. Any error must be one that a client retries."""
    errors: list[KafkaError | None] = []
    producer = Producer({"bootstrap.servers": bootstrap, "message.timeout.ms": 3_000, "enable.idempotence": False})
    producer.produce(topic, b"early", on_delivery=lambda error, message: errors.append(error))
    producer.flush(30)
    (error,) = errors
    assert error is None or error.code() == KafkaError._MSG_TIMED_OUT, error
    return error is None


def test_classic_topics_are_served_without_the_store(new_stack: Callable[..., Stack]) -> None:
    stack = new_stack(racks=("rack-a",), overrides={"journal": {"snapshot_interval_ms": 1_000}})
    bootstrap, admin = stack.bootstrap("rack-a"), stack.admin_url("rack-a")
    old, diskless = new_topic(stack, "old", CLASSIC), new_topic(stack, "diskless", DISKLESS)
    produce(bootstrap, old, samples(3, "before"))
    produce(bootstrap, diskless, samples(3, "before"))
    stack.terminate_proxy("rack-a")
    stack.kill_redis()
    stack.start_proxy("rack-a", wait=False)
    wait_for(lambda: readiness(admin, "servez") == (200, "serving"), "no clients are accepted")
    wait_not_ready(admin, "coordinator:")
    # A producer that does not retry: the topic is known to be classic before a client uses it.
    produce(bootstrap, old, samples(3, "without the store"), retries=0, enable_idempotence=False)
    new = new_topic(stack, "new", CLASSIC)
    produce(bootstrap, new, samples(3, "new"))
    assert len(read(bootstrap, old)) == 6
    assert len(read(bootstrap, new)) == 3
    assert not is_acknowledged(bootstrap, diskless)
    stack.start_redis()
    wait_ready(admin)
    produce(bootstrap, diskless, samples(3, "after"))
    values = [one.value for one in read(bootstrap, diskless) if one.value != b"early"]
    assert values == [one.value for one in (*samples(3, "before"), *samples(3, "after"))]
