"""One proxy cannot reach Redis while the others can: it does not treat topics that it does not know as classic."""

from __future__ import annotations

import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

from proxy.demo.stack import Stack
from proxy.protocol.errors import NONE, UNKNOWN_TOPIC_ID, UNKNOWN_TOPIC_OR_PARTITION
from tests.support.confluent import consumer, produce, read, take
from tests.support.network import Network, network_of
from tests.support.raw import Raw
from tests.support.readiness import wait_not_ready, wait_ready
from tests.support.records import samples
from tests.support.routed import FIRST_ID_VERSION, Asked, fetch, listener, partitions, topic_id
from tests.support.stacks import short_lived
from tests.support.topics import CLASSIC, DISKLESS, create_topic, delete_topic, new_topic
from tests.support.waiting import wait_for

pytestmark = pytest.mark.timeout(300)


RACKS = ("rack-a", "rack-b")
READS_IDS_EVERY_S = 1.0
NODE = 2
"""A broker of rack-b."""


@pytest.fixture(scope="module")
def linked_stack() -> Iterator[tuple[Stack, Network]]:
    """Start two racks whose proxies reach Redis over their own links."""
    with Stack(short_lived(racks=RACKS)) as stack, network_of(stack) as network:
        yield stack, network


@pytest.fixture
def cut_stack(linked_stack: tuple[Stack, Network]) -> Iterator[tuple[Stack, Network]]:
    """Return the stack; a link that a test has cut is restored after it."""
    yield linked_stack
    stack, network = linked_stack
    network.redis["rack-b"].enable()
    wait_ready(stack.admin_url("rack-b"))


def fetched(connection: Raw | str, version: int, topic: str, topic_id: bytes = b"") -> tuple[int, int, bool]:
    """Fetch from offset 0; return error code, high watermark, and whether records came."""
    (partition,) = partitions(fetch(connection, version, [Asked(topic, 0, 0)], {topic: topic_id}))
    return partition["error_code"], partition["high_watermark"], bool(partition["records"])


def test_a_group_keeps_its_position_in_a_topic_that_the_proxy_does_not_know(cut_stack: tuple[Stack, Network]) -> None:
    """The placeholder topic's log is empty: a position in it would be out of range, and the group would start over."""
    stack, network = cut_stack
    near, cut_off = stack.bootstrap("rack-a"), stack.bootstrap("rack-b")
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
        # Topics that it has seen to be classic are written and read as before, although none was diskless then.
        produce(cut_off, known, samples(3, "more"))
        with consumer(cut_off, group_id="another") as other:
            other.subscribe([known])
            take(other, 8)
        network.redis["rack-b"].enable()
        assert [message.offset() for message in take(client, 5)] == list(range(10, 15))


@pytest.mark.parametrize(
    ("version", "unknown"), [(12, UNKNOWN_TOPIC_OR_PARTITION), (FIRST_ID_VERSION, UNKNOWN_TOPIC_ID)]
)
def test_records_of_a_deleted_topic_are_not_read_under_its_name(
    cut_stack: tuple[Stack, Network], version: int, unknown: int
) -> None:
    """The proxy knows the old topic's records; the brokers know that the name, or the ID, no longer belongs to it."""
    stack, network = cut_stack
    address = listener(stack, NODE, "rack-b")
    topic = new_topic(stack, "recreated", DISKLESS)
    produce(stack.bootstrap("rack-b"), topic, samples(5, "old"))
    connected = Raw(address)
    old_id = topic_id(stack, topic)
    wait_for(lambda: fetched(connected, version, topic, old_id) == (NONE, 5, True), "the records did not come")
    network.redis["rack-b"].disable()
    wait_not_ready(stack.admin_url("rack-b"), "coordinator:")
    delete_topic(stack, topic)
    create_topic(stack, topic, DISKLESS)
    produce(stack.bootstrap("rack-a"), topic, samples(3, "new"))
    for connection in (address, connected):
        wait_for(lambda one=connection: fetched(one, version, topic, old_id)[0] == unknown, "it is read on")
        assert fetched(connection, version, topic, old_id) == (unknown, -1, False)
    network.redis["rack-b"].enable()
    new_id = topic_id(stack, topic)
    wait_for(lambda: fetched(connected, version, topic, new_id) == (NONE, 3, True), "the new topic is not read")
    connected.close()


def test_records_of_a_classic_topic_that_became_diskless_are_not_lost(cut_stack: tuple[Stack, Network]) -> None:
    """The broker would take them into the log of the placeholder topic, and the producer would get an answer."""
    stack, network = cut_stack
    near, cut_off = stack.bootstrap("rack-a"), stack.bootstrap("rack-b")
    topic = new_topic(stack, "becomes-diskless", CLASSIC)
    produce(cut_off, topic, samples(2, "old"))
    time.sleep(3 * READS_IDS_EVERY_S)  # the proxy reads the topic's ID in the background
    network.redis["rack-b"].disable()
    wait_not_ready(stack.admin_url("rack-b"), "coordinator:")
    produce(cut_off, topic, samples(2, "as before"))
    delete_topic(stack, topic)
    create_topic(stack, topic, DISKLESS)
    produce(near, topic, samples(3, "near"))
    with ThreadPoolExecutor(1) as threads:
        producing = threads.submit(produce, cut_off, topic, samples(3, "cut off"), enable_idempotence=True)
        time.sleep(3 * READS_IDS_EVERY_S)  # enough for the broker's answer, were there one
        network.redis["rack-b"].enable()
        producing.result()
    values = [one.value for one in (*samples(3, "near"), *samples(3, "cut off"))]
    assert [one.value for one in read(near, topic)] == values
