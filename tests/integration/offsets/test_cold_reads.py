"""Old records are read from object storage with their own small budget, and give the same results."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

from proxy.demo.stack import Stack
from tests.support.confluent import produce_to, read_partitions
from tests.support.metrics import Metrics
from tests.support.records import COMPRESSIONS, Stored, samples
from tests.support.topics import DISKLESS, new_topic

RACK = "rack-b"
PARTITIONS = 3
COLD = {"cold_after_ms": 0, "cold_cache_bytes": 65_536, "cold_block_bytes": 8_192, "cold_max_gets": 2}
"""Settings under which every record counts as old, with room for only a few blocks."""


@pytest.fixture
def cold(stack: Stack) -> Iterator[Stack]:
    """Run the proxy of `RACK` with `COLD`, and restore its own settings at the end."""
    own = dict(stack.proxies[RACK].settings)
    stack.terminate_proxy(RACK)
    stack.configure_proxy(RACK, {"fetch": COLD})
    stack.start_proxy(RACK)
    yield stack
    stack.terminate_proxy(RACK)
    stack.proxies[RACK].settings = own
    stack.proxies[RACK].prepare()
    stack.start_proxy(RACK)


def test_old_records_are_read_with_little_memory_and_without_the_tails_cache(cold: Stack) -> None:
    topic = new_topic(cold, "cold", DISKLESS, PARTITIONS)
    sent = {partition: samples(60, f"cold-{partition}") for partition in range(PARTITIONS)}
    for compression in COMPRESSIONS:
        produce_to(cold.bootstrap("rack-a"), topic, sent, compression_type=compression, batch_num_messages=7)
    before = Metrics(cold, RACK)

    def read(rack: str) -> list[list[Stored]]:
        return read_partitions(cold.bootstrap(rack), topic, PARTITIONS)

    with ThreadPoolExecutor(4) as pool:
        reads = list(pool.map(read, ["rack-c", RACK, RACK, RACK]))
    assert [len(partition) for partition in reads[0]] == [60 * len(COMPRESSIONS)] * PARTITIONS
    assert reads[1:] == reads[:1] * 3
    after = Metrics(cold, RACK)
    read_bytes = after.value("storage_bytes_read_total") - before.value("storage_bytes_read_total")
    assert read_bytes > COLD["cold_cache_bytes"]
    assert after.value("cold_storage_bytes_read_total") - before.value("cold_storage_bytes_read_total") == read_bytes
    assert after.value("cold_cache_bytes") <= COLD["cold_cache_bytes"]
    assert after.value("cache_bytes") == before.value("cache_bytes")
