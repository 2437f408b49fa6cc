"""No answer of any API and version through the proxy contains a broker's own address in its bytes.

The schemas show which APIs could (`tests/unit/wire/test_addresses.py`); here the real brokers answer.
"""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable, Iterator
from typing import Any

from proxy.demo.ports import HOST
from proxy.demo.stack import Stack
from proxy.protocol.apis import API_TABLE, PROPOSED_VERSIONS, Treatment
from tests.support.questions import ask, ask_bytes, filled
from tests.support.topics import CLASSIC, create_topic
from tests.unit.wire.test_addresses import SERVED as WITH_ADDRESSES
from tests.unit.wire.trees import encode, request_type

PRODUCE, FETCH, METADATA, FIND_COORDINATOR, API_VERSIONS = 0, 1, 3, 10, 18
DESCRIBE_QUORUM, DESCRIBE_CLUSTER, SHARE_FETCH, SHARE_ACKNOWLEDGE = 55, 60, 78, 79
LEADER, OTHER = 1, 2
FIRST_WITH_ENDPOINTS = {PRODUCE: 10, FETCH: 16, SHARE_FETCH: 1}


def questions(topic: str, topic_id: bytes) -> dict[int, dict[str, Any]]:
    """Return, for each API, the fields that make brokers answer with addresses."""
    member = str(uuid.uuid4())
    return {
        PRODUCE: {
            "acks": -1,
            "timeout": 5000,
            "topic_data": [
                {"name": topic, "topic_id": topic_id, "partition_data": [{"index": 0, "records": one_record()}]}
            ],
        },
        FETCH: {
            "replica_id": -1,
            "max_bytes": 1 << 20,
            "min_bytes": 0,
            "session_epoch": -1,
            "topics": [
                {
                    "topic": topic,
                    "topic_id": topic_id,
                    "partitions": [
                        {
                            "partition": 0,
                            "current_leader_epoch": 0,
                            "last_fetched_epoch": -1,
                            "log_start_offset": -1,
                            "partition_max_bytes": 1 << 20,
                        }
                    ],
                }
            ],
        },
        METADATA: {"topics": [{"name": topic}], "allow_auto_topic_creation": False},
        FIND_COORDINATOR: {"key": "group", "coordinator_keys": ["group"]},
        DESCRIBE_QUORUM: {"topics": [{"topic_name": "__cluster_metadata", "partitions": [{"partition_index": 0}]}]},
        DESCRIBE_CLUSTER: {"endpoint_type": 1},
        SHARE_FETCH: {
            "group_id": "share",
            "member_id": member,
            "max_bytes": 1 << 20,
            "max_records": 10,
            "batch_size": 10,
            "topics": [{"topic_id": topic_id, "partitions": [{"partition_index": 0}]}],
        },
        SHARE_ACKNOWLEDGE: {
            "group_id": "share",
            "member_id": member,
            "share_session_epoch": 1,
            "topics": [{"topic_id": topic_id, "partitions": [{"partition_index": 0}]}],
        },
    }


def one_record() -> bytes:
    """Build a batch with one record."""
    from aiokafka.record.default_records import DefaultRecordBatchBuilder

    builder = DefaultRecordBatchBuilder(2, 0, 0, -1, -1, -1, 1 << 20)
    builder.append(0, timestamp=1, key=None, value=b"value", headers=[])
    return bytes(builder.build())


def offered(address: str) -> dict[int, tuple[int, int]]:
    """Return versions by API key, from ApiVersions."""
    answer = ask(address, API_VERSIONS, 3, client_software_name="raw", client_software_version="1")
    return {each["api_key"]: (each["min_version"], each["max_version"]) for each in answer["api_keys"]}


def asked(stack: Stack) -> Iterator[tuple[int, int, Callable[[str], bytes]]]:
    """Return every API and version that has addresses and that the brokers offer, with a function that sends it."""
    topic = f"no-addresses-{uuid.uuid4().hex[:6]}"
    create_topic(stack, topic, CLASSIC, assignment=[[LEADER, 3]])
    by_broker = offered(stack.kafka.address(OTHER))
    deadline = time.monotonic() + 60
    while (known := ask(stack.kafka.address(OTHER), METADATA, 12, topics=[{"name": topic}])["topics"][0])["error_code"]:
        assert time.monotonic() < deadline, known
        time.sleep(0.1)
    while ask(stack.kafka.address(OTHER), FIND_COORDINATOR, 0, key="group")["error_code"]:
        assert time.monotonic() < deadline, "the group has no coordinator"
        time.sleep(0.2)
    fields = questions(topic, known["topic_id"])
    for key, version in WITH_ADDRESSES:
        lowest, highest = by_broker[key]
        if lowest <= version <= highest:
            body = encode(entity := request_type(key, version), filled(entity, fields[key]))
            yield (
                key,
                version,
                lambda address, key=key, version=version, body=body: ask_bytes(  # type: ignore[misc]
                    address, key, version, body
                ),
            )


def test_no_version_of_any_answer_contains_a_brokers_address(stack: Stack) -> None:
    ports = [stack.ports.controller, *(int(stack.kafka.address(node).rpartition(":")[2]) for node in stack.kafka.racks)]
    # Every schema has the port right after the host; a port alone might be part of an offset.
    short = [HOST.encode() + stack.ports.controller.to_bytes(2, "big")]
    secrets = [HOST.encode() + port.to_bytes(4, "big") for port in ports] + [str(port).encode() for port in ports]
    index = list(stack.proxies).index("rack-b")
    listener = f"127.0.0.1:{stack.ports.broker_port_start(index) + OTHER}"
    direct = {}
    for key, version, question in asked(stack):
        answer = question(stack.kafka.address(OTHER))
        direct[key, version] = any(secret in answer for secret in secrets + short)
        for address in (listener, stack.bootstrap("rack-b")):
            answer = question(address)
            wanted = secrets + (short if key == DESCRIBE_QUORUM else [])
            assert not any(secret in answer for secret in wanted), f"API key {key} v{version} at {address}"
    # The brokers themselves do return addresses, so the search above could have found some.
    silent = {each for each, has_address in direct.items() if not has_address}
    assert {
        (key, version)
        for key, version in silent
        if key not in (SHARE_ACKNOWLEDGE, DESCRIBE_QUORUM) and version >= FIRST_WITH_ENDPOINTS.get(key, 0)
    } == set()
    assert direct[DESCRIBE_QUORUM, 2]


def test_clients_are_offered_every_api_that_the_brokers_offer(stack: Stack) -> None:
    by_broker, by_proxy = offered(stack.kafka.address(OTHER)), offered(stack.bootstrap("rack-b"))
    assert {key for key in by_broker if key not in API_TABLE} == set()
    newer = {key for key, (_, highest) in by_broker.items() if highest > API_TABLE[key].highest_version}
    assert newer == set()
    hidden = {key for key in by_broker if API_TABLE[key].treatment is Treatment.HIDE}
    assert by_proxy.keys() == by_broker.keys() - hidden
    assert by_proxy == {key: by_broker[key] for key in by_proxy}


def test_proposed_versions_are_rejected_as_brokers_reject_them(stack: Stack) -> None:
    """A broker closes the connection on a version that it has not offered, and so does the proxy."""
    for key, version in PROPOSED_VERSIONS.items():
        for address in (stack.kafka.address(OTHER), stack.bootstrap("rack-b")):
            try:
                ask_bytes(address, key, version, b"\x01\x00\x00\x00\x00\x00")
            except ConnectionError:
                continue
            raise AssertionError(f"{address} answered API key {key} v{version}")
