"""Create topics as a client: a topic with `diskless.enable=true` is reserved, then made, then opened.

The registry comes before the shadow:

1. the name is reserved in the registry, and every live proxy acknowledges it, so no record can slip into the shadow;
   from then on no proxy lets another topic of that name be made, and one that came before that keeps it;
2. the shadow topic is created on the brokers, on the client's own connection, so that its rights decide; the configs
   that govern data stay in the registry, the shadow keeps what is written to it (transaction markers) forever;
3. the logs are made, and the topic is live under the shadow's topic ID.

Before a name is reserved the brokers are asked whether they would create such a topic, with the configs that the client
sent (`validate_only`). What they reject is rejected, and what they report of its configs is the client's answer. What
fails on the way is undone or, if nobody knows, settled by what the brokers say (`reservations.py`).

What the brokers reject because too few are registered, a classic topic or a shadow, is made with those that are live
(KIP-409, `replication/creation.py`).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from dataclasses import replace
from functools import partial
from typing import Any

import structlog
from kio.index import load_request_schema
from kio.schema.create_topics.v7.request import CreateTopicsRequest
from kio.schema.create_topics.v7.response import CreateTopicsResponse
from kio.schema.errors import ErrorCode

from proxy.brokers.upstream import BrokerUnreachable
from proxy.client.client import Client
from proxy.client.request import Request
from proxy.config import Settings
from proxy.coordinator.interface import CoordinatorUnavailable
from proxy.coordinator.interface_registry import TopicNotReserved, TopicReserved
from proxy.creation.creatable import as_diskless, named_topic, partition_count, rejected, with_configs
from proxy.creation.replication.creation import OUTCOME_UNKNOWN, UnderReplicatedTopics
from proxy.creation.reservations import Reservations
from proxy.process.unfinished import Unfinished
from proxy.protocol.api_keys import CREATE_TOPICS, DELETE_TOPICS
from proxy.protocol.errors import (
    INVALID_CONFIG,
    NONE,
    REQUEST_TIMED_OUT,
    TOPIC_ALREADY_EXISTS,
    TOPIC_AUTHORIZATION_FAILED,
)
from proxy.routing.fleet import Fleet, LeaseLapsed
from proxy.topics.topic_configs import (
    ConfigRefused,
    diskless_by_name,
    is_known_to_brokers,
    registry_configs,
    shadow_configs,
    wants_diskless,
)
from proxy.topics.topics import Topics
from proxy.wire.cold import at_version, encode, milliseconds, nested, read_response
from proxy.wire.errors import ProtocolError

log = structlog.get_logger()
_DELETE_TOPICS_VERSION = 6
_ASKED_VERSION = 7
_TIMEOUT_MS = 30_000
"""Timeout of a creation of the proxy's own, as Admin clients have it."""
_ACKNOWLEDGE_POLL_S = 0.02
_SHADOW_WAIT_S = 5.0
"""How long a shadow may take to show up in the brokers' metadata."""


class TopicCreator:
    """Creates topics for clients."""

    def __init__(
        self,
        settings: Settings,
        *,
        topics: Topics,
        fleet: Fleet,
        reservations: Reservations,
        under_replicated: UnderReplicatedTopics,
        unfinished: Unfinished,
        now: Callable[[], float],
    ) -> None:
        """`now`: monotonic seconds."""
        self.settings = settings
        self.topics = topics
        self.fleet = fleet
        self.reservations = reservations
        self.under_replicated = under_replicated
        self.unfinished = unfinished
        self.now = now

    async def create(self, client: Client, request: Request, asked: Any) -> CreateTopicsResponse:
        """Create what a CreateTopics of any version asks for; return the answer, in v7. Raises BrokerUnreachable."""
        return await _Creating(self, client, request, asked).answer()

    async def create_by_name(
        self, client: Client, request: Request, names: Iterable[str], *, partitions: int, replication_factor: int
    ) -> dict[str, Any]:
        """Create topics as the client, diskless if their names say so; return the results by name.

        `partitions` and `replication_factor`: -1 for the controllers' defaults. Raises BrokerUnreachable.
        """
        topics = tuple(named_topic(name, partitions, replication_factor) for name in names)
        asked = CreateTopicsRequest(topics=topics, timeout=milliseconds(_TIMEOUT_MS), validate_only=False)
        asking = request._replace(api_key=CREATE_TOPICS, api_version=_ASKED_VERSION)
        return {str(result.name): result for result in await _Creating(self, client, asking, asked).results()}


