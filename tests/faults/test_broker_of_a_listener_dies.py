"""Kill the broker that a listener stands for: clients of diskless topics continue at that listener."""

from __future__ import annotations

import pytest

from proxy.demo.stack import Stack
from proxy.protocol.errors import NONE
from tests.batches import make_batch
from tests.support.questions import ask
from tests.support.raw import Raw
from tests.support.routed import Asked, fetch, listener, partitions
from tests.support.topics import CLASSIC, DISKLESS, create_topic, new_topic, offsets
from tests.support.waiting import wait_for

PRODUCE, LIST_OFFSETS, METADATA = 0, 2, 3
NODE, OTHERS = 1, (2, 3)
AGAIN = 20
"""Number of batches until then, most of them while the broker is down."""

pytestmark = pytest.mark.timeout(240)


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


def test_diskless_clients_are_neither_cut_off_nor_kept_waiting(stack: Stack) -> None:
    """The rights that the broker returned expire meanwhile, and the proxy asks another broker for them."""
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
