"""Kill the broker that a listener stands for: clients of diskless topics continue at that listener.

The stack has no journal. With one, commits wait for brokers: a shard whose journal partition the dead broker led pauses
until the brokers notice its death (`broker.session.timeout.ms`).
"""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Iterator
from itertools import pairwise

import pytest
from confluent_kafka import KafkaError, Message, Producer

from proxy.demo.stack import Stack
from proxy.protocol.errors import NONE
from tests.batches import make_batch
from tests.conftest import QUICK_HOUSEKEEPING
from tests.support.questions import ask
from tests.support.raw import Raw
from tests.support.routed import Asked, fetch, listener, partitions
from tests.support.stacks import short_lived
from tests.support.topics import CLASSIC, DISKLESS, create_topic, new_topic, offsets
from tests.support.waiting import wait_for
from tests.tiers import Tier

PRODUCE, LIST_OFFSETS, METADATA = 0, 2, 3
NODE, OTHERS = 1, (2, 3)
AGAIN = 20
"""Number of batches until then, most of them while the broker is down."""

STEADY_S, DOWN_S = 2.0, 8.0
"""Time before and after the broker's end. The rights that a broker returned expire within the second one."""
LONGEST_S = 1.0
"""Time without an acknowledgement that the end of a broker may cost, in addition to what they take anyway."""

RACKS_OF_TIER = {Tier.QUICK: ("rack-a", "rack-b"), Tier.FULL: ("rack-a", "rack-b", "rack-c")}
"""One broker dies, and another one has to stand in; only the tests of classic topics need a third one."""

pytestmark = pytest.mark.timeout(240)


@pytest.fixture(scope="module")
def running_without_journal(pytestconfig: pytest.Config) -> Iterator[Stack]:
    """Run a stack whose proxies keep no journal."""
    keeping = {"log.retention.ms": "-1"}  # tests write records of any time
    racks = RACKS_OF_TIER[pytestconfig.getoption("tier")]
    # With few messages in flight, the load's clients don't spin (`LoadOptions.producers_nice`).
    overrides = QUICK_HOUSEKEEPING | {"diskless_append_commit_interval_ms": 50}
    options = short_lived(racks=racks, journal=False, overrides=overrides, broker_properties=keeping)
    with Stack(options) as running:
        yield running


@pytest.fixture
def without_journal(running_without_journal: Stack) -> Iterator[Stack]:
    """Return the stack; restore after the test what it has paused and killed."""
    yield running_without_journal
    running_without_journal.heal()


class Load:
    """An unmodified client that produces all the time."""

    def __init__(self, bootstrap: str, topic: str) -> None:
        self.acknowledged_s: list[float] = []
        self.failures: list[KafkaError] = []
        self.disconnects = 0
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._run, args=(bootstrap, topic))
        self._thread.start()

    def end(self) -> None:
        """Stop, and wait for all acknowledgements."""
        self._ended.set()
        self._thread.join()

    def longest_pause_s(self, since_s: float, until_s: float) -> float:
        """Return the longest time without an acknowledgement between two moments."""
        times = [since_s, *(time_s for time_s in self.acknowledged_s if since_s <= time_s <= until_s), until_s]
        return max(later - earlier for earlier, later in pairwise(times))

    def _run(self, bootstrap: str, topic: str) -> None:
        statistics = {"statistics.interval.ms": 200, "stats_cb": self._count}
        producer = Producer(
            {"bootstrap.servers": bootstrap, "linger.ms": 5, "enable.idempotence": True, "log_level": 0, **statistics}
        )
        while not self._ended.is_set():
            producer.produce(topic, b"x" * 100, on_delivery=self._take)
            producer.poll(0.02)
        producer.flush(60)

    def _take(self, error: KafkaError | None, message: Message) -> None:
        if error is None:
            self.acknowledged_s.append(time.monotonic())
        else:
            self.failures.append(error)

    def _count(self, statistics: str) -> None:
        brokers = json.loads(statistics)["brokers"].values()
        self.disconnects = sum(broker["disconnects"] for broker in brokers if broker["nodeid"] >= 0)


def produce(connection: Raw | str, topic: str) -> tuple[int, int]:
    """Return error code and base offset of a batch."""
    data = [{"name": topic, "partition_data": [{"index": 0, "records": bytes(make_batch())}]}]
    answer = ask(connection, PRODUCE, 9, acks=-1, timeout=30_000, topic_data=data)
    (partition_answer,) = answer["responses"][0]["partition_responses"]
    return partition_answer["error_code"], partition_answer["base_offset"]


