"""Brokers lose the end of a placeholder topic's log, with a marker in it, by an unclean leader election."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from typing import Any

import pytest
from confluent_kafka import TopicPartition
from confluent_kafka.admin import AdminClient

from proxy.demo.stack import Stack
from tests.support.confluent import consumer, take
from tests.support.questions import ask
from tests.support.topics import DISKLESS, create_topic
from tests.support.transactional import NONE, READ_UNCOMMITTED, RawProducer, end_offset, wait_until_stable
from tests.support.waiting import wait_for

FIND_COORDINATOR, TRANSACTION = 10, 1
CONFIGS = {"unclean.leader.election.enable": "true", "min.insync.replicas": "1"}


@pytest.fixture
def restored(stack: Stack) -> Iterator[Stack]:
    """Start all brokers again after the test."""
    yield stack
    stack.heal()


def coordinator_of(bootstrap: str, transactional_id: str) -> int:
    """Return the broker that coordinates the ID's transactions. It is given: a broker that was restarted by an earlier
    test coordinates none for minutes."""

    def found() -> dict[str, Any] | None:
        answer = ask(bootstrap, FIND_COORDINATOR, 1, key=transactional_id, key_type=TRANSACTION)
        return answer if answer["error_code"] == NONE else None

    return int((wait_for(found, "a coordinator") or {})["node_id"])


def leads(broker: str, topic: str) -> tuple[int, list[int]]:
    """Return the leader of the placeholder topic's partition, and its replicas in sync, as this broker knows them."""
    client = AdminClient({"bootstrap.servers": broker})
    partition = client.list_topics(topic, timeout=30).topics[topic].partitions[0]
    return partition.leader, sorted(partition.isrs)


@pytest.mark.timeout(300)
def test_transactions_end_after_an_unclean_election(restored: Stack) -> None:
    """A marker that was applied is lost. The next one gets its offset in the new leader's log, and ends its own
    transaction: no consumer of committed records is held back."""
    stack, topic = restored, f"unclean-{uuid.uuid4().hex[:6]}"
    near, direct = stack.bootstrap("rack-a"), stack.kafka.address
    # The transaction coordinator stays; the placeholder's replicas are at the others.
    survivor = coordinator_of(near, topic)
    leader, follower = (node for node in (1, 2, 3) if node != survivor)
    create_topic(stack, topic, DISKLESS, assignment=[[leader, follower]], configs=CONFIGS)
    producer = RawProducer(near, topic)

    def commit(value: bytes) -> None:
        assert producer.add(topic) == NONE
        # A partition of the journal may be electing a leader, too.
        wait_for(lambda: producer.produce(topic, value) == NONE, "the record is stored")
        assert producer.end(commit=True) == NONE

    commit(b"1")
    wait_until_stable(near, topic, 2)
    stack.kill_broker(follower)
    wait_for(lambda: leads(direct(survivor), topic) == (leader, [leader]), "the leader is alone in sync")
    commit(b"2")
    wait_until_stable(near, topic, 4)
    assert end_offset(direct(leader), topic, READ_UNCOMMITTED) == 2
    stack.kill_broker(leader)
    stack.start_broker(follower)
    wait_for(lambda: leads(direct(survivor), topic)[0] == follower, "the unclean election")
    assert end_offset(direct(follower), topic, READ_UNCOMMITTED) == 1, "the second marker is lost"
    stack.start_broker(leader)
    wait_for(lambda: leads(direct(survivor), topic) == (follower, [leader, follower]), "both replicas are in sync")
    for end, value in ((6, b"3"), (8, b"4")):
        commit(value)
        wait_until_stable(near, topic, end)
    assert end_offset(direct(follower), topic, READ_UNCOMMITTED) == 3
    with consumer(near, isolation_level="read_committed") as client:
        client.assign([TopicPartition(topic, 0, 0)])
        assert [message.value() for message in take(client, 4)] == [b"1", b"2", b"3", b"4"]
    logs = [stack.log_tail(name, 5_000) for name in stack.processes if name.startswith("proxy-")]
    assert any("placeholder_truncated" in log for log in logs)
