"""Make topics that brokers refuse because too few are registered, with those that live (KIP-409).

The brokers decide first: only what they refuse for lack of registered brokers is asked again, on the client's own
connection, so with its rights, and where that is not possible their refusal stands, word for word. What is missing is
remembered before anything is made (`interface.py`), so no topic is made so while that is not possible.
"""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import structlog
from kio.schema.create_topics.v7.request import CreatableReplicaAssignment

from proxy.brokers.broker_defaults import DefaultsRefused, broker_configs
from proxy.brokers.cluster import Cluster
from proxy.brokers.upstream import BrokerUnreachable
from proxy.config import Settings
from proxy.coordinator.interface import CoordinatorUnavailable
from proxy.coordinator.interface_registry import NO_TOPIC_ID
from proxy.creation.replication.interface import Pending, PendingTopics, replicas_digest
from proxy.creation.replication.plan import BROKER_CONFIGS, Plan, plan_topic
from proxy.creation.replication.unmade import Unmade
from proxy.protocol.api_keys import CREATE_TOPICS
from proxy.protocol.errors import (
    INVALID_REPLICA_ASSIGNMENT,
    INVALID_REPLICATION_FACTOR,
    NETWORK_EXCEPTION,
    NONE,
    NOT_CONTROLLER,
    REQUEST_TIMED_OUT,
    THROTTLING_QUOTA_EXCEEDED,
    TOPIC_ALREADY_EXISTS,
    UNKNOWN_SERVER_ERROR,
)
from proxy.routing.fleet import LeaseLapsed
from proxy.wire.cold import at_version, encode, milliseconds, read_response
from proxy.wire.errors import ProtocolError
from proxy.wire.steps import Rewrite

if TYPE_CHECKING:
    from proxy.client.client import Client
    from proxy.client.request import Request
    from proxy.wire.primitives import Buffer

log = structlog.get_logger()

TOO_FEW_BROKERS = (INVALID_REPLICATION_FACTOR, INVALID_REPLICA_ASSIGNMENT)
"""Errors of brokers if fewer are registered than replicas are requested, or if an unregistered one is named; also for
other reasons, which plans detect themselves."""
OUTCOME_UNKNOWN = (UNKNOWN_SERVER_ERROR, REQUEST_TIMED_OUT, NETWORK_EXCEPTION, TOPIC_ALREADY_EXISTS, NOT_CONTROLLER)
"""The controller may have made the topic, or make it, all the same. That a name is taken that was free a moment ago
mostly means that a broker repeated what it had forwarded to a controller, which died after it had written the topic."""
_VERSION, _FIRST_STRICT_VERSION = 7, 6
"""Clients of older versions know no THROTTLING_QUOTA_EXCEEDED (KIP-599): the brokers make what they ask for, and
throttle afterwards."""
_LIVE_DEFAULT = -1


