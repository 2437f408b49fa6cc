"""DeleteRecords: the same on both kinds of topics, for every reader in every rack."""

from __future__ import annotations

from concurrent.futures import Future

from confluent_kafka import KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient, DeletedRecords

from proxy.demo.stack import Stack
from tests.support.confluent import consumer, produce_to
from tests.support.records import samples
from tests.support.topics import CLASSIC, DISKLESS, new_topic, offsets


def delete_before(stack: Stack, topic: str, before: int, partition: int = 0) -> int | str:
    """Return the new log start, or the name of the error."""
    admin = AdminClient({"bootstrap.servers": stack.bootstrap("rack-a")})
    asked = TopicPartition(topic, partition, before)
    answers: dict[TopicPartition, Future[DeletedRecords]] = admin.delete_records([asked])
    try:
        (answer,) = answers.values()
        return answer.result(30).low_watermark
    except KafkaException as error:
        return str(error.args[0].name())


def test_a_topic_that_is_only_compacted_keeps_its_records(stack: Stack) -> None:
    """Otherwise the newest record of a key could be deleted."""
    keyed = [sample._replace(key=b"key") for sample in samples(5, "policy")]
    for kind in (CLASSIC, DISKLESS):
        for policy, expected in (("compact", "POLICY_VIOLATION"), ("compact,delete", 3), ("delete", 3)):
            topic = new_topic(stack, "delete-policy", kind, configs={"cleanup.policy": policy})
            produce_to(stack.bootstrap("rack-a"), topic, {0: keyed})
            assert delete_before(stack, topic, 3) == expected, (kind, policy)
            assert offsets(stack, topic, 0, "rack-b") == (0 if policy == "compact" else 3, 5)


def test_both_kinds_of_topics_delete_records_in_the_same_way(stack: Stack) -> None:
    topics = [new_topic(stack, "delete-records", kind, 2) for kind in (CLASSIC, DISKLESS)]
    for topic in topics:
        produce_to(
            stack.bootstrap("rack-a"), topic, {0: samples(30, "none"), 1: samples(7, "lz4")}, batch_num_messages=4
        )

    def read(topic: str, rack: str, offset: int) -> tuple[int, list[int]]:
        """Return the first offset of a reader that starts at `offset` and resets to the earliest, and all that it
        reads."""
        with_reset = {"auto.offset.reset": "earliest", "enable.partition.eof": True}
        found: list[int] = []
        with consumer(stack.bootstrap(rack), **with_reset) as reader:
            reader.assign([TopicPartition(topic, 0, offset)])
            while True:
                message = reader.poll(30)
                assert message is not None
                if message.error():
                    break
                found.append(message.offset())
        return found[0] if found else -1, found

    for before in (10, 5, 10, 17, 31, -3):
        results = [delete_before(stack, topic, before) for topic in topics]
        assert results[0] == results[1], before
    assert delete_before(stack, topics[1], 31) == "OFFSET_OUT_OF_RANGE"
    for topic in topics:
        assert offsets(stack, topic, 0, "rack-b") == (17, 30)
        for rack in stack.proxies:
            assert read(topic, rack, 3) == (17, list(range(17, 30)))
    assert [delete_before(stack, topic, -1) for topic in topics] == [30, 30]
    for topic in topics:
        produce_to(stack.bootstrap("rack-c"), topic, {0: samples(3, "zstd")})
        assert offsets(stack, topic, 0, "rack-a") == (30, 33)
        assert offsets(stack, topic, 1, "rack-a") == (0, 7)
        assert read(topic, "rack-b", 0) == (30, [30, 31, 32])
