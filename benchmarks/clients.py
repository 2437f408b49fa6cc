"""The jobs of a benchmark client process: `python -m benchmarks.clients JOB JSON-ARGUMENTS` prints a line of JSON."""

from __future__ import annotations

import itertools
import json
import random
import sys
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from statistics import quantiles
from typing import Any

from confluent_kafka import Consumer, KafkaError, Producer, TopicPartition

from benchmarks.raw_client import RawClient, one_record


def produce(
    bootstrap: str, topic: str, partitions: int, megabytes: int, value_bytes: int, producers: int, batch_bytes: int
) -> dict[str, float]:
    """Measure the throughput of idempotent librdkafka producers, each with its own connections."""
    running = [
        Producer(
            {
                "bootstrap.servers": bootstrap,
                "enable.idempotence": True,
                "linger.ms": 5,
                "batch.size": batch_bytes,
                "queue.buffering.max.kbytes": 65_536,
            }
        )
        for _ in range(producers)
    ]
    value = (b"0123456789abcdef" * (value_bytes // 16 + 1))[:value_bytes]
    failed: list[KafkaError] = []

    def delivered(error: KafkaError | None, _: Any) -> None:
        if error is not None:
            failed.append(error)

    for producer in running:
        producer.list_topics(topic, timeout=30)
    records = megabytes * 1_000_000 // value_bytes
    began = time.perf_counter()
    for number in range(records):
        producer = running[number % producers]
        while True:
            try:
                producer.produce(topic, value=value, partition=number // producers % partitions, on_delivery=delivered)
                break
            except BufferError:
                for one in running:
                    one.poll(0.005)
        if not number % 256:
            for one in running:
                one.poll(0)
    left = sum(producer.flush(120) for producer in running)
    assert not failed, failed[:3]
    assert not left, f"{left} records were not delivered"
    return {"seconds": time.perf_counter() - began, "bytes": records * value_bytes}


def consume(
    bootstrap: str, topic: str, partitions: int, records: int, value_bytes: int, partition_bytes: int = 4_194_304
) -> dict[str, float]:
    """Measure the throughput of one librdkafka consumer from the beginning of the topic."""
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "bench",
            "enable.auto.commit": False,
            "fetch.message.max.bytes": partition_bytes,
            "queued.max.messages.kbytes": 131_072,
            # By default librdkafka pauses for a second when its queue is full; that pause would dominate the result.
            "fetch.queue.backoff.ms": 5,
            "check.crcs": False,
        }
    )
    consumer.assign([TopicPartition(topic, partition, 0) for partition in range(partitions)])
    seen, began, deadline = 0, 0.0, time.perf_counter() + 120
    while seen < records and time.perf_counter() < deadline:
        messages = consumer.consume(5000, 0.5)
        if messages and not began:
            # The measurement starts at the first records, so that it does not include the connect.
            began, seen = time.perf_counter(), -len(messages)
        seen += len(messages)
        if began and seen <= 0:
            records -= len(messages)
            seen = 0
    seconds = time.perf_counter() - began
    consumer.close()
    assert seen >= records, f"only {seen} of {records} records came"
    return {"seconds": seconds, "bytes": records * value_bytes}


def produce_latency(
    address: str, topic: str, partition: int, per_second: float, seconds: float, acks: int
) -> dict[str, float]:
    """Return the milliseconds from a produce request to its answer, at a fixed low rate on one connection."""
    client = RawClient(address)
    batch = one_record(b"x" * 200)
    client.produce(topic, partition, batch, acks)
    taken = _at_rate(per_second, seconds, lambda: client.produce(topic, partition, batch, acks))
    client.close()
    return _percentiles(taken)


def produce_at_rate(address: str, topic: str, partitions: int, per_second: float, seconds: float) -> dict[str, float]:
    """Return the milliseconds of produce requests that come at random times, whether earlier ones are answered or not.

    Enough connections take turns, so that a request hardly ever waits for another one on its connection.
    """
    connections, rng = max(2, round(per_second * 0.7)), random.Random(time.time_ns())
    times_s = [(number + rng.random()) / per_second for number in range(round(per_second * seconds))]
    return _in_parallel(address, topic, partitions, [times_s[first::connections] for first in range(connections)])


def produce_everywhere(
    addresses: Sequence[str], topic: str, partitions: int, batch_bytes: int, per_second: float, seconds: float
) -> dict[str, float]:
    """Send batches at random times to random partitions, `per_second` to each address. Return the number of all."""
    connections, batch, sent = max(2, round(per_second * 0.7)), one_record(b"x" * (batch_bytes - 72)), [0]
    began = time.perf_counter() + 1.0

    def send(address: str) -> None:
        client, rng, at_s = RawClient(address), random.Random(), 0.0
        while (at_s := at_s + rng.expovariate(per_second / connections)) < seconds:
            time.sleep(max(0.0, began + at_s - time.perf_counter()))
            client.produce(topic, rng.randrange(partitions), batch)
            sent[0] += 1
        client.close()

    threads = [threading.Thread(target=send, args=(address,)) for address in addresses for _ in range(connections)]
    for one in threads:
        one.start()
    for one in threads:
        one.join()
    return {"count": sent[0], "batch_bytes": len(batch)}


def produce_closed(address: str, topic: str, partitions: int, closed: int, seconds: float) -> dict[str, float]:
    """Return the milliseconds of produce requests of producers that send the next one when they get an answer."""
    return _in_parallel(address, topic, partitions, [itertools.repeat(0.0)] * closed, seconds)


def _in_parallel(
    address: str, topic: str, partitions: int, plans: Sequence[Iterable[float]], seconds: float = 1e9
) -> dict[str, float]:
    """Send a record at each time of each plan, by a connection for each plan."""
    batch, taken = one_record(b"x" * 200), list[float]()
    clients = [RawClient(address) for _ in plans]
    began = time.perf_counter() + 0.1

    def send(number: int) -> None:
        for at_s in plans[number]:
            if time.perf_counter() - began > seconds:
                return
            time.sleep(max(0.0, began + at_s - time.perf_counter()))
            sent = time.perf_counter()
            clients[number].produce(topic, number % partitions, batch)
            taken.append((time.perf_counter() - sent) * 1000)

    threads = [threading.Thread(target=send, args=(number,)) for number in range(len(plans))]
    for one in threads:
        one.start()
    for one in threads:
        one.join()
    for client in clients:
        client.close()
    return {**_percentiles(taken), "max_ms": max(taken)}


def end_to_end(
    produce_address: str, fetch_address: str, topic: str, partition: int, per_second: float, seconds: float
) -> dict[str, float]:
    """Return the milliseconds from before a produce to the record's arrival at a consumer that waits for it."""
    producer, consumer = RawClient(produce_address), RawClient(fetch_address)
    offset = producer.produce(topic, partition, one_record(b"first")) + 1
    sent: dict[int, float] = {}
    taken: list[float] = []
    done = threading.Event()

    def read() -> None:
        at = offset
        while not done.is_set():
            end, _ = consumer.fetch(topic, partition, at)
            now = time.perf_counter()
            while at < end:
                # A record may arrive before the producer gets its offset.
                while at not in sent:
                    time.sleep(0)
                taken.append((now - sent[at]) * 1000)
                at += 1

    reader = threading.Thread(target=read)
    reader.start()
    batch = one_record(b"x" * 200)

    def write() -> None:
        began = time.perf_counter()
        sent[producer.produce(topic, partition, batch)] = began

    try:
        _at_rate(per_second, seconds, write)
        time.sleep(1)
    finally:
        done.set()
        reader.join()
    producer.close()
    consumer.close()
    return _percentiles(taken)


def read_raw(address: str, topic: str, partitions: int, megabytes: int, version: int) -> dict[str, float]:
    """Measure the throughput of one very simple, cheap reader that reads all partitions at once, again and again."""
    client, offsets, size = RawClient(address), dict.fromkeys(((topic, index) for index in range(partitions)), 0), 0
    client.fetch_all(offsets, version, 1)
    began = time.perf_counter()
    while size < megabytes * 1_000_000:
        came = client.fetch_all(offsets, version)
        size += sum(part for _, part in came.values())
        # Partitions without an answer, because there was no room for them, come first in the next one.
        keys = sorted(offsets, key=lambda key: came.get(key, (0, 0))[1])
        offsets = {key: came.get(key, (offsets[key], 0))[0] for key in keys}
        if not any(part for _, part in came.values()):
            offsets = dict.fromkeys(offsets, 0)
    seconds = time.perf_counter() - began
    client.close()
    return {"seconds": seconds, "bytes": size}


def wait_for_nothing(address: str, topics: list[str], connections: int, seconds: float) -> dict[str, float]:
    """Run readers that wait at the ends of the topics' first partitions, each with a connection, and get nothing."""
    answers = 0

    def wait() -> None:
        nonlocal answers
        client, offsets = RawClient(address), dict.fromkeys(((topic, 0) for topic in topics), 0)
        came = client.fetch_all(offsets, 12)
        while any(size for _, size in came.values()):
            offsets = {key: end for key, (end, _) in came.items()}
            came = client.fetch_all(offsets, 12)
        end = time.perf_counter() + seconds
        while time.perf_counter() < end:
            client.fetch_all(offsets, 12)
            answers += 1
        client.close()

    waiting = [threading.Thread(target=wait) for _ in range(connections)]
    for one in waiting:
        one.start()
    for one in waiting:
        one.join()
    return {"answers": answers, "seconds": seconds}


def _at_rate(per_second: float, seconds: float, work: Callable[[], object]) -> list[float]:
    """Return the milliseconds that each call took; a late call does not make the next ones early."""
    taken = []
    end = time.perf_counter() + seconds
    while (began := time.perf_counter()) < end:
        work()
        now = time.perf_counter()
        taken.append((now - began) * 1000)
        time.sleep(max(0.0, 1 / per_second - (now - began)))
    return taken


def _percentiles(taken: list[float]) -> dict[str, float]:
    cuts = quantiles(taken, n=100, method="inclusive")
    return {"p50_ms": cuts[49], "p99_ms": cuts[98], "mean_ms": sum(taken) / len(taken), "count": len(taken)}


JOBS: dict[str, Callable[..., dict[str, float]]] = {
    job.__name__: job
    for job in (
        *(produce, consume, produce_latency, produce_at_rate, produce_closed, produce_everywhere),
        *(end_to_end, read_raw, wait_for_nothing),
    )
}

if __name__ == "__main__":
    print(json.dumps(JOBS[sys.argv[1]](**json.loads(sys.argv[2]))))
