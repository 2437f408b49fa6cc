"""A program that copies records exactly once: it reads a diskless topic, and writes each record to other topics.

Each round is a transaction over all topics and the offsets of a group. Some rounds are aborted, and are read again. An
error that is not just retried ends the program. Started again, it begins a new session of the transactional ID and
continues at the group's offsets. So it may be killed at any time.

    python -m tests.support.copier BOOTSTRAP NAME INPUT OUTPUT…
"""

from __future__ import annotations

import faulthandler
import os
import random
import sys
import traceback

from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition

CALL_SECONDS = 30.0
TRANSACTION_TIMEOUT_MS = 30_000
ROUND_SECONDS = 40.0
"""Time after which a round is given up, by the end of the program. librdkafka 2.16 forgets to answer a call of
send_offsets_to_transaction if it had to retry AddOffsetsToTxn because the coordinator's connection was lost."""
RECORDS_PER_ROUND = 10
ABORTED = 0.25
"""Share of rounds that are aborted."""


class Copier:
    """One session."""

    def __init__(self, bootstrap: str, name: str, source: str, outputs: list[str]) -> None:
        self._outputs = outputs
        settings = {"bootstrap.servers": bootstrap, "client.id": name}
        self._producer = Producer(
            {**settings, "transactional.id": name, "transaction.timeout.ms": TRANSACTION_TIMEOUT_MS, "linger.ms": 0}
        )
        self._consumer = Consumer(
            {
                **settings,
                "group.id": name,
                "enable.auto.commit": False,
                "auto.offset.reset": "earliest",
                "isolation.level": "read_committed",
            }
        )
        self._producer.init_transactions(CALL_SECONDS)
        partitions = self._consumer.list_topics(source, timeout=CALL_SECONDS).topics[source].partitions
        self._assigned = [TopicPartition(source, partition) for partition in partitions]

    def run(self) -> None:
        """Copy forever. Raises KafkaException."""
        self._rewind()
        while True:
            messages = [one for one in self._consumer.consume(RECORDS_PER_ROUND, 0.5) if one.error() is None]
            faulthandler.dump_traceback_later(ROUND_SECONDS, exit=True)
            if not messages:
                continue
            self._producer.begin_transaction()
            for message in messages:
                partition = message.partition()
                assert partition is not None
                for topic in self._outputs:
                    self._producer.produce(topic, message.value(), partition=partition)
            try:
                self._end()
            except KafkaException as error:
                if not error.args[0].txn_requires_abort():
                    raise
                print("aborts:", error, flush=True)
                self._abort()

    def _end(self) -> None:
        """End the transaction of one round. Raises KafkaException."""
        self._producer.send_offsets_to_transaction(
            self._consumer.position(self._assigned), self._consumer.consumer_group_metadata(), CALL_SECONDS
        )
        self._producer.flush(CALL_SECONDS)
        if random.random() < ABORTED:
            self._abort()
        else:
            self._producer.commit_transaction(CALL_SECONDS)

    def _abort(self) -> None:
        self._producer.abort_transaction(CALL_SECONDS)
        self._rewind()

    def _rewind(self) -> None:
        """Continue at the offsets that are committed."""
        committed = self._consumer.committed(self._assigned, timeout=CALL_SECONDS)
        self._consumer.assign([TopicPartition(one.topic, one.partition, max(one.offset, 0)) for one in committed])


if __name__ == "__main__":
    _, address, transactional_id, read_topic, *written_topics = sys.argv
    try:
        Copier(address, transactional_id, read_topic, written_topics).run()
    except KafkaException:
        traceback.print_exc()
        # librdkafka's destruction of a producer may wait for a broker that is away for as long as it is away.
        os._exit(1)
