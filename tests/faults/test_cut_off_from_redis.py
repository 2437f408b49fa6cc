"""One proxy can't reach Redis, the others can: what it has not heard of, it does not take for classic."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from proxy.demo.stack import Stack
from tests.support.confluent import consumer, produce, take
from tests.support.network import network_of
from tests.support.readiness import wait_not_ready
from tests.support.records import samples
from tests.support.topics import CLASSIC, DISKLESS, new_topic

pytestmark = pytest.mark.timeout(300)


def test_a_group_keeps_its_place_in_a_topic_that_the_proxy_has_not_heard_of(new_stack: Callable[..., Stack]) -> None:
    """The shadow's log is empty: a position in it would be out of range, and the group would start over."""
    stack = new_stack(storage="file", start_timeout_seconds=120.0)
    near, cut_off = stack.bootstrap("rack-a"), stack.bootstrap("rack-b")
    with network_of(stack) as network:
        known = new_topic(stack, "known", CLASSIC)
        produce(cut_off, known, samples(5, "known"))
        with consumer(cut_off, group_id="of-known") as client:
            client.subscribe([known])
            take(client, 5)
        network.redis["rack-b"].disable()
        wait_not_ready(stack.admin_url("rack-b"), "coordinator:")
        topic = new_topic(stack, "unheard-of", DISKLESS)
        produce(near, topic, samples(10, "before"))
        with consumer(near, group_id="keeps-its-place") as client:
            client.subscribe([topic])
            take(client, 10)
            client.commit(asynchronous=False)
        produce(near, topic, samples(5, "after"))
        with consumer(cut_off, group_id="keeps-its-place", session_timeout_ms=6_000) as client:
            client.subscribe([topic])
            assert client.consume(1, 8.0) == []
            # What it has seen to be classic is written and read as before, though nothing was diskless then.
            produce(cut_off, known, samples(3, "more"))
            with consumer(cut_off, group_id="another") as other:
                other.subscribe([known])
                take(other, 8)
            network.redis["rack-b"].enable()
            assert [message.offset() for message in take(client, 5)] == list(range(10, 15))