class UnderReplicatedTopics:
    """Asks again for what was refused."""

    def __init__(
        self, settings: Settings, pending: PendingTopics, cluster: Cluster, identity: str, now_ms: Callable[[], int]
    ) -> None:
        """`identity`: this proxy's in the fleet; `now_ms`: milliseconds since 1970."""
        self._settings = settings
        self._pending = pending
        self._cluster = cluster
        self._identity = identity
        self._now_ms = now_ms
        self.unmade = Unmade(pending)

    @property
    def enabled(self) -> bool:
        """`enable.under.replicated.topic.creation`."""
        return self._settings.enable_under_replicated_topic_creation

    @property
    def listened(self) -> frozenset[int]:
        """Node IDs that brokers may join with: `broker_node_ids` of all listeners."""
        return frozenset().union(*(listeners.node_ids for listeners in self._settings.all_listeners))

    def may_be_refused(self, topic: Any) -> bool:
        """Whether a `CreatableTopic` may need more brokers than live, so that its result is worth looking at."""
        live = self._cluster.view.brokers
        if topic.assignments:
            return any(int(node) not in live for one in topic.assignments for node in one.broker_ids)
        wanted = int(topic.replication_factor)
        return wanted == _LIVE_DEFAULT or wanted > len(live)

    async def create(self, client: Client, request: Request, asked: Any) -> Buffer:
        """The answer to a CreateTopics, asked as it came, in its version. Raises BrokerUnreachable.

        An answer that has nothing to do with missing brokers is passed on as it is.
        """
        body = await client.ask(request, request.api_key, request.api_version, [request.body])
        try:
            response: Any = read_response(request.api_key, request.api_version, body)
        except ProtocolError:
            return body
        asked = at_version(asked, _VERSION, response=False)
        if not any(result.error_code.value in TOO_FEW_BROKERS for result in response.topics):
            self._note_made(response.topics, validate_only=asked.validate_only)
            return body
        newer = at_version(response, _VERSION, response=True)
        results = {str(result.name): result for result in newer.topics}
        made, throttle_time = await self.make(client, request, asked, results)
        answered = replace(
            newer,
            topics=tuple(made[str(result.name)] for result in newer.topics),
            throttle_time=max(newer.throttle_time, throttle_time),
        )
        return encode(at_version(answered, request.api_version, response=True))

    def looking_at(self, request: Request) -> Rewrite:
        """For the answer to a CreateTopics that is forwarded: as it came, looked at for topics that were made."""

        def look(body: memoryview) -> list[Buffer]:
            try:
                response: Any = read_response(request.api_key, request.api_version, body)
            except ProtocolError:
                return [body]
            self._note_made(response.topics, validate_only=False)
            return [body]

        return look

    async def make(
        self,
        client: Client,
        request: Request,
        asked: Any,
        results: Mapping[str, Any],
        *,
        shadows: Collection[str] = (),
        check: Callable[[], None] | None = None,
    ) -> tuple[dict[str, Any], Any]:
        """The results of a CreateTopics, both v7, with those of topics that could be made after all in place of theirs.

        Also for how long the brokers throttle the client for that. With `validate_only`: that could be made. `shadows`:
        which of the topics are those of diskless ones. `check`: see `Client.ask`; if it raises LeaseLapsed,
        the brokers' refusals stand. Raises BrokerUnreachable where the brokers were asked for
        something and nobody knows what became of it.
        """
        answered, throttle_time = dict(results), milliseconds(0)
        self._note_made(results.values(), validate_only=asked.validate_only)
        refused = {
            str(topic.name): topic
            for topic in asked.topics
            if str(topic.name) in answered and answered[str(topic.name)].error_code.value in TOO_FEW_BROKERS
        }
        plans = await self._plans(refused) if refused and self.enabled else {}
        if not plans:
            return answered, throttle_time
        wishes = {name: self.wishes(name, plan, shadow=name in shadows) for name, plan in plans.items()}
        if not asked.validate_only and not await self.remember([wish for of_one in wishes.values() for wish in of_one]):
            return answered, throttle_time
        topics = {name: _with_assignment(refused[name], plan) for name, plan in plans.items()}
        try:
            again, throttle_time = await _ask(client, request, asked, topics, _VERSION, check)
        except LeaseLapsed:
            await self.forget([wish for of_one in wishes.values() for wish in of_one])
            return answered, throttle_time
        throttled = {
            name: topics[name]
            for name, result in again.items()
            if result.error_code.value == THROTTLING_QUOTA_EXCEEDED and name not in shadows  # of which the ID is needed
        }
        if throttled and request.api_version < _FIRST_STRICT_VERSION:
            permitted, longer = await _ask(client, request, asked, throttled, request.api_version)
            again, throttle_time = again | permitted, max(throttle_time, longer)
        over: list[Pending] = []
        for name, result in again.items():
            error_code = result.error_code.value
            if error_code not in TOO_FEW_BROKERS:
                answered[name] = result
            if asked.validate_only:
                continue
            if error_code == NONE:
                await self._bind(wishes[name], plans[name], result)
                self.unmade.made_by_others([name], wishes[name][0].since_ms)
            elif error_code not in OUTCOME_UNKNOWN:
                over += wishes[name]
        await self.forget(over)
        return answered, throttle_time

    def wishes(
        self, name: str, plan: Plan, *, shadow: bool, topic_id: bytes = NO_TOPIC_ID, first_partition: int = 0
    ) -> list[Pending]:
        """New ones for what a plan leaves out: of a number of replicas, also for partitions that are added meanwhile,
        and where the client said it of exact ones, for the partitions from the first one on."""
        wish = Pending(
            pending_id=uuid.uuid4().hex,
            name=name,
            replication_factor=plan.wanted_replicas,
            made_replicas=plan.made_replicas,
            since_ms=self._now_ms(),
            topic_id=topic_id,
            shadow=shadow,
            owner=self._identity,
            made_as=replicas_digest(plan.replicas) if topic_id == NO_TOPIC_ID else "",
        )
        if not plan.assignment:
            return [wish]
        exact = replace(wish, pending_id=uuid.uuid4().hex, replication_factor=0, assignment=plan.assignment)
        return [wish, replace(exact, first_partition=first_partition)]

    async def remember(self, wishes: Sequence[Pending], *, changed: Iterable[Pending] = ()) -> bool:
        """Write the wishes, and older ones again; return whether that succeeded. If not, nothing may be created."""
        remembered = False
        try:
            await self._pending.remember([*wishes, *changed])
            remembered = True
        except CoordinatorUnavailable as error:
            log.warning(
                "under_replicated_topic_not_made",
                topics=sorted({wish.name for wish in wishes}),
                reason=f"its missing replicas can't be stored: {error}",
                remedy="create it again when the store answers, or create it with fewer replicas",
            )
        finally:
            if not remembered:  # or nobody knows, also where the client went away
                self.unmade.forget(wishes)
        return remembered

    async def forget(self, wishes: Sequence[Pending]) -> None:
        """Forget the wishes for topics that were not created; later if the store does not answer."""
        if not wishes:
            return
        try:
            await self._pending.forget(wishes)
        except (CoordinatorUnavailable, asyncio.CancelledError) as error:
            self.unmade.forget(wishes)
            if isinstance(error, asyncio.CancelledError):
                raise

    async def defaults(self) -> dict[str, str | None]:
        """Return the brokers' values that topics may leave unset, as far as they are readable."""
        try:
            return await broker_configs(self._cluster, BROKER_CONFIGS)
        except (BrokerUnreachable, ProtocolError, DefaultsRefused) as error:
            log.warning(
                "broker_defaults_unknown",
                reason=str(error),
                effect="topics whose replicas or min.insync.replicas are the brokers' defaults are not created "
                "while brokers are missing",
                remedy="allow the proxy's principal to describe the configs of the cluster",
            )
            return {}

    async def live_racks(self) -> dict[int, str | None]:
        """Racks of the live brokers, asked for now. Raises BrokerUnreachable."""
        await self._cluster.refresh()
        return {node: broker.rack for node, broker in self._cluster.view.brokers.items()}

    def _note_made(self, results: Iterable[Any], *, validate_only: bool) -> None:
        """Note what the brokers created by themselves: intents of these names have become obsolete."""
        names = [str(result.name) for result in results if result.error_code.value == NONE]
        if names and not validate_only:
            self.unmade.made_by_others(names, self._now_ms())

    async def _plans(self, refused: Mapping[str, Any]) -> dict[str, Plan]:
        try:
            racks = await self.live_racks()
        except BrokerUnreachable as error:
            log.warning("under_replicated_topic_not_made", topics=sorted(refused), reason=str(error))
            return {}
        defaults = await self.defaults()
        # Thousands of partitions take their time.
        plans = {
            name: await asyncio.to_thread(plan_topic, topic, racks, defaults, listened=self.listened)
            for name, topic in refused.items()
        }
        return {name: plan for name, plan in plans.items() if plan is not None}

    async def _bind(self, wishes: Sequence[Pending], plan: Plan, result: Any) -> None:
        name, topic_id = wishes[0].name, result.topic_id
        try:
            # The exact one first: with the other one alone the topic might be given other replicas than those.
            for wish in reversed(wishes if topic_id is not None else ()):
                await self._pending.bind(wish, topic_id.bytes)
        except CoordinatorUnavailable as error:
            # The intent is remembered, and that is enough: housekeeping finds the topic by its name.
            log.warning("under_replicated_topic_not_bound", topic=name, reason=str(error))
        log.info(
            "under_replicated_topic_made",
            topic=name,
            replicas=plan.made_replicas,
            wanted=plan.wanted_replicas,
            partitions=len(plan.replicas),
        )


