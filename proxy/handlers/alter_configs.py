"""AlterConfigs and IncrementalAlterConfigs (API keys 33, 44): what governs data goes to the registry, the rest to the
shadow.

Behaviour: the broker first says what it thinks of all of it (validate-only, with the client's rights), so unknown names
and values that don't fit get its own error. Then what a diskless topic can't honour is refused, above all a change of
`diskless.enable` (INVALID_CONFIG), which a classic topic can't change either. A change is seen by each proxy when it
loads the registry, within moments.

Version notes: AlterConfigs replaces all configs of a resource, IncrementalAlterConfigs (KIP-339) sets, deletes,
appends to and subtracts from single ones.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Coroutine, Mapping
from dataclasses import replace
from functools import partial
from typing import Any

import structlog
from kio.schema.errors import ErrorCode

from proxy.client.client import Client
from proxy.client.request import Request
from proxy.client.slots import Slot
from proxy.config import Redis
from proxy.coordinator.interface import CoordinatorUnavailable
from proxy.coordinator.interface_registry import DisklessTopic, RegistryChanged
from proxy.coordinator.patience import patiently
from proxy.protocol.api_keys import INCREMENTAL_ALTER_CONFIGS
from proxy.protocol.errors import INVALID_CONFIG, NONE, REQUEST_TIMED_OUT, UNKNOWN_TOPIC_OR_PARTITION
from proxy.topics.topic_configs import (
    DISKLESS_ENABLE,
    SHADOW_CONFIGS,
    ConfigRefused,
    governs_data,
    is_known_to_brokers,
    registry_configs,
)
from proxy.topics.topic_resources import TOPIC, being_made, diskless_topics_of
from proxy.topics.topics import Topics
from proxy.wire.cold import encode, nested, read_request, read_response

log = structlog.get_logger()

_SET, _DELETE, _APPEND, _SUBTRACT = range(4)
_ENABLE_STAYS = (
    f"{DISKLESS_ENABLE} can't be changed once the topic is there (KIP-1163): make a new topic, and copy the records"
)
_ATTEMPTS = 12
_LONGEST_PAUSE_S = 0.2
"""Between two of them, at random: many who change topics at once would else be in each other's way again."""


class AlterConfigs:
    """Handler of AlterConfigs and IncrementalAlterConfigs."""

    def __init__(self, redis: Redis, *, topics: Topics, now: Callable[[], float]) -> None:
        """`now`: monotonic seconds."""
        self.redis = redis
        self.topics = topics
        self.now = now

    def alter_configs(self, client: Client, request: Request) -> Coroutine[Any, Any, None] | None:
        """Forward a request that is about no diskless topic, and would make none of a classic one."""
        topics = self.topics
        names_enable = DISKLESS_ENABLE.encode() in bytes(request.body)
        if not topics.all() and not names_enable:
            client.forward(request)
            return None
        asked = read_request(request.api_key, request.api_version, request.body)
        if being_made(asked.resources, topics):
            return self._look_again(client, request, asked, client.open_slot(request))
        diskless = diskless_topics_of(asked.resources, topics)
        if not diskless and not any(_names_enable(one) for one in asked.resources):
            client.forward(request)
            return None
        return _Altering(self, client, request, asked, diskless).answer(client.open_slot(request))

    async def _look_again(self, client: Client, request: Request, asked: Any, slot: Slot) -> None:
        """Another proxy may have answered the creation already: what is asked for must not go to the shadow."""
        topics = self.topics
        await topics.look_again()
        await _Altering(self, client, request, asked, diskless_topics_of(asked.resources, topics)).answer(slot)


