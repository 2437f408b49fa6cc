"""Add partitions that brokers refuse because too few are registered, with those that live (KIP-409).

As for new topics (`creation.py`): the brokers decide first, and what is missing is remembered before. They give new
partitions as many replicas as the others of the topic have. Where too few brokers are registered for that, because some
of these replicas are of brokers that are registered no more, those are taken out first, with the client's rights
(`ALTER` on the cluster): nobody holds them, and others come in their place with those that the new partitions lack.
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import structlog
from kio.index import load_request_schema, load_response_schema
from kio.schema.errors import ErrorCode

from proxy.brokers.cluster import Cluster
from proxy.brokers.states import ClassicTopic
from proxy.brokers.upstream import BrokerUnreachable
from proxy.coordinator.interface import CoordinatorUnavailable
from proxy.creation.replication.creation import OUTCOME_UNKNOWN, TOO_FEW_BROKERS, UnderReplicatedTopics
from proxy.creation.replication.interface import Pending, PendingTopics
from proxy.creation.replication.placement import ReplicaList
from proxy.creation.replication.plan import Plan, plan_partitions
from proxy.creation.replication.reassignments import ReassignmentsRefused, ask_replicas, list_reassignments
from proxy.creation.replication.reassignments import reassign as alter_reassignments
from proxy.protocol.api_keys import DESCRIBE_CLUSTER, DESCRIBE_CONFIGS
from proxy.protocol.errors import NONE
from proxy.topics.topic_configs import MIN_INSYNC_REPLICAS
from proxy.topics.topics import Topics
from proxy.wire.cold import encode, milliseconds, nested, read_response
from proxy.wire.errors import ProtocolError

if TYPE_CHECKING:
    from proxy.client.client import Client
    from proxy.client.request import Request
    from proxy.wire.primitives import Buffer

log = structlog.get_logger()

_DESCRIBE_CONFIGS_VERSION, _TOPIC = 4, 2
_DESCRIBE_CLUSTER_VERSION, _BROKERS = 2, 1
"""The first version that names brokers that are registered and do not live (KIP-1073)."""
_HEARD_TRIES, _HEARD_POLL_S = 20, 0.25
"""For a broker to hear of a topic that another one knows."""


class _NotMade(Exception):
    """The brokers' refusal stands; the text says why it can't be otherwise."""


class PartitionGrowth:
    """Adds partitions for clients."""

    def __init__(
        self, under_replicated: UnderReplicatedTopics, pending: PendingTopics, cluster: Cluster, topics: Topics
    ) -> None:
        self.under_replicated = under_replicated
        self.pending = pending
        self.cluster = cluster
        self.topics = topics

    async def make(self, client: Client, request: Request, asked: Any, response: Any) -> Any:
        """Return the response to a CreatePartitions, with other results for topics that could be grown after all.

        Raises BrokerUnreachable if the brokers were asked for something and nobody knows what became of it.
        """
        return await _Growing(self, client, request, asked).make(response)


class _Growing:
    """One CreatePartitions whose answer refuses some topics."""

    def __init__(self, growth: PartitionGrowth, client: Client, request: Request, asked: Any) -> None:
        self._of = growth
        self._client = client
        self._request = request
        self._asked = asked
        self._throttle_time = milliseconds(0)
        """Longest throttle time of the brokers when they were asked again."""

    async def ask(self, api_key: int, api_version: int, body: list[Buffer] | bytes) -> memoryview:
        """Send a request as the client, on its own connection. Raises BrokerUnreachable."""
        return await self._client.ask(self._request, api_key, api_version, body)

    async def make(self, response: Any) -> Any:
        """Do as `PartitionGrowth.make`."""
        shared = self._of.under_replicated
        refused = {str(one.name) for one in response.results if one.error_code.value in TOO_FEW_BROKERS}
        topics = [topic for topic in self._asked.topics if str(topic.name) in refused]
        if not topics or not shared.enabled:
            return response
        try:
            racks = await shared.live_racks()
            known = await self._known(sorted(refused))
            pending = await self._of.pending.all()
            registered = await self._registered()
        except (BrokerUnreachable, ProtocolError, CoordinatorUnavailable) as error:
            log.warning("under_replicated_partitions_not_made", topics=sorted(refused), reason=str(error))
            return response
        by_name = {topic.name: topic for topic in known}
        answered = {}
        for topic in topics:
            found = by_name.get(str(topic.name))
            if found is None:
                continue
            try:
                plan = await self._plan(topic, found, racks, registered, pending)
                if plan is not None:
                    answered[found.name] = await self._grow(topic, found, plan, pending)
            except _NotMade as error:
                log.warning("under_replicated_partitions_not_made", topics=[found.name], reason=str(error))
        results = tuple(answered.get(str(one.name)) or one for one in response.results)
        return replace(response, results=results, throttle_time=max(response.throttle_time, self._throttle_time))

    async def _known(self, names: Sequence[str]) -> Sequence[ClassicTopic]:
        """The topics as a broker knows them, which may hear of them a little later than the one that refused."""
        for _ in range(_HEARD_TRIES):
            known = await ask_replicas(self._of.cluster.service, names)
            if not known.denied:
                break
            await asyncio.sleep(_HEARD_POLL_S)
        return known.topics

    async def _plan(
        self,
        topic: Any,
        found: ClassicTopic,
        racks: Mapping[int, str | None],
        registered: Collection[int] | None,
        pending: Sequence[Pending],
    ) -> Plan | None:
        existing = [replicas.replicas for _, replicas in sorted(found.partitions.items())]
        factors = [wish.replication_factor for wish in pending if wish.topic_id == found.topic_id]  # 0 of an exact one
        asked: list[ReplicaList] | None = None
        if topic.assignments is not None:
            asked = [tuple(map(int, one.broker_ids)) for one in topic.assignments]
        return await asyncio.to_thread(
            plan_partitions,
            found.name,
            existing,
            int(topic.count),
            asked,
            wanted=max([len(existing[0]) if existing else 0, *factors]),
            racks=racks,
            registered=registered if registered is not None else frozenset().union(racks, *existing),
            listened=self._of.under_replicated.listened,
            least=await self._least_in_sync(found.name),
        )

    async def _grow(self, topic: Any, found: ClassicTopic, plan: Plan, pending: Sequence[Pending]) -> Any:
        """The result for the client. Raises BrokerUnreachable, and _NotMade where the first one stands."""
        result_type, name = self._result_type(), found.name
        if self._asked.validate_only and plan.kept:
            # The brokers could not be asked without doing part of it.
            return result_type(name=topic.name, error_code=ErrorCode(NONE), error_message=None)
        shared = self._of.under_replicated
        shadow = (entry := self._of.topics.find(name)) is not None and entry.state == "live"
        wishes = shared.wishes(
            name, plan, shadow=shadow, topic_id=found.topic_id, first_partition=len(found.partitions)
        )
        if not self._asked.validate_only:
            # Nobody is to think that somebody made the topic smaller on purpose.
            smaller = {
                wish: replace(wish, made_replicas=plan.made_replicas)
                for wish in pending
                if plan.kept and wish.topic_id == found.topic_id and wish.made_replicas > plan.made_replicas
            }
            if not await shared.remember(wishes, changed=smaller.values()):
                raise _NotMade("the missing replicas of the partitions can't be stored")
            if plan.kept:
                await self._let_go(found, plan.kept, wishes, smaller)
        assignment_type = nested(type(topic), "assignments")
        assignments = tuple(assignment_type(broker_ids=replicas) for replicas in plan.replicas)
        again = replace(self._asked, topics=(replace(topic, assignments=assignments),))
        body = await self.ask(self._request.api_key, self._request.api_version, encode(again))
        try:
            answer: Any = read_response(self._request.api_key, self._request.api_version, body)
            (result,) = answer.results
        except (ProtocolError, ValueError) as error:
            raise BrokerUnreachable(f"the answer to CreatePartitions can't be read: {error}") from error
        self._throttle_time = max(self._throttle_time, answer.throttle_time)
        error_code = result.error_code.value
        if error_code == NONE and not self._asked.validate_only:
            log.info(
                "under_replicated_partitions_made",
                topic=name,
                partitions=len(plan.replicas),
                replicas=plan.made_replicas,
                wanted=plan.wanted_replicas,
            )
        elif error_code not in OUTCOME_UNKNOWN and not self._asked.validate_only:
            # The first one stays where it gives partitions back what was taken from them.
            await shared.forget(wishes[1:] if plan.kept else wishes)
        if error_code in TOO_FEW_BROKERS:
            raise _NotMade(f"the brokers answer {result.error_message or result.error_code.name}")
        return result

    async def _let_go(
        self,
        found: ClassicTopic,
        kept: Mapping[int, ReplicaList],
        wishes: Sequence[Pending],
        smaller: Mapping[Pending, Pending],
    ) -> None:
        """Leave partitions with those replicas; where that is refused the older wishes are as they were.

        Raises _NotMade, BrokerUnreachable.
        """
        targets = {(found.name, index): replicas for index, replicas in kept.items()}
        refused, reason = dict.fromkeys(targets, (0, "")), "they are being reassigned"
        try:
            if not await list_reassignments(self, targets):
                refused = await alter_reassignments(self, targets)
                reason = next(iter(refused.values()))[1] if refused else ""
        except ReassignmentsRefused as error:
            reason = str(error)
        except ProtocolError as error:
            raise BrokerUnreachable(f"an answer about reassignments can't be read: {error}") from error
        if reason:
            # Where some were altered they get back what they had: that is what the first one is about.
            untouched = len(refused) == len(targets)
            await self._of.under_replicated.forget(wishes if untouched else wishes[1:])
            await self._restore(smaller if untouched else {})
            raise _NotMade(
                f"partitions have replicas on brokers that are not registered any more, and the client may not "
                f"alter them: {reason}"
            )
        log.info("unregistered_replicas_let_go", topic=found.name, partitions=len(kept))

    async def _restore(self, smaller: Mapping[Pending, Pending]) -> None:
        try:
            for was, now in smaller.items():
                await self._of.pending.change(now, was)
        except CoordinatorUnavailable as error:
            log.warning(
                "under_replicated_topics_left",
                reason=str(error),
                effect="if a topic gets fewer replicas on purpose, the proxy may add them again",
            )

    async def _registered(self) -> frozenset[int] | None:
        """Return node IDs of all registered brokers, also of those that are down; None if the brokers can't say."""
        brokers = sorted(self._of.cluster.view.brokers)
        if not brokers:
            return None
        request_type: Any = load_request_schema(DESCRIBE_CLUSTER, _DESCRIBE_CLUSTER_VERSION)
        asked = request_type(
            include_cluster_authorized_operations=False, endpoint_type=_BROKERS, include_fenced_brokers=True
        )
        # On a connection of its own: a broker that does not know the version closes it.
        connection = self._of.cluster.connection_to(brokers[0])
        try:
            body = await connection.ask(DESCRIBE_CLUSTER, _DESCRIBE_CLUSTER_VERSION, encode(asked))
            response: Any = read_response(DESCRIBE_CLUSTER, _DESCRIBE_CLUSTER_VERSION, body)
        except (BrokerUnreachable, ProtocolError):
            return None
        finally:
            connection.close()
        return None if response.error_code.value else frozenset(int(one.broker_id) for one in response.brokers)

    async def _least_in_sync(self, name: str) -> int:
        """The topic's `min.insync.replicas`, asked as the proxy, then as the client. Raises _NotMade."""
        request_type: Any = load_request_schema(DESCRIBE_CONFIGS, _DESCRIBE_CONFIGS_VERSION)
        resource = nested(request_type, "resources")(
            resource_type=_TOPIC, resource_name=name, configuration_keys=(MIN_INSYNC_REPLICAS,)
        )
        asked = encode(request_type(resources=(resource,), include_synonyms=False, include_documentation=False))
        for ask in (self._of.cluster.service.ask, self.ask):
            try:
                body = await ask(DESCRIBE_CONFIGS, _DESCRIBE_CONFIGS_VERSION, asked)
                response: Any = read_response(DESCRIBE_CONFIGS, _DESCRIBE_CONFIGS_VERSION, body)
            except (BrokerUnreachable, ProtocolError) as error:
                raise _NotMade(f"min.insync.replicas of the topic is unknown: {error}") from None
            for result in response.results:
                for config in result.configs if not result.error_code.value else ():
                    if config.name == MIN_INSYNC_REPLICAS and config.value is not None:
                        return int(config.value)
        raise _NotMade("neither the proxy's principal nor the client may describe the configs of the topic")

    def _result_type(self) -> Any:
        return nested(load_response_schema(self._request.api_key, self._request.api_version), "results")
