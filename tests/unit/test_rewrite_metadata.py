"""Metadata and similar APIs as handlers: requests to the broker, the rack that decides, and the clients' answers."""

from __future__ import annotations

from collections.abc import Callable, Generator
from types import SimpleNamespace
from typing import Any

import pytest

from proxy.brokers.cluster import ClusterView
from proxy.client.request import Request
from proxy.config import Settings
from proxy.rewrite_metadata import describe_topic_partitions, metadata
from proxy.routing.leaders import LeaderChoice
from proxy.wire.header import parse_request_header, request_header
from proxy.wire.metadata import Broker
from proxy.wire.primitives import Buffer
from proxy.wire.steps import Rewrite, at_once
from tests.support.questions import filled
from tests.unit.creation.made import auto_creation_of
from tests.unit.sessions import session
from tests.unit.wire.proposed import DESCRIBE_TOPIC_PARTITIONS_REQUEST, METADATA_REQUEST, METADATA_RESPONSE
from tests.unit.wire.trees import decode, decode_joined, encode, request_type, response_type

METADATA, DESCRIBE = 3, 75
BROKERS = {node: Broker(node, "broker", 9092, rack) for node, rack in ((1, "rack-a"), (2, "rack-b"), (3, "rack-b"))}
PARTITION = {"partition_index": 0, "leader_id": 1, "leader_epoch": 4, "replica_nodes": [1, 3], "isr_nodes": [1]}


class Asked:
    """A client's connection without sockets that records forwarded requests."""

    def __init__(self, leader_choice: str = "sticky", brokers: dict[int, Broker] = BROKERS) -> None:
        self.answers: Any = self
        self.session = session()
        self.learned: list[tuple[str | None, str | None]] = []
        self.forwarded: Request | None = None
        self.rewrite: Any = None
        whole = Settings(
            rack="rack-a",
            brokers={"bootstrap": ["h:1"]},
            redis={"url": "redis://h:1/0"},
            storage={"url": "file:///nowhere"},
            kip1163_api=True,
        )
        topics: Any = SimpleNamespace(
            all=lambda: ("one",),
            is_diskless=lambda name, topic_id: name == "diskless",
            find=lambda name: SimpleNamespace(state="live") if name == "diskless" else None,
        )
        self.context = SimpleNamespace(
            settings=whole,
            auto_creation=auto_creation_of(whole, topics=topics, under_replicated=SimpleNamespace(enabled=False)),
            fleet=SimpleNamespace(listener=lambda node, rack, client, came_by: (f"proxy-of-{rack}", node)),
            cluster=SimpleNamespace(learn=lambda brokers: None, view=ClusterView(brokers)),
            topics=topics,
            racks=SimpleNamespace(
                of=lambda *_: "rack-a",
                named=lambda rack: rack,
                learn=lambda connection, client_id, rack: self.learned.append((client_id, rack)),
            ),
            leader_choice=LeaderChoice(leader_choice),
        )

    def forward(self, request: Request, rewrite: Any) -> None:
        self.forwarded, self.rewrite = request, _without_pauses(rewrite)

    def forward_slot(self, request: Request, slot: Any) -> None:
        self.forwarded, self.rewrite = request, _without_pauses(slot._rewrite)


def _without_pauses(rewrite: Rewrite) -> Callable[[memoryview], list[Buffer]]:
    def rewritten(answer: memoryview) -> list[Buffer]:
        body = rewrite(answer)
        return at_once(body) if isinstance(body, Generator) else body

    return rewritten


def request(key: int, version: int, body: bytes) -> Request:
    frame = memoryview(request_header(key, version, 77, "app") + body)
    return Request(key, version, 77, "app", frame, frame[len(frame) - len(body) :])


def topic(name: str, **more: Any) -> dict[str, Any]:
    return {"name": name, "partitions": [PARTITION | {"partition_index": index} for index in range(4)], **more}


def response(topics: list[dict[str, Any]]) -> dict[str, Any]:
    brokers = [{"node_id": node, "host": "broker", "port": 9092, "rack": one.rack} for node, one in BROKERS.items()]
    return filled(response_type(METADATA, 13), {"brokers": brokers, "controller_id": 1, "topics": topics})


