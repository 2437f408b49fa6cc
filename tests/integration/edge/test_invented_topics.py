"""Names and IDs that no broker knows take no place of real topics, and cost the brokers few questions.

The stack is this module's own: the settings are the defaults, and Redis may pause.
"""

from __future__ import annotations

import os
import time
import uuid
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest
from confluent_kafka.admin import AdminClient

from proxy.demo.stack import Stack
from proxy.protocol.errors import NONE, NOT_LEADER_OR_FOLLOWER, UNKNOWN_TOPIC_OR_PARTITION
from tests.batches import make_batch
from tests.support.java_tools import JavaTools
from tests.support.metrics import Metrics
from tests.support.questions import ask
from tests.support.raw import Raw
from tests.support.readiness import wait_not_ready, wait_ready
from tests.support.routed import FIRST_ID_VERSION, PRODUCE, Asked, fetch, listener, partitions
from tests.support.stacks import short_lived
from tests.support.topics import CLASSIC, DISKLESS, new_topic, offsets
from tests.support.waiting import wait_for

RACK, NODE = "rack-a", 1
INVENTED_IDS, IDS_PER_REQUEST = 100_000, 10_000
INVENTED_NAMES = 300
"""More than the default of `limits.max_counted_topics`."""
REQUESTS = "kafka.network:type=RequestMetrics,name=RequestsPerSec,request=Metadata,version=*"
CONNECTIONS, WATCHED_S, MOST_PER_S = 4, 8.0, 30
"""Connections that produce, and the requests of all of them. One asks up to six times in a second, then pauses."""

pytestmark = pytest.mark.timeout(300)


@pytest.fixture(scope="module")
def one_rack() -> Iterator[Stack]:
    """Return a stack of one rack."""
    keeping = {"log.retention.ms": "-1"}  # tests write records of any time
    with Stack(short_lived(racks=(RACK,), broker_jmx=True, broker_properties=keeping)) as stack:
        yield stack


def produce(connection: Raw | str, topic: str) -> int:
    """Send a batch; return the error code."""
    data = [{"name": topic, "partition_data": [{"index": 0, "records": bytes(make_batch())}]}]
    answer = ask(connection, PRODUCE, 9, acks=-1, timeout=30_000, topic_data=data)
    return int(answer["responses"][0]["partition_responses"][0]["error_code"])


def wait_until_confirmed(stack: Stack, connection: Raw, topic: str) -> None:
    """Wait until the proxy has asked the brokers about a classic topic.

    In the same step the topic gets a series of its own and its place among those that are known as classic.
    """

    def counted() -> float:
        assert produce(connection, topic) in (NONE, UNKNOWN_TOPIC_OR_PARTITION, NOT_LEADER_OR_FOLLOWER)
        return Metrics(stack, RACK).value("topic_record_bytes_total", topic=topic)

    wait_for(counted, "the topic has no series of its own", 40)


def error_of(connection: Raw, topic: str) -> int:
    """Return the error code of a Fetch by name."""
    return int(partitions(fetch(connection, 12, [Asked(topic, 0, 0)], {}))[0]["error_code"])


def test_invented_ids_drive_no_topic_out_of_the_cache_of_classic_topics(one_rack: Stack) -> None:
    """While the coordinator is away, only topics that were seen to be classic are read."""
    new_topic(one_rack, "invented", DISKLESS)
    classic = new_topic(one_rack, "invented", CLASSIC)
    offsets(one_rack, classic)
    with Raw(listener(one_rack, NODE, RACK)) as connection:
        wait_for(lambda: error_of(connection, classic) == NONE, "the topic can't be read")
        wait_until_confirmed(one_rack, connection, classic)
        for _ in range(0, INVENTED_IDS, IDS_PER_REQUEST):
            asked = [Asked(os.urandom(16), 0, 0) for _ in range(IDS_PER_REQUEST)]
            fetch(connection, FIRST_ID_VERSION, asked, {})
        one_rack.pause("redis")
        try:
            wait_not_ready(one_rack.admin_url(RACK), "coordinator:")
            assert error_of(connection, classic) == NONE, "it is no longer known as classic"
        finally:
            one_rack.resume("redis")
            wait_ready(one_rack.admin_url(RACK))


def test_invented_names_take_no_series_from_topics_that_exist(one_rack: Stack) -> None:
    with Raw(listener(one_rack, NODE, RACK)) as connection:
        for number in range(INVENTED_NAMES):
            assert produce(connection, f"invented-{number}-{uuid.uuid4().hex}") == UNKNOWN_TOPIC_OR_PARTITION
        wait_until_confirmed(one_rack, connection, new_topic(one_rack, "counted", CLASSIC))
    names = Metrics(one_rack, RACK).labels("diskless_proxy_topic_record_bytes_total", "topic")
    assert not [name for name in names if name.startswith("invented-") and CLASSIC not in name]


def test_a_missing_shadow_costs_each_connection_few_metadata_requests(one_rack: Stack, tools: JavaTools) -> None:
    """The broker counts the requests. The proxies' own, and those of this test, are few next to them."""
    topic = new_topic(one_rack, "shadowless", DISKLESS)
    with Raw(listener(one_rack, NODE, RACK)) as connection:
        wait_for(lambda: produce(connection, topic) == NONE, "the topic can't be written")
    client = AdminClient({"bootstrap.servers": one_rack.direct_bootstrap})  # it has to live until the result is there
    client.delete_topics([topic])[topic].result(30)

    def requests() -> int:
        printed = tools.check("JmxCounts", REQUESTS, str(one_rack.ports.broker_jmx(NODE)))
        return sum(int(line.split()[-1]) for line in printed.splitlines())

    def produce_on(until_s: float) -> set[int]:
        errors = set()
        with Raw(listener(one_rack, NODE, RACK)) as connection:
            while time.monotonic() < until_s:
                errors.add(produce(connection, topic))
                time.sleep(0.02)
        return errors

    before, began_s = requests(), time.monotonic()
    with ThreadPoolExecutor(CONNECTIONS) as threads:
        found = list(threads.map(produce_on, [began_s + WATCHED_S] * CONNECTIONS))
    asked, taken_s = requests() - before, time.monotonic() - began_s
    assert found == [{UNKNOWN_TOPIC_OR_PARTITION}] * CONNECTIONS
    assert asked / taken_s < MOST_PER_S
