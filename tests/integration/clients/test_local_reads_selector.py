"""Brokers with `replica.selector.class` redirect clients that name a rack, as KIP-392 describes.

The proxies read for all other clients, as with brokers without it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from proxy.demo.stack import Stack, StackOptions
from tests.support.java_tools import JavaTools
from tests.support.local_reads import Filled, Oracle, filled_topic, read_at_home, warm_up, whole
from tests.support.questions import ask
from tests.support.whole_topics import FETCH, Partitions, Whole, by_hand, confluent_kafka, franz_go, java, kcat

SELECTOR = "org.apache.kafka.common.replica.RackAwareReplicaSelector"
CASES: dict[str, tuple[Callable[[Whole], Partitions], bool]] = {
    "java with client.rack": (java, True),
    "confluent-kafka with client.rack": (confluent_kafka, True),
    "kcat with client.rack": (kcat, True),
    "franz-go with client.rack": (franz_go, True),
    "java": (java, False),
    "confluent-kafka": (confluent_kafka, False),
    "kafka-python 1.4": (by_hand(4), False),
}
"""Clients, and whether they name their rack."""
PATIENT = {"fetch": {"replica_grace_ms": 3_000}}
RACKS = ("rack-a", "rack-b")
FAR_RACK, FAR_NODE = RACKS[1], 2

pytestmark = pytest.mark.stack


@pytest.fixture(scope="module")
def selecting() -> Iterator[Stack]:
    """Start brokers that redirect clients to their rack."""
    selector = {"replica.selector.class": SELECTOR}
    with Stack(StackOptions(racks=RACKS, broker_properties=selector, broker_jmx=True, overrides=PATIENT)) as running:
        yield running


@pytest.fixture(scope="module")
def classic(selecting: Stack, tools: JavaTools, tmp_path_factory: pytest.TempPathFactory) -> Filled:
    """Create a topic that every rack's proxy has read once."""
    topic = filled_topic(selecting, "selected")
    warm_up(selecting, topic, tools, tmp_path_factory.mktemp("warm-up"))
    return topic


@pytest.mark.parametrize("case", CASES)
def test_every_record_byte_comes_from_the_clients_rack(
    selecting: Stack,
    tools: JavaTools,
    classic: Filled,
    tmp_path: Path,
    case: str,
) -> None:
    reader, says_rack = CASES[case]
    what = whole(selecting, FAR_RACK, classic, tools, tmp_path, client_rack=FAR_RACK if says_rack else "")
    served = read_at_home(selecting, tools, classic.name, FAR_RACK, lambda: reader(what), classic.records)
    assert served >= classic.value_bytes


def test_the_brokers_redirect_a_client_that_names_another_rack_than_its_proxys(
    selecting: Stack, tools: JavaTools, classic: Filled, tmp_path: Path
) -> None:
    """The client connects to the proxy of one rack and names another: the brokers' answer stands."""
    oracle = Oracle(selecting, tools, classic.name)
    what = whole(selecting, RACKS[0], classic, tools, tmp_path, client_rack=FAR_RACK)
    assert confluent_kafka(what) == classic.records
    assert list(oracle.by_rack()) == [FAR_RACK]


@pytest.mark.parametrize("says_rack", [True, False])
def test_only_clients_that_name_a_rack_are_redirected(
    selecting: Stack, tools: JavaTools, classic: Filled, says_rack: bool
) -> None:
    """On the leader's listener in another rack, a client gets a redirect without records, or records without a
    redirect."""
    partition = next(index for index, leader in enumerate(classic.leaders) if leader != FAR_NODE)
    oracle = Oracle(selecting, tools, classic.name)
    proxy = list(selecting.proxies).index(FAR_RACK)
    address = f"127.0.0.1:{selecting.ports.broker_port_start(proxy) + classic.leaders[partition]}"
    partition_data = fetched(address, classic.name, partition, rack_id=FAR_RACK if says_rack else "")
    assert partition_data["error_code"] == 0
    assert partition_data["preferred_read_replica"] == (FAR_NODE if says_rack else -1)
    assert bool(partition_data["records"]) != says_rack
    assert list(oracle.by_rack()) == ([] if says_rack else [FAR_RACK])


def fetched(address: str, topic: str, partition: int, **more: Any) -> dict[str, Any]:
    """Return the partition from the answer to a Fetch v11 without a session, from offset 0."""
    asked = {
        "partition": partition,
        "current_leader_epoch": -1,
        "fetch_offset": 0,
        "log_start_offset": -1,
        "partition_max_bytes": 65_536,
    }
    limits = {"max_wait": 500, "min_bytes": 1, "max_bytes": 1 << 20, "replica_id": -1, "session_epoch": -1}
    answer = ask(address, FETCH, 11, topics=[{"topic": topic, "partitions": [asked]}], **limits, **more)
    assert answer["error_code"] == 0
    partition_data: dict[str, Any] = answer["responses"][0]["partitions"][0]
    return partition_data
