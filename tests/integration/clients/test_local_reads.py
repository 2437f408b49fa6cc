"""Every client reads classic topics in its own rack, according to the brokers' own metrics (KIP-392).

The brokers have no `replica.selector.class` here, so none of them would redirect a client to a follower.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from proxy.demo.stack import Stack
from tests.support.java_tools import JavaTools
from tests.support.local_reads import Filled, Oracle, filled_topic, read_at_home, warm_up, whole
from tests.support.metrics import Metrics
from tests.support.whole_topics import (
    Partitions,
    Whole,
    aio_kafka,
    by_hand,
    confluent_kafka,
    franz_go,
    java,
    kafka_python,
    kcat,
    old_java,
)

Reader = Callable[[Whole], Partitions]

READERS: dict[str, Reader] = {
    "java": java,
    "java 0.11.0.3": old_java("client-0.11.0.3"),
    "java 2.0.1": old_java("client-2.0.1"),
    "confluent-kafka": confluent_kafka,
    "kcat": kcat,
    "kafka-python": kafka_python,
    "kafka-python 1.4": by_hand(4),
    "fetch v10": by_hand(10),
    "aiokafka": aio_kafka,
    "franz-go": franz_go,
}
SAYS_ITS_RACK = ("java", "confluent-kafka", "kcat", "kafka-python", "aiokafka", "franz-go")
CASES = {name: (reader, False) for name, reader in READERS.items()}
CASES |= {f"{name} with client.rack": (READERS[name], True) for name in SAYS_ITS_RACK}
FAR_RACKS = ("rack-b", "rack-c")
"""Racks that the clients use in turns."""


@pytest.fixture(scope="module")
def classic(running_stack: Stack, tools: JavaTools, tmp_path_factory: pytest.TempPathFactory) -> Filled:
    """Create a topic that every rack's proxy has read once."""
    topic = filled_topic(running_stack, "local")
    warm_up(running_stack, topic, tools, tmp_path_factory.mktemp("warm-up"))
    return topic


@pytest.mark.parametrize("case", CASES)
def test_every_record_byte_comes_from_the_clients_rack(
    stack: Stack, tools: JavaTools, classic: Filled, tmp_path: Path, case: str
) -> None:
    reader, says_rack = CASES[case]
    rack = FAR_RACKS[list(CASES).index(case) % len(FAR_RACKS)]
    what = whole(stack, rack, classic, tools, tmp_path, client_rack=rack if says_rack else "")
    served = read_at_home(stack, tools, classic.name, rack, lambda: reader(what), classic.records)
    assert served >= classic.value_bytes


def test_the_rack_in_a_client_id_counts_at_every_proxy(
    stack: Stack, tools: JavaTools, classic: Filled, tmp_path: Path
) -> None:
    what = whole(stack, "rack-a", classic, tools, tmp_path, client_id="app,diskless_rack_id=rack-c")
    read_at_home(stack, tools, classic.name, "rack-c", lambda: confluent_kafka(what), classic.records)


def test_the_proxies_count_what_the_brokers_count(
    stack: Stack, tools: JavaTools, classic: Filled, tmp_path: Path
) -> None:
    """Compare by topic and by rack. Fetches are made by hand, so that none requests more than its answer holds."""
    rack = FAR_RACKS[0]
    before = Metrics(stack, rack)
    oracle = Oracle(stack, tools, classic.name)
    assert by_hand(4)(whole(stack, rack, classic, tools, tmp_path)) == classic.records
    after = Metrics(stack, rack)

    def more(name: str, **labels: str) -> float:
        labels |= {"kind": "classic", "direction": "fetch"}
        return after.value(name, **labels) - before.value(name, **labels)

    served = oracle.by_rack()
    counted = {serving: more("record_bytes_total", client_rack=rack, serving_rack=serving) for serving in stack.proxies}
    assert served == {serving: size for serving, size in counted.items() if size}
    assert sum(served.values()) == more("topic_record_bytes_total", topic=classic.name)
    crossed = sum(size for serving, size in served.items() if serving != rack)
    assert crossed == more("topic_cross_rack_bytes_total", topic=classic.name) == more("cross_rack_bytes_total")
