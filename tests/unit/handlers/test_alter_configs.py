"""AlterConfigs of a topic whose creation this proxy does not see completed yet."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from kio.schema.alter_configs.v2 import request as alter_request
from kio.schema.alter_configs.v2 import response as alter_response
from kio.schema.errors import ErrorCode
from kio.schema.incremental_alter_configs.v1 import request as incremental_request
from kio.schema.incremental_alter_configs.v1 import response as incremental_response
from kio.schema.types import TopicName
from kio.static.primitive import i8

from proxy.client.request import Request
from proxy.config import Redis
from proxy.coordinator.interface import CoordinatorUnavailable
from proxy.coordinator.interface_registry import NO_CHANGE, RegistryChange, RegistrySnapshot
from proxy.handlers.alter_configs import AlterConfigs
from proxy.topics.topics import Topics
from proxy.wire.cold import encode, milliseconds, read_request, read_response
from tests.registry_model import ModelTopicRegistry
from tests.unit.client_double import ClientDouble

TOPIC_ID = b"1" * 16


class Registry(ModelTopicRegistry):
    """May be away."""

    away = False

    resets = 0
    """Number of config changes that get no answer; every second one takes effect anyway."""

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


class Client(ClientDouble):
    """A client of a proxy that knows topic `a` as reserved, and brokers to which everything is fine."""

    def __init__(self, topics: Topics) -> None:
        super().__init__(self._accept)
        self.handle = AlterConfigs(Redis(url="redis://h:1"), topics=topics, now=asyncio.get_running_loop().time)
        self.asked: list[dict[str, str]] = []
        """Configs that brokers were asked to set, validate-only or not."""

    def _accept(self, api_key: int, api_version: int, body: bytes) -> Any:
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
        return made(throttle_time=milliseconds(0), responses=results)


async def reserved() -> tuple[Registry, Client]:
    registry = Registry()
    await registry.reserve("a", 1, {"retention.ms": "5"}, "owner")
    topics = Topics(registry, lease_runs=lambda: True)
    await topics.load()
    return registry, Client(topics)


def alteration(api_key: int, name: str = "retention.ms", value: str | None = "7", operation: int = 0) -> Request:
    """Set a config of topic `a`."""
    topic = TopicName("a")
    body: Any
    if api_key == 33:
        config = alter_request.AlterableConfig(name=name, value=value)
        resource = alter_request.AlterConfigsResource(resource_type=i8(2), resource_name=topic, configs=(config,))
        body = alter_request.AlterConfigsRequest(resources=(resource,), validate_only=False)
        encoded = encode(body)
        return Request(33, 2, 1, "a", memoryview(encoded), memoryview(encoded))
    setting = incremental_request.AlterableConfig(name=name, config_operation=i8(operation), value=value)
    changed = incremental_request.AlterConfigsResource(resource_type=i8(2), resource_name=topic, configs=(setting,))
    encoded = encode(incremental_request.IncrementalAlterConfigsRequest(resources=(changed,), validate_only=False))
    return Request(44, 1, 1, "a", memoryview(encoded), memoryview(encoded))


@pytest.mark.parametrize("api_key", [33, 44])
async def test_the_registry_is_looked_at_again_for_a_topic_that_is_being_made(api_key: int) -> None:
    """Another proxy has answered the creation already, and configs of data must not go to the placeholder topic."""
    registry, client = await reserved()
    await registry.activate("a", TOPIC_ID, 1)
    answering = client.handle.alter_configs(client, alteration(api_key))  # type: ignore[arg-type]
    assert answering is not None
    await answering
    assert client.forwarded == []
    assert registry.topics["a"].configs["retention.ms"] == "7"
    _, shadow = client.asked
    assert shadow.get("retention.ms") != "7"


async def test_brokers_answer_while_the_registry_is_away() -> None:
    registry, client = await reserved()
    answering = client.handle.alter_configs(client, alteration(44))  # type: ignore[arg-type]
    assert answering is not None
    registry.away = True
    await answering
    assert client.asked[-1] == {"retention.ms": "7"}
    assert registry.topics["a"].configs == {"retention.ms": "5"}


async def test_a_change_whose_answer_is_lost_is_made_again() -> None:
    registry, client = await reserved()
    await registry.activate("a", TOPIC_ID, 1)
    registry.resets = 4
    answering = client.handle.alter_configs(client, alteration(44))  # type: ignore[arg-type]
    assert answering is not None
    await answering
    assert (registry.resets, registry.topics["a"].configs["retention.ms"]) == (0, "7")


@pytest.mark.parametrize("api_key", [33, 44])
@pytest.mark.parametrize("others", [False, True], ids=["no diskless topic", "others are diskless"])
async def test_a_classic_topic_stays_classic_and_the_client_gets_the_reason(api_key: int, others: bool) -> None:
    """The brokers would say that they don't know the config."""
    registry = Registry()
    if others:
        await registry.reserve("b", 1, {}, "owner")
        await registry.activate("b", TOPIC_ID, 1)
    topics = Topics(registry, lease_runs=lambda: True)
    await topics.load()
    client = Client(topics)
    answering = client.handle.alter_configs(client, alteration(api_key, "diskless.enable", "true"))  # type: ignore[arg-type]
    assert answering is not None
    await answering
    (result,) = answer_of(api_key, client).responses
    assert result.error_code is ErrorCode.invalid_config
    assert "diskless.enable can't be changed once the topic is there (KIP-1163)" in result.error_message
    assert client.asked == [{}]


@pytest.mark.parametrize(
    ("api_key", "value", "operation"), [(33, "false", 0), (33, None, 0), (44, "FALSE", 0), (44, "", 1), (44, None, 1)]
)
async def test_a_classic_topic_may_be_set_to_classic(api_key: int, value: str | None, operation: int) -> None:
    topics = Topics(Registry(), lease_runs=lambda: True)
    await topics.load()
    client = Client(topics)
    request = alteration(api_key, "diskless.enable", value, operation)
    answering = client.handle.alter_configs(client, request)  # type: ignore[arg-type]
    assert answering is not None
    await answering
    (result,) = answer_of(api_key, client).responses
    assert result.error_code is ErrorCode.none
    assert client.asked == [{}, {}]


async def test_a_request_without_the_config_is_forwarded() -> None:
    topics = Topics(Registry(), lease_runs=lambda: True)
    await topics.load()
    client = Client(topics)
    for request in (alteration(44), alteration(44, "description", "diskless.enable")):
        assert client.handle.alter_configs(client, request) is None  # type: ignore[arg-type]
    assert len(client.forwarded) == 2


def answer_of(api_key: int, client: Client) -> Any:
    return read_response(api_key, 2 if api_key == 33 else 1, memoryview(client.slots[-1].body or b""))
