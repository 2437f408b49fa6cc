"""Make topics that brokers refuse because too few are registered, with those that live (KIP-409).

The brokers decide first: only what they refuse for lack of registered brokers is asked again, on the client's own
connection, so with its rights, and where that is not possible their refusal stands, word for word. What is missing is
remembered before anything is made (`interface.py`), so no topic is made so while that is not possible.
"""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import structlog
from kio.schema.create_topics.v7.request import CreatableReplicaAssignment

from proxy.coordinator.interface import NO_TOPIC_ID, CoordinatorUnavailable
from proxy.errors import INVALID_REPLICA_ASSIGNMENT, INVALID_REPLICATION_FACTOR, NONE
from proxy.housekeeping.broker_defaults import DefaultsRefused, broker_configs
from proxy.replication.interface import Pending
from proxy.replication.plan import BROKER_CONFIGS, Plan, plan_topic
from proxy.upstream import BrokerUnreachable
from proxy.wire.cold import at_version, encode, read_response
from proxy.wire.errors import ProtocolError

if TYPE_CHECKING:
    from proxy.connection import ClientConnection
    from proxy.context import Context
    from proxy.request import Request
    from proxy.wire.primitives import Buffer

log = structlog.get_logger()

TOO_FEW_BROKERS = (INVALID_REPLICATION_FACTOR, INVALID_REPLICA_ASSIGNMENT)
"""What brokers answer where fewer are registered than replicas are asked for, or one is named that is not; also for
other reasons, which plans see for themselves."""
OUTCOME_UNKNOWN = (-1, 7, 13, 36, 41)
"""UNKNOWN_SERVER_ERROR, REQUEST_TIMED_OUT, NETWORK_EXCEPTION, TOPIC_ALREADY_EXISTS, NOT_CONTROLLER: the controller may
have made the topic, or make it, all the same. That a name is taken that was free a moment ago mostly means that a
broker repeated what it had forwarded to a controller, which died after it had written the topic."""
_CREATE_TOPICS, _VERSION = 19, 7
_LIVE_DEFAULT = -1