class _Altering:
    """One request with diskless topics."""

    def __init__(
        self, of: AlterConfigs, client: Client, request: Request, asked: Any, diskless: Mapping[str, DisklessTopic]
    ) -> None:
        self._of = of
        self._client = client
        self._request = request
        self._asked = asked
        self._diskless = diskless
        self._patient_until_s = self._of.now() + self._of.redis.timeout_ms / 1000
        """For all of its topics together."""

    async def answer(self, slot: Slot) -> None:
        """Try it out, then change the shadow, then the registry. Raises BrokerUnreachable and ProtocolError."""
        tried = [one for one in self._asked.resources if self._is_mine(one) or _names_enable(one)]
        results = await self._ask([self._without_our_own(one) for one in tried], validate_only=True)
        for resource in tried:
            if self._succeeded(results, resource):
                self._refuse_what_is_not_honoured(results, resource)
        accepted = [one for one in self._asked.resources if one not in tried or self._succeeded(results, one)]
        if accepted:
            theirs = [self._shadow_part(one) if self._is_mine(one) else self._without_our_own(one) for one in accepted]
            results.update(await self._ask(theirs, validate_only=self._asked.validate_only))
            for resource in accepted:
                if self._is_mine(resource) and self._succeeded(results, resource) and not self._asked.validate_only:
                    await self._keep(results, resource)
        answers = tuple(results[_key(one)] for one in self._asked.resources if _key(one) in results)
        slot.fill([encode(replace(self._response, responses=answers))])

    def _is_mine(self, resource: Any) -> bool:
        return resource.resource_type == TOPIC and str(resource.resource_name) in self._diskless

    @staticmethod
    def _succeeded(results: Mapping[tuple[int, str], Any], resource: Any) -> bool:
        result = results.get(_key(resource))
        return result is not None and result.error_code.value == NONE

    async def _ask(self, resources: list[Any], *, validate_only: bool) -> dict[tuple[int, str], Any]:
        """The brokers' results by resource. Raises BrokerUnreachable and ProtocolError."""
        key, version = self._request.api_key, self._request.api_version
        asked = replace(self._asked, resources=tuple(resources), validate_only=validate_only)
        body = await self._client.ask(self._request, key, version, encode(asked))
        self._response: Any = read_response(key, version, body)
        return {_key(result): result for result in self._response.responses}

    def _without_our_own(self, resource: Any) -> Any:
        """Brokers don't know these configs, but reject a resource that names any config twice."""
        is_mine = self._is_mine(resource)
        known = [one for one in resource.configs if is_known_to_brokers(str(one.name), diskless=is_mine)]
        if len({one.name for one in resource.configs}) < len(resource.configs):
            return resource
        return replace(resource, configs=tuple(known))

    def _shadow_part(self, resource: Any) -> Any:
        kept = tuple(one for one in resource.configs if not governs_data(str(one.name)))
        if self._is_incremental:
            return replace(resource, configs=kept)
        # All configs are replaced: the shadow's own have to be among them.
        return replace(resource, configs=(*kept, *(self._setting(*one) for one in SHADOW_CONFIGS.items())))

    @property
    def _is_incremental(self) -> bool:
        return bool(self._request.api_key == INCREMENTAL_ALTER_CONFIGS)

    def _setting(self, name: str, value: str) -> Any:
        config_type = nested(nested(type(self._asked), "resources"), "configs")
        return config_type(name=name, value=value)

    def _refuse_what_is_not_honoured(self, results: dict[tuple[int, str], Any], resource: Any) -> None:
        if not self._is_mine(resource):
            if self._enables(resource):
                self._fail(results, resource, INVALID_CONFIG, _ENABLE_STAYS)
            return
        try:
            self._changed(self._diskless[str(resource.resource_name)].configs, resource)
        except ConfigRefused as error:
            self._fail(results, resource, INVALID_CONFIG, str(error))

    def _enables(self, resource: Any) -> bool:
        """Whether a classic topic is to be diskless; to set `false`, or nothing, changes nothing."""
        return any(
            one.name == DISKLESS_ENABLE
            and (one.value or "false").strip().lower() != "false"
            and not (self._is_incremental and one.config_operation == _DELETE)
            for one in resource.configs
        )

    def _changed(self, configs: Mapping[str, str], resource: Any) -> dict[str, str]:
        """The topic's configs after the change. Raises ConfigRefused."""
        changed = dict(configs) if self._is_incremental else {}
        for config in resource.configs:
            name = str(config.name)
            if not governs_data(name):
                continue
            operation = config.config_operation if self._is_incremental else _SET
            if operation == _DELETE or config.value is None:
                changed.pop(name, None)
            elif operation == _SET:
                changed[name] = config.value
            else:
                items = [one for one in changed.get(name, "delete").replace(" ", "").split(",") if one]
                named = config.value.replace(" ", "").split(",")
                kept = [one for one in items if one not in named]
                changed[name] = ",".join(kept + named if operation == _APPEND else kept)
        asked_for = {str(config.name) for config in resource.configs}
        if DISKLESS_ENABLE in asked_for and changed.get(DISKLESS_ENABLE) != "true":
            raise ConfigRefused(_ENABLE_STAYS)
        return registry_configs(changed)

    async def _keep(self, results: dict[tuple[int, str], Any], resource: Any) -> None:
        """Into the registry, from the version on that it has now; done twice, it is as done once."""
        name = str(resource.resource_name)
        try:
            left_s = self._patient_until_s - self._of.now()
            await patiently(partial(self._configure, name, results, resource), within_s=left_s)
        except (RegistryChanged, CoordinatorUnavailable) as error:
            log.warning("configs_not_kept", topic=name, reason=str(error))
            message = "the registry of diskless topics did not take it; try again"
            self._fail(results, resource, REQUEST_TIMED_OUT, message)
        except ConfigRefused as error:
            self._fail(results, resource, INVALID_CONFIG, str(error))

    async def _configure(self, name: str, results: dict[tuple[int, str], Any], resource: Any) -> None:
        """Raises CoordinatorUnavailable, ConfigRefused, and RegistryChanged where others keep changing it."""
        topics = self._of.topics
        for attempt in range(_ATTEMPTS):
            await topics.load()
            entry = topics.find(name)
            if entry is None or entry.state != "live":
                self._fail(results, resource, UNKNOWN_TOPIC_OR_PARTITION, f"Topic '{name}' is gone.")
                return
            try:
                await topics.registry.configure(name, topics.change, self._changed(entry.configs, resource))
                await topics.load()
                return
            except RegistryChanged:
                if attempt == _ATTEMPTS - 1:
                    raise
                await asyncio.sleep(random.uniform(0, min(0.005 * 2**attempt, _LONGEST_PAUSE_S)))

    @staticmethod
    def _fail(results: dict[tuple[int, str], Any], resource: Any, error_code: int, message: str) -> None:
        result = results[_key(resource)]
        results[_key(resource)] = replace(result, error_code=ErrorCode(error_code), error_message=message)


def _names_enable(resource: Any) -> bool:
    """Whether a topic's `diskless.enable` is among the configs; brokers don't know it."""
    return resource.resource_type == TOPIC and any(one.name == DISKLESS_ENABLE for one in resource.configs)


def _key(resource: Any) -> tuple[int, str]:
    return int(resource.resource_type), str(resource.resource_name)