def test_metadata_v14_reaches_the_broker_as_v13_and_its_rack_decides() -> None:
    asked: Any = Asked()
    tree = filled(METADATA_REQUEST, {"topics": [{"name": "diskless"}], "rack_id": "rack-b"})
    metadata(asked, request(METADATA, 14, encode(METADATA_REQUEST, tree)))
    header = parse_request_header(asked.forwarded.frame)
    assert (header.api_key, header.api_version, header.correlation_id, header.client_id) == (METADATA, 13, 77, "app")
    del tree["rack_id"]
    assert decode(request_type(METADATA, 13), asked.forwarded.frame[header.body_offset :]) == tree
    assert asked.learned == [("app", "rack-b")]
    body = encode(response_type(METADATA, 13), response([topic("diskless"), topic("classic")]))
    answer = decode_joined(METADATA_RESPONSE, asked.rewrite(memoryview(body)))
    assert {broker["host"] for broker in answer["brokers"]} == {"proxy-of-rack-b"}
    diskless, classic = answer["topics"]
    (leader,) = {partition["leader_id"] for partition in diskless["partitions"]}
    assert leader in {2, 3}
    assert [partition["preferred_produce_brokers"] for partition in diskless["partitions"]] == [[leader]] * 4
    assert (diskless["is_diskless"], classic["is_diskless"]) == (True, False)
    assert {partition["leader_id"] for partition in classic["partitions"]} == {1}


def test_describe_topic_partitions_v1_reaches_the_broker_as_v0() -> None:
    asked: Any = Asked()
    cursor = {"topic_name": "diskless", "partition_index": 2}
    tree = filled(
        DESCRIBE_TOPIC_PARTITIONS_REQUEST,
        {"topics": [{"name": "diskless"}], "cursor": cursor, "response_partition_limit": 9, "rack_id": "rack-b"},
    )
    describe_topic_partitions(asked, request(DESCRIBE, 1, encode(DESCRIBE_TOPIC_PARTITIONS_REQUEST, tree)))
    header = parse_request_header(asked.forwarded.frame)
    assert (header.api_key, header.api_version) == (DESCRIBE, 0)
    del tree["rack_id"]
    assert decode(request_type(DESCRIBE, 0), asked.forwarded.frame[header.body_offset :]) == tree
    entity = response_type(DESCRIBE, 0)
    page = filled(entity, {"topics": [topic("diskless")], "next_cursor": cursor})
    answer = decode_joined(entity, asked.rewrite(memoryview(encode(entity, page))))
    assert {partition["leader_id"] for partition in answer["topics"][0]["partitions"]} <= {2, 3}
    assert answer["next_cursor"] == cursor


@pytest.mark.parametrize("choice", ["sticky", "round_robin", "partition_hash", "replica"])
def test_describe_topic_partitions_agrees_with_metadata(choice: str) -> None:
    asked: Any = Asked(choice)
    names = [f"diskless{number}" for number in range(5)]
    asked.context.topics.is_diskless = lambda name, topic_id: name in names
    topics = [topic(name) for name in names]
    metadata(asked, request(METADATA, 13, b""))
    first = decode_joined(
        response_type(METADATA, 13), asked.rewrite(memoryview(encode(response_type(METADATA, 13), response(topics))))
    )
    entity = response_type(DESCRIBE, 0)
    for page in (topics[:2], topics[2:]):
        describe_topic_partitions(asked, request(DESCRIBE, 0, b""))
        answer = decode_joined(
            entity, asked.rewrite(memoryview(encode(entity, filled(entity, {"topics": page, "next_cursor": None}))))
        )
        for each in answer["topics"]:
            whole = next(one for one in first["topics"] if one["name"] == each["name"])
            assert [(partition["leader_id"], partition["replica_nodes"]) for partition in each["partitions"]] == [
                (partition["leader_id"], partition["replica_nodes"]) for partition in whole["partitions"]
            ]


def test_without_a_live_broker_the_brokers_own_answer_stands() -> None:
    asked: Any = Asked(brokers={})
    metadata(asked, request(METADATA, 13, b""))
    entity = response_type(METADATA, 13)
    away = [topic("diskless", error_code=0)]
    away[0]["partitions"] = [PARTITION | {"error_code": 5, "leader_id": -1}]
    answer = decode_joined(entity, asked.rewrite(memoryview(encode(entity, response(away)))))
    assert answer["topics"] == response(away)["topics"]


@pytest.mark.parametrize("handler", [metadata, describe_topic_partitions])
def test_rack_ids_that_say_nothing(handler: Any) -> None:
    key, version, entity = (
        (METADATA, 14, METADATA_REQUEST) if handler is metadata else (DESCRIBE, 1, DESCRIBE_TOPIC_PARTITIONS_REQUEST)
    )
    for rack in ("", None):
        asked: Any = Asked()
        handler(asked, request(key, version, encode(entity, filled(entity, {"rack_id": rack}))))
        assert asked.learned == [("app", None)]