async def _ask(
    client: Client,
    request: Request,
    asked: Any,
    topics: Mapping[str, Any],
    version: int,
    check: Callable[[], None] | None = None,
) -> tuple[dict[str, Any], Any]:
    """The results for those topics by name, as of v7, and the throttle time. Raises BrokerUnreachable."""
    changed = at_version(replace(asked, topics=tuple(topics.values())), version, response=False)
    body = await client.ask(request, CREATE_TOPICS, version, encode(changed), check=check)
    try:
        response: Any = at_version(read_response(CREATE_TOPICS, version, body), _VERSION, response=True)
    except ProtocolError as error:
        raise BrokerUnreachable(f"the answer to CreateTopics can't be read: {error}") from error
    return {str(one.name): one for one in response.topics if str(one.name) in topics}, response.throttle_time


def _with_assignment(topic: Any, plan: Plan) -> Any:
    """The same topic, with the replicas of a plan."""
    assignments = tuple(
        CreatableReplicaAssignment(partition_index=index, broker_ids=replicas)  # type: ignore[arg-type]
        for index, replicas in enumerate(plan.replicas)
    )
    numbers = {"num_partitions": _LIVE_DEFAULT, "replication_factor": _LIVE_DEFAULT}
    return replace(topic, assignments=assignments, **numbers)
