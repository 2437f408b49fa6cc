"""CreateTopics (API key 19): a topic with `diskless.enable=true` is reserved, then made, then opened.

Behaviour (design: registry before shadow):

1. the name is reserved in the registry, and every live proxy acknowledges it, so no record can slip into the shadow;
2. the shadow topic is created on the brokers, on the client's own connection, so that its rights decide; the configs
   that govern data stay in the registry, the shadow keeps what is written to it (transaction markers) for ever;
3. the logs are made, and the topic is live under the shadow's topic ID.

What fails on the way is undone, and answered with the brokers' own error or a retriable one.

Version notes: the brokers are asked with v7 for the sake of the topic ID; the answer is given in the client's version.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import structlog
from kio.schema.errors import ErrorCode

from proxy.coordinator.interface import CoordinatorUnavailable, TopicReserved
from proxy.errors import INVALID_CONFIG, NONE, REQUEST_TIMED_OUT, TOPIC_ALREADY_EXISTS
from proxy.topic_configs import (
    DISKLESS_ENABLE,
    ConfigRefused,
    diskless_by_name,
    registry_configs,
    shadow_configs,
    wants_diskless,
)
from proxy.upstream import BrokerUnreachable
from proxy.wire.cold import at_version, encode, nested, read_request, read_response
from proxy.wire.errors import ProtocolError

if TYPE_CHECKING:
    from proxy.connection import ClientConnection
    from proxy.request import Request

log = structlog.get_logger()
_ASKED_VERSION = 7
_ACKNOWLEDGE_POLL_S = 0.02


def create_topics(connection: ClientConnection, request: Request) -> Coroutine[Any, Any, None] | None:
    """Forward what is all classic."""
    try:
        parsed = read_request(request.api_key, request.api_version, request.body)
    except ProtocolError:
        if DISKLESS_ENABLE.encode() in bytes(request.body):
            raise
        connection.forward(request)
        return None
    topics, patterns = connection.context.topics, connection.context.settings.default_diskless_topics
    concerned = any(
        any(config.name == DISKLESS_ENABLE for config in topic.configs)
        or diskless_by_name(str(topic.name), patterns)
        or topics.find(str(topic.name)) is not None
        for topic in parsed.topics
    )
    if not concerned:
        connection.forward(request)
        return None
    return _Creating(connection, request, parsed).answer(connection.open_slot(request))


class _Creating:
    """One CreateTopics with diskless topics."""

    def __init__(self, connection: ClientConnection, request: Request, parsed: Any) -> None:
        self._connection = connection
        self._context = connection.context
        self._request = request
        self._parsed = at_version(parsed, _ASKED_VERSION, response=False)
        self._refused: dict[str, tuple[int, str]] = {}
        self._reserved: dict[str, dict[str, str]] = {}
        """Registry configs of the topics that we have reserved."""

    async def answer(self, slot: Any) -> None:
        """All of it, topic by topic where topics fail."""
        topics = []
        version = -1
        for topic in self._parsed.topics:
            name = str(topic.name)
            configs = {config.name: config.value for config in topic.configs}
            try:
                default = diskless_by_name(name, self._context.settings.default_diskless_topics)
                if not wants_diskless(configs, default=default):
                    if self._context.topics.find(name) is not None:
                        self._refused[name] = (TOPIC_ALREADY_EXISTS, f"Topic '{name}' already exists.")
                    else:
                        topics.append(self._without(topic, {DISKLESS_ENABLE}))
                    continue
                if not self._context.settings.diskless_system_enable:
                    raise ConfigRefused("this proxy makes no diskless topics: diskless.system.enable is off")
                kept = registry_configs(configs)
                if not self._parsed.validate_only:
                    version = max(version, await self._reserve(topic, kept))
                topics.append(self._shadow(topic, configs))
            except ConfigRefused as error:
                self._refused[name] = (INVALID_CONFIG, str(error))
            except TopicReserved:
                self._refused[name] = (TOPIC_ALREADY_EXISTS, f"Topic '{name}' already exists.")
            except CoordinatorUnavailable as error:
                self._refused[name] = (REQUEST_TIMED_OUT, f"the registry of diskless topics can't be reached: {error}")
        results: list[Any] = []
        try:
            if self._reserved and not await self._everyone_knows(version):
                results = await self._give_up(topics)
            elif topics:
                results = await self._make(topics)
        except BaseException:
            await asyncio.shield(self._undo(self._reserved))
            raise
        slot.fill([encode(at_version(self._response(results), self._request.api_version, response=True))])

    async def _reserve(self, topic: Any, kept: dict[str, str]) -> int:
        name = str(topic.name)
        partitions = len(topic.assignments) or max(topic.num_partitions, 0)
        version = await self._context.topics.registry.reserve(name, partitions, kept, self._context.settings.identity)
        self._reserved[name] = kept
        return version

    async def _everyone_knows(self, version: int) -> bool:
        """Wait until every live proxy obeys the registry's `version`."""
        deadline_s = self._context.now() + self._context.settings.fleet.create_topic_timeout_ms / 1000
        while self._context.now() < deadline_s:
            try:
                if self._context.topics.version < version:
                    await self._context.topics.load()
                if await self._context.fleet.acknowledged(version):
                    return True
            except CoordinatorUnavailable as error:
                log.warning("reservation_unacknowledged", reason=str(error))
            await asyncio.sleep(_ACKNOWLEDGE_POLL_S)
        return False

    async def _give_up(self, topics: list[Any]) -> list[Any]:
        for name in list(self._reserved):
            self._refused[name] = (REQUEST_TIMED_OUT, "not every proxy of the fleet acknowledged the topic in time")
        await self._undo(self._reserved)
        classic = [topic for topic in topics if str(topic.name) not in self._refused]
        return await self._make(classic) if classic else []

    async def _make(self, topics: list[Any]) -> list[Any]:
        """Create on the brokers; open what is diskless and was created, undo the rest."""
        asked = replace(self._parsed, topics=tuple(topics))
        body = await self._connection.ask(self._request, self._request.api_key, _ASKED_VERSION, encode(asked))
        try:
            response = read_response(self._request.api_key, _ASKED_VERSION, body)
        except ProtocolError as error:
            raise BrokerUnreachable(f"the answer to CreateTopics can't be read: {error}") from error
        results = []
        for result in response.topics:
            name = str(result.name)
            if name in self._reserved:
                result = await self._open(name, result)
            results.append(result)
        return results

    async def _open(self, name: str, result: Any) -> Any:
        if result.error_code.value != NONE:
            await self._undo({name: self._reserved[name]})
            return result
        try:
            topic_id = result.topic_id.bytes
            await self._context.coordinator.create_logs(topic_id, range(result.num_partitions))
            await self._context.topics.registry.activate(name, topic_id, result.num_partitions)
            await self._context.topics.load()
        except CoordinatorUnavailable as error:
            log.error(
                "diskless_topic_half_made",
                topic=name,
                reason=str(error),
                remedy="delete the topic and create it again once the coordinator answers",
            )
            return replace(result, error_code=ErrorCode(REQUEST_TIMED_OUT), error_message=str(error))
        log.info("diskless_topic_created", topic=name, partitions=result.num_partitions)
        return result

    async def _undo(self, reserved: dict[str, dict[str, str]]) -> None:
        for name in reserved:
            try:
                await self._context.topics.registry.remove(name)
            except CoordinatorUnavailable as error:
                log.error("reservation_left", topic=name, reason=str(error), remedy="delete the topic")

    def _shadow(self, topic: Any, configs: dict[str, str | None]) -> Any:
        config_type = nested(type(topic), "configs")
        return replace(
            topic,
            configs=tuple(config_type(name=name, value=value) for name, value in shadow_configs(configs).items()),
        )

    def _without(self, topic: Any, names: set[str]) -> Any:
        return replace(topic, configs=tuple(config for config in topic.configs if config.name not in names))

    def _response(self, results: list[Any]) -> Any:
        from kio.schema.create_topics.v7.response import CreatableTopicResult, CreateTopicsResponse

        from proxy.wire.cold import milliseconds

        by_name = {str(result.name): result for result in results}
        for name, (error_code, message) in self._refused.items():
            by_name[name] = CreatableTopicResult(
                name=name,  # type: ignore[arg-type]
                topic_id=None,
                error_code=ErrorCode(error_code),
                error_message=message,
                configs=None,
            )
        order = [str(topic.name) for topic in self._parsed.topics]
        return CreateTopicsResponse(
            throttle_time=milliseconds(0), topics=tuple(by_name[name] for name in order if name in by_name)
        )