def list_offsets(connection: Raw, topic: str) -> int:
    """Error code of the end of the first partition, which only its leader knows."""
    partitions = [{"partition_index": 0, "current_leader_epoch": -1, "timestamp": -1}]
    answer = ask(connection, LIST_OFFSETS, 7, replica_id=-1, topics=[{"name": topic, "partitions": partitions}])
    error_code: int = answer["topics"][0]["partitions"][0]["error_code"]
    return error_code


def is_ended(connection: Raw, topic: str) -> bool:
    """True if a Fetch of the topic, whose leader the broker is, ends the connection."""
    try:
        fetch(connection, 12, [Asked(topic, 0, 0)], {})
    except ConnectionError:
        return True
    return False


def ends_new_connection(address: str, topic: str) -> bool:
    """Do the same on a new connection."""
    with Raw(address) as connection:
        return is_ended(connection, topic)


def test_diskless_clients_are_neither_cut_off_nor_kept_waiting(without_journal: Stack) -> None:
    """The rights that the broker returned expire meanwhile, and the proxy asks another broker for them."""
    stack = without_journal
    topic = new_topic(stack, "outlives", DISKLESS)
    classic = f"{topic}-classic"
    create_topic(stack, classic, CLASSIC, assignment=[[NODE, *OTHERS]])
    offsets(stack, classic)
    own = f"{topic}-own"
    create_topic(stack, own, CLASSIC, assignment=[[NODE]])
    address = listener(stack, NODE, "rack-a")
    produced, read, both = Raw(address), Raw(address), Raw(address)
    wait_for(lambda: produce(produced, topic) == (NONE, 0), "the topic can't be written")
    assert partitions(fetch(read, 12, [Asked(topic, 0, 0)], {}))[0]["error_code"] == NONE
    assert partitions(fetch(both, 12, [Asked(classic, 0, 0)], {}))[0]["error_code"] == NONE
    stack.kill_broker(NODE)
    for number in range(1, AGAIN):
        assert produce(produced, topic) == (NONE, number), "each is acknowledged, on the same connection"
        (partition_answer,) = partitions(fetch(read, 12, [Asked(topic, 0, number)], {}))
        assert (partition_answer["error_code"], bool(partition_answer["records"])) == (NONE, True)
    assert produce(address, topic) == (NONE, AGAIN), "a new connection finds another broker, too"
    metadata = ask(produced, METADATA, 9, topics=[{"name": topic}], allow_auto_topic_creation=False)
    assert metadata["topics"][0]["error_code"] == NONE
    assert is_ended(both, classic), "a follower does not answer for the leader"
    assert ends_new_connection(address, classic)
    stack.start_broker(NODE)
    wait_for(lambda: not ends_new_connection(address, classic), "the broker's own listener does not serve it again")
    assert produce(produced, topic) == (NONE, AGAIN + 1)
    # The broker leads its own partition again, and a connection on which another broker stood in leads to it.
    wait_for(lambda: list_offsets(produced, own) == NONE, "the connection does not lead to its own broker again")
    assert produce(produced, own) == (NONE, 0)
    for connection in (produced, read, both):
        connection.close()


@pytest.mark.parametrize("how", ["is killed", "hangs"])
def test_acknowledgements_pause_for_a_second_at_most(without_journal: Stack, how: str) -> None:
    """A machine that is gone looks as a broker that hangs: it closes no connection."""
    stack = without_journal
    topic = new_topic(stack, "paused", DISKLESS)
    load = Load(stack.bootstrap("rack-a"), topic)
    try:
        wait_for(lambda: len(load.acknowledged_s) > 20, "the topic can't be written")
        began_s = time.monotonic()
        time.sleep(STEADY_S)
        ended_s = time.monotonic()
        if how == "is killed":
            stack.kill_broker(NODE)
        else:
            stack.pause(f"broker-{NODE}")
        time.sleep(DOWN_S)
        over_s = time.monotonic()
    finally:
        load.end()
    usual_s, longest_s = load.longest_pause_s(began_s, ended_s), load.longest_pause_s(ended_s, over_s)
    print(f"usual {usual_s:.2f} s, longest {longest_s:.2f} s")
    assert longest_s < usual_s + LONGEST_S
    assert (load.failures, load.disconnects) == ([], 0)
