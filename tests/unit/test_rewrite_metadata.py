"""Metadata and similar APIs as handlers: requests to the broker, the rack that decides, and the clients' answers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from proxy.client.request import Request
from proxy.coordinator.interface_registry import DisklessTopic
from proxy.rewrite_metadata import RewriteMetadata
from proxy.routing.addresses import Addresses
from proxy.routing.leaders import LeaderChoice
from proxy.wire.header import parse_request_header, request_header
from proxy.wire.metadata import Broker
from tests.support.questions import filled
from tests.unit.brokers_double import Brokers
from tests.unit.client_double import ClientDouble
from tests.unit.parts import parts_of, settings_of
from tests.unit.wire.proposed import DESCRIBE_TOPIC_PARTITIONS_REQUEST, METADATA_REQUEST, METADATA_RESPONSE
from tests.unit.wire.trees import decode, encode, request_type, response_type

METADATA, DESCRIBE = 3, 75
BROKERS = {node: Broker(node, "broker", 9092, rack) for node, rack in ((1, "rack-a"), (2, "rack-b"), (3, "rack-b"))}
PARTITION = {"partition_index": 0, "leader_id": 1, "leader_epoch": 4, "replica_nodes": [1, 3], "isr_nodes": [1]}


DISKLESS = DisklessTopic("diskless", b"d" * 16, 4, "live")


class Asked(ClientDouble):
    """A client of a proxy whose fleet has a proxy in every rack."""

    def __init__(
        self,
        leader_choice: str = "sticky",
        brokers: dict[int, Broker] = BROKERS,
        diskless: Sequence[DisklessTopic] = (DISKLESS,),
    ) -> None:
        super().__init__()
        cluster: Any = Brokers(brokers)
        self.racks = LearnedRacks()
        racks: Any = self.racks
        parts = parts_of(settings_of(kip1163_api=True), *diskless)
        fleet: Any = ProxyOfEachRack()
        self.handlers = RewriteMetadata(
            parts.process.settings.fleet,
            parts.process.settings.limits,
            addresses=Addresses(fleet=fleet, racks=racks, leader_choice=LeaderChoice(leader_choice), cluster=cluster),
            auto_creation=parts.creation.auto_creation,
            cluster=cluster,
            fleet=fleet,
            racks=racks,
            topics=parts.topics.topics,
            turns=parts.process.turns,
        )

    def metadata(self, version: int, body: bytes = b"") -> None:
        assert self.handlers.metadata(self, request(METADATA, version, body)) is None

    def describe(self, version: int, body: bytes = b"") -> None:
        self.handlers.describe_topic_partitions(self, request(DESCRIBE, version, body))


class LearnedRacks:
    """Every client is in rack-a, unless it names another one."""

    def __init__(self) -> None:
        self.learned: list[tuple[str | None, str | None]] = []

    def of(self, *_: object) -> str:
        return "rack-a"

    def on_any_proxy(self, *_: object) -> None:
        return None

    def named(self, rack: str | None) -> str | None:
        return rack or None

    def learn(self, session: object, client_id: str | None, rack: str | None) -> None:
        self.learned.append((client_id, rack))


class ProxyOfEachRack:
    """A fleet whose proxies are named after their racks."""

    def listener(self, node: int, rack: str, client: str, came_by: object) -> tuple[str, int]:
        return f"proxy-of-{rack}", node


def request(key: int, version: int, body: bytes) -> Request:
    frame = memoryview(request_header(key, version, 77, "app") + body)
    return Request(key, version, 77, "app", frame, frame[len(frame) - len(body) :])


def topic(name: str, **more: Any) -> dict[str, Any]:
    return {"name": name, "partitions": [PARTITION | {"partition_index": index} for index in range(4)], **more}


def response(topics: list[dict[str, Any]]) -> dict[str, Any]:
    brokers = [{"node_id": node, "host": "broker", "port": 9092, "rack": one.rack} for node, one in BROKERS.items()]
    return filled(response_type(METADATA, 13), {"brokers": brokers, "controller_id": 1, "topics": topics})


async def test_metadata_v14_reaches_the_broker_as_v13_and_its_rack_decides() -> None:
    asked = Asked()
    tree = filled(METADATA_REQUEST, {"topics": [{"name": "diskless"}], "rack_id": "rack-b"})
    asked.metadata(14, encode(METADATA_REQUEST, tree))
    header = parse_request_header(asked.forwarded[-1].frame)
    assert (header.api_key, header.api_version, header.correlation_id, header.client_id) == (METADATA, 13, 77, "app")
    del tree["rack_id"]
    assert decode(request_type(METADATA, 13), asked.forwarded[-1].frame[header.body_offset :]) == tree
    assert asked.racks.learned == [("app", "rack-b")]
    body = encode(response_type(METADATA, 13), response([topic("diskless"), topic("classic")]))
    answer = decode(METADATA_RESPONSE, asked.rewritten(body))
    assert {broker["host"] for broker in answer["brokers"]} == {"proxy-of-rack-b"}
    diskless, classic = answer["topics"]
    (leader,) = {partition["leader_id"] for partition in diskless["partitions"]}
    assert leader in {2, 3}
    assert [partition["preferred_produce_brokers"] for partition in diskless["partitions"]] == [[leader]] * 4
    assert (diskless["is_diskless"], classic["is_diskless"]) == (True, False)
    assert {partition["leader_id"] for partition in classic["partitions"]} == {1}


async def test_describe_topic_partitions_v1_reaches_the_broker_as_v0() -> None:
    asked = Asked()
    cursor = {"topic_name": "diskless", "partition_index": 2}
    tree = filled(
        DESCRIBE_TOPIC_PARTITIONS_REQUEST,
        {"topics": [{"name": "diskless"}], "cursor": cursor, "response_partition_limit": 9, "rack_id": "rack-b"},
    )
    asked.describe(1, encode(DESCRIBE_TOPIC_PARTITIONS_REQUEST, tree))
    header = parse_request_header(asked.forwarded[-1].frame)
    assert (header.api_key, header.api_version) == (DESCRIBE, 0)
    del tree["rack_id"]
    assert decode(request_type(DESCRIBE, 0), asked.forwarded[-1].frame[header.body_offset :]) == tree
    entity = response_type(DESCRIBE, 0)
    page = filled(entity, {"topics": [topic("diskless")], "next_cursor": cursor})
    answer = decode(entity, asked.rewritten(encode(entity, page)))
    assert {partition["leader_id"] for partition in answer["topics"][0]["partitions"]} <= {2, 3}
    assert answer["next_cursor"] == cursor


@pytest.mark.parametrize("choice", ["sticky", "round_robin", "partition_hash", "replica"])
async def test_describe_topic_partitions_agrees_with_metadata(choice: str) -> None:
    names = [f"diskless{number}" for number in range(5)]
    asked = Asked(choice, diskless=[DisklessTopic(name, name.encode().ljust(16), 4, "live") for name in names])
    topics = [topic(name) for name in names]
    asked.metadata(13, b"")
    first = decode(response_type(METADATA, 13), asked.rewritten(encode(response_type(METADATA, 13), response(topics))))
    entity = response_type(DESCRIBE, 0)
    for page in (topics[:2], topics[2:]):
        asked.describe(0, b"")
        answer = decode(entity, asked.rewritten(encode(entity, filled(entity, {"topics": page, "next_cursor": None}))))
        for each in answer["topics"]:
            whole = next(one for one in first["topics"] if one["name"] == each["name"])
            assert [(partition["leader_id"], partition["replica_nodes"]) for partition in each["partitions"]] == [
                (partition["leader_id"], partition["replica_nodes"]) for partition in whole["partitions"]
            ]


async def test_without_a_live_broker_the_brokers_own_answer_stands() -> None:
    asked = Asked(brokers={})
    asked.metadata(13, b"")
    entity = response_type(METADATA, 13)
    away = [topic("diskless", error_code=0)]
    away[0]["partitions"] = [PARTITION | {"error_code": 5, "leader_id": -1}]
    answer = decode(entity, asked.rewritten(encode(entity, response(away))))
    assert answer["topics"] == response(away)["topics"]


@pytest.mark.parametrize("key", [METADATA, DESCRIBE])
@pytest.mark.parametrize("rack", ["", None])
async def test_rack_ids_that_say_nothing(key: int, rack: str | None) -> None:
    asked = Asked()
    if key == METADATA:
        asked.metadata(14, encode(METADATA_REQUEST, filled(METADATA_REQUEST, {"rack_id": rack})))
    else:
        asked.describe(
            1, encode(DESCRIBE_TOPIC_PARTITIONS_REQUEST, filled(DESCRIBE_TOPIC_PARTITIONS_REQUEST, {"rack_id": rack}))
        )
    assert asked.racks.learned == [("app", None)]
