"""Transactions on diskless topics are not supported yet: the producer is told so, and the log says so."""

from __future__ import annotations

import pytest
from confluent_kafka import KafkaError, KafkaException, Message, Producer, TopicPartition

from proxy.demo.stack import Stack
from tests.support.confluent import consumer, produce, read, take
from tests.support.records import samples, stored
from tests.support.topics import CLASSIC, DISKLESS, new_topic

RACK = "rack-b"


def test_a_transactional_batch_is_refused_and_logged(stack: Stack) -> None:
    topic = new_topic(stack, "transactional", DISKLESS)
    producer = Producer({"bootstrap.servers": stack.bootstrap(RACK), "transactional.id": topic})
    told: list[str] = []

    def learn(error: KafkaError | None, _: Message) -> None:
        told.append("" if error is None else error.name())

    producer.init_transactions(30)
    producer.begin_transaction()
    producer.produce(topic, b"never", on_delivery=learn)
    producer.flush(30)
    assert told == ["INVALID_TXN_STATE"]
    with pytest.raises(KafkaException):
        producer.commit_transaction(30)
    line = next(line for line in stack.log_tail(f"proxy-{RACK}").splitlines() if topic in line)
    assert "transactional_batch_refused" in line
    assert "transactions on diskless topics are not supported yet" in line

    sent = samples(3, "plain")
    assert produce(stack.bootstrap(RACK), topic, sent) == [0, 1, 2]
    assert read(stack.bootstrap(RACK), topic) == stored(sent)


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
