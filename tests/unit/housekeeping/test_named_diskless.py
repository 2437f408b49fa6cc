"""Report topics as classic although their names are to be diskless."""

from __future__ import annotations

from collections.abc import Collection
from types import SimpleNamespace
from typing import Any
from uuid import UUID

from kio.index import load_response_schema
from kio.schema.errors import ErrorCode
from structlog.testing import capture_logs

from proxy.housekeeping.named_diskless import NamedDiskless
from proxy.process.turns import Turns
from proxy.protocol.api_keys import DESCRIBE_CONFIGS, METADATA
from proxy.wire.cold import encode, milliseconds, nested, read_request

METADATA_VERSION = 12
PATTERNS = (r"orders\..*", r"events")


class Broker:
    """The service connection to a broker with these topics; each has a cleanup policy, or None if it is hidden."""

    def __init__(self, topics: dict[str, str | None]) -> None:
        self.topics = topics
        self.asked: list[int] = []

    async def ask(self, api_key: int, version: int, body: bytes) -> memoryview:
        self.asked.append(api_key)
        return memoryview(self._metadata() if api_key == METADATA else self._configs(version, body))

    def _metadata(self) -> bytes:
        schema: Any = load_response_schema(METADATA, METADATA_VERSION)
        topic_type = nested(schema, "topics")
        topics = tuple(
            topic_type(error_code=ErrorCode.none, name=name, topic_id=UUID(int=number), partitions=())
            for number, name in enumerate(self.topics, start=1)
        )
        return encode(schema(throttle_time=milliseconds(0), brokers=(), topics=topics))

    def _configs(self, version: int, body: bytes) -> bytes:
        from kio.schema.describe_configs.v4.response import DescribeConfigsResponse

        result_type = nested(DescribeConfigsResponse, "results")
        config_type = nested(result_type, "configs")
        asked = read_request(DESCRIBE_CONFIGS, version, memoryview(body))
        results = []
        for one in asked.resources:
            policy = self.topics[str(one.resource_name)]
            config = config_type(
                name="cleanup.policy",
                value=policy,
                read_only=False,
                config_source=1,
                is_sensitive=False,
                synonyms=(),
                config_type=0,
                documentation=None,
            )
            results.append(
                result_type(
                    error_code=ErrorCode.none if policy else ErrorCode.topic_authorization_failed,
                    error_message=None,
                    resource_type=one.resource_type,
                    resource_name=one.resource_name,
                    configs=(config,) if policy else (),
                )
            )
        response: Any = DescribeConfigsResponse
        return encode(response(throttle_time=milliseconds(0), results=tuple(results)))


def looking(broker: Broker, registered: Collection[str] = (), patterns: tuple[str, ...] = PATTERNS) -> NamedDiskless:
    cluster: Any = SimpleNamespace(service=broker)
    return NamedDiskless(
        cluster, Turns(0.001), patterns=lambda: patterns, is_registered=lambda name: name in registered
    )


async def test_classic_topics_whose_names_match_are_found() -> None:
    broker = Broker(
        {
            "orders.new": "delete",
            "orders.live": "delete",
            "orders.table": "compact",
            "orders.both": "compact,delete",
            "orders.hidden": None,
            "events": "delete",
            "events-more": "delete",
            "__consumer_offsets": "compact",
        }
    )
    assert await looking(broker, {"orders.live"}).look() == ("events", "orders.hidden", "orders.new")
    everything = (r".*",)
    assert "__consumer_offsets" not in await looking(broker, patterns=everything).look()


async def test_brokers_are_not_asked_without_patterns_nor_for_configs_of_nothing() -> None:
    broker = Broker({"other": "delete"})
    assert await looking(broker, patterns=()).look() == ()
    assert broker.asked == []
    assert await looking(broker).look() == ()
    assert broker.asked == [METADATA]


async def test_very_many_topics_are_found_in_turns() -> None:
    broker = Broker({f"orders.{number}": "delete" for number in range(2_000)})
    assert len(await looking(broker).look()) == 2_000
    assert broker.asked.count(DESCRIBE_CONFIGS) == 4


async def test_each_topic_is_logged_once() -> None:
    broker = Broker({"events": "delete"})
    look = looking(broker)
    with capture_logs() as logs:
        await look.look()
        await look.look()
        broker.topics["orders.new"] = "delete"
        await look.look()
    assert [line["topics"] for line in logs] == [["events"], ["orders.new"]]
    look.forget()
    assert look.topics == ()


async def test_a_topic_that_becomes_diskless_meanwhile_is_not_reported() -> None:
    """A proxy registers the name before the brokers know it, so the registry is asked last again."""
    registered = set[str]()
    broker = Broker({"events": "delete"})
    configs = broker._configs

    def registering(version: int, body: bytes) -> bytes:
        registered.add("events")
        return configs(version, body)

    broker._configs = registering  # type: ignore[method-assign]
    assert await looking(broker, registered).look() == ()