class UnderReplicatedTopics:
    """Asks again for what was refused."""

    def __init__(self, context: Context) -> None:
        self._context = context

    @property
    def enabled(self) -> bool:
        """`enable.under.replicated.topic.creation`."""
        return self._context.settings.enable_under_replicated_topic_creation

    def may_be_refused(self, topic: Any) -> bool:
        """Whether a `CreatableTopic` may need more brokers than live, so that its result is worth looking at."""
        live = self._context.cluster.view.brokers
        if topic.assignments:
            return any(int(node) not in live for one in topic.assignments for node in one.broker_ids)
        wanted = int(topic.replication_factor)
        return wanted == _LIVE_DEFAULT or wanted > len(live)

    async def create(self, connection: ClientConnection, request: Request, asked: Any) -> Buffer:
        """The answer to a CreateTopics, asked as it came, in its version. Raises BrokerUnreachable.

        An answer that has nothing to do with missing brokers is passed on as it is.
        """
        body = await connection.ask(request, request.api_key, request.api_version, [request.body])
        try:
            response: Any = read_response(request.api_key, request.api_version, body)
        except ProtocolError:
            return body
        if not any(result.error_code.value in TOO_FEW_BROKERS for result in response.topics):
            return body
        newer = at_version(response, _VERSION, response=True)
        results = {str(result.name): result for result in newer.topics}
        made = await self.make(connection, request, at_version(asked, _VERSION, response=False), results)
        answered = replace(newer, topics=tuple(made[str(result.name)] for result in newer.topics))
        return encode(at_version(answered, request.api_version, response=True))

    async def make(
        self,
        connection: ClientConnection,
        request: Request,
        asked: Any,
        results: Mapping[str, Any],
        *,
        shadows: Collection[str] = (),
    ) -> dict[str, Any]:
        """The results of a CreateTopics, both v7, with those of topics that could be made after all in place of theirs.

        With `validate_only`: that could be made. `shadows`: which of the topics are those of diskless ones. Raises
        BrokerUnreachable where the brokers were asked for something and nobody knows what became of it.
        """
        answered = dict(results)
        refused = {
            str(topic.name): topic
            for topic in asked.topics
            if str(topic.name) in answered and answered[str(topic.name)].error_code.value in TOO_FEW_BROKERS
        }
        plans = await self._plans(refused) if refused and self.enabled else {}
        if not plans:
            return answered
        wishes = {name: self.wishes(name, plan, shadow=name in shadows) for name, plan in plans.items()}
        if not asked.validate_only and not await self.remember([wish for of_one in wishes.values() for wish in of_one]):
            return answered
        topics = tuple(_with_assignment(refused[name], plan) for name, plan in plans.items())
        body = await connection.ask(request, _CREATE_TOPICS, _VERSION, encode(replace(asked, topics=topics)))
        try:
            response: Any = read_response(_CREATE_TOPICS, _VERSION, body)
        except ProtocolError as error:
            raise BrokerUnreachable(f"the answer to CreateTopics can't be read: {error}") from error
        over: list[Pending] = []
        for result in response.topics:
            name, error_code = str(result.name), result.error_code.value
            if name not in plans:
                continue
            if error_code not in TOO_FEW_BROKERS:
                answered[name] = result
            if asked.validate_only:
                continue
            if error_code == NONE:
                await self._bind(wishes[name], plans[name], result)
            elif error_code not in OUTCOME_UNKNOWN:
                over += wishes[name]
        await self.forget(over)
        return answered

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
            since_ms=self._context.wall_clock_ms(),
            topic_id=topic_id,
            shadow=shadow,
            owner=self._context.fleet.identity,
        )
        if not plan.assignment:
            return [wish]
        exact = replace(wish, pending_id=uuid.uuid4().hex, replication_factor=0, assignment=plan.assignment)
        return [wish, replace(exact, first_partition=first_partition)]

    async def remember(self, wishes: Sequence[Pending]) -> bool:
        """Write the wishes down; whether that is so. Where it is not nothing may be made."""
        try:
            await self._context.pending_topics.remember(wishes)
        except CoordinatorUnavailable as error:
            log.warning(
                "under_replicated_topic_not_made",
                topics=sorted({wish.name for wish in wishes}),
                reason=f"what it lacks can't be remembered: {error}",
                remedy="create it again when the store answers, or with fewer replicas",
            )
            return False
        return True

    async def forget(self, wishes: Sequence[Pending]) -> None:
        """Of what was not made. Where that fails housekeeping does it."""
        if not wishes:
            return
        try:
            await self._context.pending_topics.forget(wishes)
        except CoordinatorUnavailable as error:
            log.warning("under_replicated_topic_left", topics=sorted({one.name for one in wishes}), reason=str(error))

    async def defaults(self) -> dict[str, str | None]:
        """What topics may leave to the brokers, as far as they tell it."""
        try:
            return await broker_configs(self._context.cluster, BROKER_CONFIGS)
        except (BrokerUnreachable, ProtocolError, DefaultsRefused) as error:
            log.warning(
                "broker_defaults_unknown",
                reason=str(error),
                effect="topics that leave replicas or min.insync.replicas to the brokers are not made while brokers "
                "are missing",
                remedy="let the proxy's principal describe the configs of the cluster",
            )
            return {}

    async def live_racks(self) -> dict[int, str | None]:
        """Racks of the live brokers, asked for now. Raises BrokerUnreachable."""
        await self._context.cluster.refresh()
        return {node: broker.rack for node, broker in self._context.cluster.view.brokers.items()}

    async def _plans(self, refused: Mapping[str, Any]) -> dict[str, Plan]:
        try:
            racks = await self.live_racks()
        except BrokerUnreachable as error:
            log.warning("under_replicated_topic_not_made", topics=sorted(refused), reason=str(error))
            return {}
        defaults = await self.defaults()
        # Thousands of partitions take their time.
        plans = {name: await asyncio.to_thread(plan_topic, topic, racks, defaults) for name, topic in refused.items()}
        return {name: plan for name, plan in plans.items() if plan is not None}

    async def _bind(self, wishes: Sequence[Pending], plan: Plan, result: Any) -> None:
        name, topic_id = wishes[0].name, result.topic_id
        try:
            for wish in wishes if topic_id is not None else ():
                await self._context.pending_topics.bind(wish, topic_id.bytes)
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


def _with_assignment(topic: Any, plan: Plan) -> Any:
    """The same topic, with the replicas of a plan."""
    assignments = tuple(
        CreatableReplicaAssignment(partition_index=index, broker_ids=replicas)  # type: ignore[arg-type]
        for index, replicas in enumerate(plan.replicas)
    )
    numbers = {"num_partitions": _LIVE_DEFAULT, "replication_factor": _LIVE_DEFAULT}
    return replace(topic, assignments=assignments, **numbers)
