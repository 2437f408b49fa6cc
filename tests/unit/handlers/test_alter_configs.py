"""AlterConfigs of a topic whose creation this proxy has not heard the end of."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest
from kio.schema.alter_configs.v2 import request as alter_request
from kio.schema.alter_configs.v2 import response as alter_response
from kio.schema.errors import ErrorCode
from kio.schema.incremental_alter_configs.v1 import request as incremental_request
from kio.schema.incremental_alter_configs.v1 import response as incremental_response
from kio.schema.types import TopicName
from kio.static.primitive import i8

from proxy.coordinator.interface import NO_CHANGE, CoordinatorUnavailable, RegistryChange, RegistrySnapshot
from proxy.handlers.alter_configs import alter_configs
from proxy.request import Request
from proxy.topics import Topics
from proxy.wire.cold import encode, milliseconds, read_request
from tests.registry_model import ModelTopicRegistry

TOPIC_ID = b"1" * 16


class Registry(ModelTopicRegistry):
    """May be away."""

    away = False

    resets = 0
    """So many of the next changes of configs are not answered, every second one done all the same."""

    async def newest_change(self) -> RegistryChange:
        if self.away:
            raise CoordinatorUnavailable("away")
        return await super().newest_change()

    async def load(self, known: RegistryChange = NO_CHANGE) -> RegistrySnapshot:
        if self.away:
            raise CoordinatorUnavailable("away")
        return await super().load(known)

    async def configure(self, name: str, read: RegistryChange, configs: dict[str, str]) -> int:
        if not self.resets:
            return await super().configure(name, read, configs)
        self.resets -= 1
        if self.resets % 2:
            await super().configure(name, read, configs)
        raise CoordinatorUnavailable("reset")


class Client:
    """A connection to a proxy that knows topic `a` as reserved, and brokers to which everything is fine."""

    def __init__(self, topics: Topics) -> None:
        self.context = SimpleNamespace(
            topics=topics,
            settings=SimpleNamespace(redis=SimpleNamespace(timeout_ms=3_000)),
            now=asyncio.get_running_loop().time,
        )
        self.forwarded: list[Request] = []
        self.asked: list[dict[str, str]] = []
        """Configs that brokers were asked to set, validate-only or not."""

    def forward(self, request: Request) -> None:
        self.forwarded.append(request)

    def open_slot(self, request: Request) -> Any:
        return SimpleNamespace(fill=lambda _: None)

    async def ask(self, request: Request, api_key: int, api_version: int, body: bytes) -> memoryview:
        asked: Any = read_request(api_key, api_version, memoryview(body))
        self.asked += [{one.name: one.value for one in resource.configs} for resource in asked.resources]
        module: Any = alter_response if api_key == 33 else incremental_response
        results = tuple(
            module.AlterConfigsResourceResponse(
                error_code=ErrorCode.none,
                error_message=None,
                resource_type=one.resource_type,
                resource_name=one.resource_name,
            )
            for one in asked.resources
        )
        made = module.AlterConfigsResponse if api_key == 33 else module.IncrementalAlterConfigsResponse
        return memoryview(encode(made(throttle_time=milliseconds(0), responses=results)))


async def reserved() -> tuple[Registry, Client]:
    registry = Registry()
    await registry.reserve("a", 1, {"retention.ms": "5"}, "owner")
    topics = Topics(registry, lease_runs=lambda: True)
    await topics.load()
    return registry, Client(topics)


def alteration(api_key: int) -> Request:
    """Of `retention.ms` to 7."""
    name = TopicName("a")
    body: Any
    if api_key == 33:
        config = alter_request.AlterableConfig(name="retention.ms", value="7")
        resource = alter_request.AlterConfigsResource(resource_type=i8(2), resource_name=name, configs=(config,))
        body = alter_request.AlterConfigsRequest(resources=(resource,), validate_only=False)
        encoded = encode(body)
        return Request(33, 2, 1, "a", memoryview(encoded), memoryview(encoded))
    setting = incremental_request.AlterableConfig(name="retention.ms", config_operation=i8(0), value="7")
    changed = incremental_request.AlterConfigsResource(resource_type=i8(2), resource_name=name, configs=(setting,))
    encoded = encode(incremental_request.IncrementalAlterConfigsRequest(resources=(changed,), validate_only=False))
    return Request(44, 1, 1, "a", memoryview(encoded), memoryview(encoded))


@pytest.mark.parametrize("api_key", [33, 44])
async def test_the_registry_is_looked_at_again_for_a_topic_that_is_being_made(api_key: int) -> None:
    """Another proxy has answered the creation already, and what governs data must not go to the shadow."""
    registry, client = await reserved()
    await registry.activate("a", TOPIC_ID, 1)
    answering = alter_configs(client, alteration(api_key))  # type: ignore[arg-type]
    assert answering is not None
    await answering
    assert client.forwarded == []
    assert registry.topics["a"].configs["retention.ms"] == "7"
    _, shadow = client.asked
    assert shadow.get("retention.ms") != "7"


async def test_where_the_registry_is_away_brokers_answer() -> None:
    registry, client = await reserved()
    answering = alter_configs(client, alteration(44))  # type: ignore[arg-type]
    assert answering is not None
    registry.away = True
    await answering
    assert client.asked[-1] == {"retention.ms": "7"}
    assert registry.topics["a"].configs == {"retention.ms": "5"}


async def test_a_change_whose_answer_is_lost_is_made_again() -> None:
    registry, client = await reserved()
    await registry.activate("a", TOPIC_ID, 1)
    registry.resets = 4
    answering = alter_configs(client, alteration(44))  # type: ignore[arg-type]
    assert answering is not None
    await answering
    assert (registry.resets, registry.topics["a"].configs["retention.ms"]) == (0, "7")