class _Creating:
    """Creates the topics of one CreateTopics; everything is in v7."""

    def __init__(self, creator: TopicCreator, client: Client, request: Request, parsed: Any) -> None:
        self._of = creator
        self._client = client
        self._request = request
        self._parsed = at_version(parsed, _ASKED_VERSION, response=False)
        self._order = [str(topic.name) for topic in self._parsed.topics]
        self._asked: dict[str, Any] = {}
        """Topics that the brokers are asked to create, by name: classic ones, and shadows."""
        self._wanted: dict[str, dict[str, str]] = {}
        """Diskless topics by name, with their configs in the registry."""
        self._as_sent: dict[str, Any] = {}
        """The same topics with all configs that brokers know."""
        self._told: dict[str, Any] = {}
        """Results of trying out diskless topics: with the configs of the diskless topic, not those of its shadow."""
        self._forbidden_first: dict[str, Any] = {}
        """Topics that the proxy rejects. If the client has no right to create them, that error comes first."""
        self._results: dict[str, Any] = {}
        self._throttle_time = milliseconds(0)
        """Longest throttle time of the brokers' answers."""

    async def answer(self) -> CreateTopicsResponse:
        """Create the topics and return the answer, in v7. Raises BrokerUnreachable."""
        topics = await self.results()
        return CreateTopicsResponse(throttle_time=self._throttle_time, topics=topics)

    async def results(self) -> tuple[Any, ...]:
        """Create the topics and return the results; a topic that fails fails alone. Raises BrokerUnreachable."""
        if any(self._of.topics.find(name) is not None for name in self._order):
            await self._of.topics.look_again()
        for topic in self._parsed.topics:
            self._sort(topic)
        await self._try_out()
        if not self._parsed.validate_only:
            # Once a name is reserved it is seen through, whether or not the client waits for it.
            await self._of.unfinished.see_through(self._create())
        return tuple(self._results[name] for name in self._order if name in self._results)

    def _sort(self, topic: Any) -> None:
        """Sort a topic: it is classic, diskless, or rejected."""
        name = str(topic.name)
        configs = {config.name: config.value for config in topic.configs}
        default = diskless_by_name(name, self._of.settings.default_diskless_topics)
        try:
            diskless = wants_diskless(configs, default=default)
            if diskless and not self._of.settings.diskless_system_enable:
                raise ConfigRefused("this proxy creates no diskless topics: diskless.system.enable is false")
            kept = registry_configs(configs) if diskless else {}
        except ConfigRefused as error:
            self._refuse(name, INVALID_CONFIG, str(error))
            self._forbidden_first[name] = replace(topic, configs=())
            return
        if self._of.topics.find(name) is not None:
            self._refuse(name, TOPIC_ALREADY_EXISTS, f"Topic '{name}' already exists.")
            self._forbidden_first[name] = replace(topic, configs=())
            return
        configs = {one: value for one, value in configs.items() if is_known_to_brokers(one, diskless=diskless)}
        self._asked[name] = self._as_sent[name] = with_configs(topic, configs)
        if diskless:
            self._wanted[name] = kept
            self._asked[name] = with_configs(topic, shadow_configs(configs))

    async def _try_out(self) -> None:
        """Let the brokers reject topics, above all for lack of rights, before a name is reserved."""
        names = self._asked if self._parsed.validate_only else self._wanted
        tried = {name: self._as_sent[name] for name in names} | self._forbidden_first
        if not tried:
            return
        for name, result in (await self._ask(list(tried.values()), validate_only=True)).items():
            if name in self._forbidden_first:
                if result.error_code.value == TOPIC_AUTHORIZATION_FAILED:
                    self._results[name] = result
                continue
            if result.error_code.value != NONE:
                self._wanted.pop(name, None)
                self._asked.pop(name, None)
            if result.error_code.value == NONE and name in self._wanted:
                result = self._told[name] = as_diskless(result)
            if result.error_code.value != NONE or self._parsed.validate_only:
                self._results[name] = result

    async def _create(self) -> None:
        """Reserve, wait for the fleet, create, open."""
        reservations, lease = self._of.reservations, self._of.fleet.lease_number
        begun = {name for name in self._wanted if reservations.begin(name)}
        open_ends: set[str] = set()
        try:
            reserved = await self._reserve(begun)
            reserved -= await self._taken(reserved)
            open_ends |= reserved
            for name in self._asked.keys() - reserved:
                # Reserved meanwhile by somebody who may have waited for the same proxy as this.
                if self._of.topics.find(name) is not None:
                    self._refuse(name, TOPIC_ALREADY_EXISTS, f"Topic '{name}' already exists.")
            if not self._asked:
                return
            try:
                check = partial(self._of.fleet.check_lease, lease) if reserved else None
                results = await self._ask(list(self._asked.values()), validate_only=False, check=check)
            except LeaseLapsed as error:
                await self._give_up(reserved, str(error))
                open_ends -= reserved
                results = await self._ask(list(self._asked.values()), validate_only=False) if self._asked else {}
            except BrokerUnreachable:
                # Nobody knows what the brokers made of it.
                for name in reserved:
                    await self._settle(name)
                raise
            for name, result in results.items():
                if name in reserved:
                    result = await self._open(name, result)
                    open_ends.discard(name)
                    if result.error_code.value == NONE and name in self._told:
                        result = replace(result, configs=self._told[name].configs)
                self._results[name] = result
        finally:
            for name in open_ends:
                reservations.leave(name)
            for name in begun:
                reservations.end(name)

    async def _reserve(self, begun: set[str]) -> set[str]:
        """Reserve names. Return those of which every live proxy has heard; the others are rejected.

        `begun`: names that nothing else in this process is about to reserve or to settle.
        """
        reserved: set[str] = set()
        version = -1
        for name, kept in self._wanted.items():
            if name not in begun:
                self._refuse(name, TOPIC_ALREADY_EXISTS, f"Topic '{name}' already exists.")
                continue
            try:
                partitions = partition_count(self._asked[name])
                version = await self._of.topics.registry.reserve(name, partitions, kept, self._of.fleet.identity)
                reserved.add(name)
                self._of.reservations.take_up(name)
            except TopicReserved:
                self._refuse(name, TOPIC_ALREADY_EXISTS, f"Topic '{name}' already exists.")
            except CoordinatorUnavailable as error:
                self._of.reservations.leave(name, never_made=True)  # the name may be reserved all the same
                self._refuse(name, REQUEST_TIMED_OUT, f"the registry of diskless topics can't be reached: {error}")
        if reserved and not await self._everyone_knows(version):
            await self._give_up(reserved, "not every proxy of the fleet acknowledged the topic in time")
            return set()
        return reserved

    async def _give_up(self, reserved: Iterable[str], reason: str) -> None:
        """Undo reservations whose shadows were surely not made."""
        for name in reserved:
            self._refuse(name, REQUEST_TIMED_OUT, reason)
            await self._of.reservations.undo(name)

    async def _everyone_knows(self, version: int) -> bool:
        """Wait until every live proxy obeys the registry's `version`."""
        deadline_s = self._of.now() + self._of.settings.fleet.create_topic_timeout_ms / 1000
        while self._of.now() < deadline_s:
            try:
                if self._of.topics.version < version:
                    await self._of.topics.load()
                if await self._of.fleet.acknowledged(version):
                    return True
            except CoordinatorUnavailable as error:
                log.warning("reservation_unacknowledged", reason=str(error))
            await asyncio.sleep(_ACKNOWLEDGE_POLL_S)
        return False

    async def _taken(self, reserved: set[str]) -> set[str]:
        """Undo and return the names that other topics got, or may have got, before every proxy knew of the reservation.

        A topic that is there now can't be the shadow; of one that the creation finds, nobody knows. Raises
        BrokerUnreachable, after all of the names were undone.
        """
        try:
            results = await self._look_up(reserved)
        except BrokerUnreachable:
            for name in reserved:
                await self._of.reservations.undo(name)
            raise
        taken = {name for name, result in results.items() if result.error_code.value in OUTCOME_UNKNOWN}
        for name in taken:
            del self._asked[name]
            self._results[name] = results[name]
            await self._of.reservations.undo(name)
        return taken

    async def _open(self, name: str, result: Any) -> Any:
        """Open a topic, or undo it if the brokers rejected it; return the result for the client."""
        if result.error_code.value in OUTCOME_UNKNOWN:
            await self._settle(name)
            return result
        if result.error_code.value != NONE:
            await self._of.reservations.undo(name)
            return result
        partitions = partition_count(self._asked[name]) or result.num_partitions
        try:
            if partitions <= 0:
                # A broker does not report its defaults to a client that may not describe configs.
                if not await self._of.reservations.settle(name, _SHADOW_WAIT_S, result.topic_id.bytes):
                    raise BrokerUnreachable("the brokers do not know the placeholder topic yet")
            else:
                await self._of.reservations.open(name, result.topic_id.bytes, partitions)
        except TopicNotReserved as error:
            await self._take_back(name, result.topic_id)
            return replace(result, error_code=ErrorCode(REQUEST_TIMED_OUT), error_message=str(error))
        except (CoordinatorUnavailable, BrokerUnreachable, ProtocolError) as error:
            self._of.reservations.leave(name)
            log.error("diskless_topic_half_made", topic=name, reason=str(error), remedy="none; it is settled later")
            return replace(result, error_code=ErrorCode(REQUEST_TIMED_OUT), error_message=str(error))
        return result

    async def _settle(self, name: str) -> None:
        """Settle a topic of which nobody knows whether its shadow was made, or will be."""
        try:
            opened = await self._of.reservations.settle(name, _SHADOW_WAIT_S)
            reason = "the brokers did not answer whether they created the placeholder topic"
        except (CoordinatorUnavailable, BrokerUnreachable, ProtocolError) as error:
            opened, reason = False, str(error)
        if not opened:
            self._of.reservations.leave(name)
            log.error("diskless_topic_half_made", topic=name, reason=reason, remedy="none; it is settled later")

    async def _take_back(self, name: str, topic_id: Any) -> None:
        """Delete the shadow that was just made: the reservation ended meanwhile, as this proxy was out of the fleet.

        Without it nobody would know that the topic was to be diskless, and records would go to the brokers.
        """
        request_type: Any = load_request_schema(DELETE_TOPICS, _DELETE_TOPICS_VERSION)
        named = nested(request_type, "topics")(name=None, topic_id=topic_id)
        asked = request_type(topics=(named,), timeout=milliseconds(_TIMEOUT_MS))
        try:
            body = await self._client.ask(self._request, DELETE_TOPICS, _DELETE_TOPICS_VERSION, encode(asked))
            response: Any = read_response(DELETE_TOPICS, _DELETE_TOPICS_VERSION, body)
            outcome = response.responses[0].error_code.name
        except (BrokerUnreachable, ProtocolError) as error:
            outcome = str(error)
        log.error(
            "reservation_lost",
            topic=name,
            deletion_of_shadow=outcome,
            remedy=f"create the topic again; if the brokers have a topic {name} that is not diskless, delete it first",
        )

    async def _look_up(self, names: Iterable[str]) -> dict[str, Any]:
        """Return the controller's results: TOPIC_ALREADY_EXISTS if there is such a topic. Raises BrokerUnreachable.

        Asked for are topics without replicas, as names are looked at before replicas: then no policy is asked, nothing
        counts for the quota of partition mutations, as what is only validated does, and no more brokers need live.
        """
        topics = [named_topic(name, 1, 0) for name in names]
        return await self._ask_once(self._asking(topics, validate_only=True)) if topics else {}

    async def _ask(
        self, topics: list[Any], *, validate_only: bool, check: Callable[[], None] | None = None
    ) -> dict[str, Any]:
        """Return the brokers' results. Raises BrokerUnreachable, and what `check` raises: then nothing was made."""
        asked = self._asking(topics, validate_only=validate_only)
        results = await self._ask_once(asked, check)
        made: dict[str, Any]
        made, throttle_time = await self._of.under_replicated.make(
            self._client, self._request, asked, results, shadows=self._wanted, check=check
        )
        self._throttle_time = max(self._throttle_time, throttle_time)
        return made

    def _asking(self, topics: list[Any], *, validate_only: bool) -> Any:
        # By then it is made or never will be: that is what settling a reservation later relies on.
        limit = milliseconds(self._of.settings.fleet.create_topic_timeout_ms)
        timeout = min(self._parsed.timeout, limit)
        return replace(self._parsed, topics=tuple(topics), validate_only=validate_only, timeout=timeout)

    async def _ask_once(self, asked: Any, check: Callable[[], None] | None = None) -> dict[str, Any]:
        """Do as `_ask`, without a second try with the live brokers."""
        api_key = self._request.api_key
        body = await self._client.ask(self._request, api_key, _ASKED_VERSION, encode(asked), check=check)
        try:
            response: Any = read_response(self._request.api_key, _ASKED_VERSION, body)
        except ProtocolError as error:
            raise BrokerUnreachable(f"the answer to CreateTopics can't be read: {error}") from error
        self._throttle_time = max(self._throttle_time, response.throttle_time)
        return {str(result.name): result for result in response.topics}

    def _refuse(self, name: str, error_code: int, message: str) -> None:
        self._asked.pop(name, None)
        self._results[name] = rejected(name, error_code, message)
