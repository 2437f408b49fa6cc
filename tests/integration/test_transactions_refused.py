"""Transactions on diskless topics are not supported yet: the producer gets an error, and the log names the topic."""

from __future__ import annotations

import pytest
from confluent_kafka import KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, OffsetSpec

from proxy.demo.stack import Stack
from tests.support.confluent import consumer, produce, read, take
from tests.support.questions import ask
from tests.support.records import samples, stored
from tests.support.topics import CLASSIC, DISKLESS, new_topic

METADATA, ADD_PARTITIONS_TO_TXN, WRITE_TXN_MARKERS = 3, 24, 27
NONE, NOT_LEADER_OR_FOLLOWER, INVALID_TOPIC_EXCEPTION, OPERATION_NOT_ATTEMPTED = 0, 6, 17, 55
RACK = "rack-b"


def test_a_transaction_is_rejected_before_it_has_a_diskless_partition(stack: Stack) -> None:
    """The client reports the topic's error and aborts. No marker is in the placeholder topic, and the producer can
    continue."""
    diskless, classic = (new_topic(stack, "transactional", kind) for kind in (DISKLESS, CLASSIC))
    producer = Producer({"bootstrap.servers": stack.bootstrap(RACK), "transactional.id": diskless})
    producer.init_transactions(60)
    producer.begin_transaction()
    producer.produce(classic, b"never", partition=0)
    # librdkafka sends EndTxn for a transaction that has no partition yet, which the broker answers with a fatal error.
    producer.flush(60)
    producer.produce(diskless, b"never", partition=0)
    with pytest.raises(KafkaException) as caught:
        producer.commit_transaction(60)
    error = caught.value.args[0]
    assert error.txn_requires_abort(), error
    assert "Broker: Invalid topic" in error.str()
    producer.abort_transaction(60)
    producer.begin_transaction()
    producer.produce(classic, b"committed", partition=0)
    producer.commit_transaction(60)
    with consumer(stack.bootstrap(RACK), isolation_level="read_committed") as client:
        client.assign([TopicPartition(classic, 0, 0)])
        assert [message.value() for message in take(client, 1)] == [b"committed"]
    assert end_at_brokers(stack, diskless) == 0
    line = next(line for line in stack.log_tail(f"proxy-{RACK}").splitlines() if diskless in line)
    assert "transaction_refused" in line
    assert "transactions on diskless topics are not supported yet" in line

    sent = samples(3, "plain")
    assert produce(stack.bootstrap(RACK), diskless, sent) == [0, 1, 2]
    assert read(stack.bootstrap(RACK), diskless) == stored(sent)


@pytest.mark.parametrize("version", range(4))
def test_the_other_partitions_of_the_request_are_not_attempted(stack: Stack, version: int) -> None:
    diskless, classic = (new_topic(stack, "transactional", kind) for kind in (DISKLESS, CLASSIC))
    answer = ask(
        stack.bootstrap(RACK),
        ADD_PARTITIONS_TO_TXN,
        version,
        v3_and_below_transactional_id=diskless,
        v3_and_below_topics=[{"name": name, "partitions": [0]} for name in (classic, diskless)],
    )
    errors = {
        topic["name"]: [one["partition_error_code"] for one in topic["results_by_partition"]]
        for topic in answer["results_by_topic_v3_and_below"]
    }
    assert errors == {classic: [OPERATION_NOT_ATTEMPTED], diskless: [INVALID_TOPIC_EXCEPTION]}


def test_no_marker_is_written_for_a_diskless_partition(stack: Stack) -> None:
    """Send what `Admin.abortTransaction` sends."""
    diskless, classic = (new_topic(stack, "transactional", kind) for kind in (DISKLESS, CLASSIC))
    topics = [{"name": name, "partition_indexes": [0]} for name in (classic, diskless)]
    for broker in ask(stack.bootstrap(RACK), METADATA, 1)["brokers"]:
        address = f"{broker['host']}:{broker['port']}"
        (marked,) = ask(address, WRITE_TXN_MARKERS, 1, markers=[{"producer_id": 7, "topics": topics}])["markers"]
        errors = {topic["name"]: topic["partitions"][0]["error_code"] for topic in marked["topics"]}
        assert errors[diskless] == INVALID_TOPIC_EXCEPTION
        assert errors[classic] in (NONE, NOT_LEADER_OR_FOLLOWER)
    assert (end_at_brokers(stack, classic), end_at_brokers(stack, diskless)) == (1, 0)


def end_at_brokers(stack: Stack, topic: str) -> int:
    """Return the end of partition 0 at its leader; for a diskless topic it is the placeholder's."""
    asked = TopicPartition(topic, 0)
    client = AdminClient({"bootstrap.servers": stack.direct_bootstrap})
    return int(client.list_offsets({asked: OffsetSpec.latest()})[asked].result(30).offset)


def test_transactions_on_classic_topics_are_the_brokers(stack: Stack) -> None:
    topic = new_topic(stack, "transactional", CLASSIC)
    producer = Producer({"bootstrap.servers": stack.bootstrap(RACK), "transactional.id": topic})
    producer.init_transactions(60)
    for value, end in ((b"aborted", producer.abort_transaction), (b"committed", producer.commit_transaction)):
        producer.begin_transaction()
        producer.produce(topic, value, partition=0)
        producer.flush(30)
        end(30)
    with consumer(stack.bootstrap("rack-c")) as client:
        client.assign([TopicPartition(topic, 0, 0)])
        assert [message.value() for message in take(client, 1)] == [b"committed"]
