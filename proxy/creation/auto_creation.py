"""Metadata that lets the brokers create topics (`auto.create.topics.enable`), without classic topics by mistake.

A topic that `default_diskless_topics` makes diskless is created by the proxy, as the client would with CreateTopics, if
the brokers create topics on demand. A name in the registry is never left to the brokers, whatever its state: they would
create a classic topic of a reserved name before its creator does, or next to logs that are being deleted. For all other
names the brokers work as usual. But while fewer brokers are live than new topics have replicas, the proxy creates those
topics too, if the brokers create topics on demand, so that the live brokers suffice (KIP-409,
`replication/creation.py`). As with brokers, a client that asks while a topic is being created gets the answer that
there is none yet.

Version notes: Metadata v0 to v3 always create (v4 has the flag), so the brokers are asked v4 for them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import structlog

from proxy.brokers.broker_defaults import DefaultsRefused, broker_configs
from proxy.brokers.cluster import Cluster
from proxy.brokers.upstream import BrokerUnreachable
from proxy.client.client import Client
from proxy.client.request import Request
from proxy.client.slots import Slot
from proxy.config import Settings
from proxy.creation.creator import TopicCreator
from proxy.creation.on_demand import OnDemand
from proxy.creation.replication.creation import UnderReplicatedTopics
from proxy.creation.replication.plan import DEFAULT_REPLICATION_FACTOR, NUM_PARTITIONS
from proxy.process.turns import Turns
from proxy.protocol.api_keys import METADATA
from proxy.protocol.errors import NONE, TOPIC_ALREADY_EXISTS, TOPIC_AUTHORIZATION_FAILED, UNKNOWN_TOPIC_OR_PARTITION
from proxy.topics.topic_configs import diskless_by_name
from proxy.topics.topic_defaults import TopicDefaults
from proxy.topics.topics import Topics
from proxy.wire.cold import at_version, encode, read_response
from proxy.wire.errors import ProtocolError, TooManyElements
from proxy.wire.metadata import (
    FIRST_RACK_ID,
    MetadataRequest,
    MetadataRequestTopic,
    encode_metadata_request,
    metadata_topics,
    parse_metadata_request,
    with_topic_errors,
)
from proxy.wire.primitives import MAX_WHOLE_ELEMENTS, Buffer
from proxy.wire.steps import Pausing, Rewrite, Steps, emptied, in_slices

log = structlog.get_logger()

FIRST_FLAG_VERSION = 4
_SAME_AS_FLAG_VERSION = 3
_AUTO_CREATE = "auto.create.topics.enable"
_INTERNAL = ("__consumer_offsets", "__transaction_state", "__share_group_state")
"""Brokers make them with configs of their own."""
_MAY_BE_OVER = (NONE, UNKNOWN_TOPIC_OR_PARTITION)
"""While a topic is being created; the next answer knows better."""


class AutoCreation:
    """Creates topics that a Metadata request asks for, as brokers do."""

    def __init__(
        self,
        settings: Settings,
        *,
        topics: Topics,
        topic_defaults: TopicDefaults,
        cluster: Cluster,
        under_replicated: UnderReplicatedTopics,
        creator: TopicCreator,
        on_demand: OnDemand,
        turns: Turns,
    ) -> None:
        self._settings = settings
        self._topics = topics
        self._topic_defaults = topic_defaults
        self._cluster = cluster
        self._under_replicated = under_replicated
        self._creator = creator
        self._on_demand = on_demand
        self._turns = turns

    def creating_request(self, body: Buffer, version: int) -> Steps[MetadataRequest | None]:
        """Return a request that might create a topic that the proxy is to create; None for any other or unreadable one.

        Raises TooManyElements.
        """
        if not self._settings.default_diskless_topics and not self._topics.all() and not self._brokers_are_missing():
            return None
        try:
            asked = yield from parse_metadata_request.steps(body, version)
        except TooManyElements:
            raise
        except ProtocolError:
            return None  # the broker's to refuse
        for some in in_slices(asked.topics or () if asked.allow_auto_topic_creation else ()):
            if any(topic.name is not None and self._is_mine(topic.name) for topic in some):
                return asked
            yield
        return None

    def is_all_known(self, asked: MetadataRequest) -> Steps[bool]:
        """Return whether all topics that it names are live diskless topics, so that the brokers create nothing."""
        for some in in_slices(asked.topics or ()):
            entries = [self._topics.find(topic.name) for topic in some if topic.name is not None]
            if not all(entry is not None and entry.state == "live" for entry in entries):
                return False
            yield
        return True

    async def answer(
        self, client: Client, request: Request, slot: Slot, asked: MetadataRequest, rewrite: Rewrite
    ) -> None:
        """Create the missing topics, and fill the slot as the brokers then answer.

        Raises BrokerUnreachable and ProtocolError.
        """
        version, turns = _version(asked), self._turns
        if asked.version < _SAME_AS_FLAG_VERSION and len(asked.topics or ()) > MAX_WHOLE_ELEMENTS:
            raise TooManyElements(
                f"Metadata v{asked.version} names more than {MAX_WHOLE_ELEMENTS} topics to be created"
            )
        asking = await turns.do(without_creation.steps(asked))
        body = await client.ask(request, METADATA, version, asking)
        missing = await turns.do(_missing(body, version))
        if missing:
            errors: dict[str, int] = {}
            for some in in_slices(missing):
                errors |= await self._create(client, request, asked, some)
                await turns.next()
            body = await client.ask(request, METADATA, version, asking)
            body = memoryview(await turns.do(with_topic_errors.steps(body, version, errors)))
        if asked.version < _SAME_AS_FLAG_VERSION:
            older = at_version(read_response(METADATA, version, body), asked.version, response=True)
            body = memoryview(encode(older))
        slot.fill(await turns.rewritten(rewrite(body)))
        await turns.do(emptied(asked.topics or []))

    async def _create(
        self, client: Client, request: Request, asked: MetadataRequest, missing: Sequence[str]
    ) -> dict[str, int]:
        """Let the brokers create their topics, and create the others; return Kafka's errors for the client, by name."""
        version = _version(asked)
        errors: dict[str, int] = {}
        theirs = [name for name in missing if not self._is_mine(name)]
        if theirs:
            again = asked._replace(version=version, topics=[MetadataRequestTopic(name) for name in theirs])
            body = await client.ask(request, METADATA, version, encode_metadata_request(again))
            answered = {
                topic.name: topic.error_code for topic in metadata_topics(body, version) if topic.name is not None
            }
            errors = {name: error_code for name, error_code in answered.items() if error_code not in _MAY_BE_OVER}
        mine = [name for name in missing if self._is_mine(name) and self._topics.find(name) is None]
        mine, refused = self._on_demand.begin(mine), []
        try:
            defaults = await self._brokers_create() if mine else None
            if defaults is None:
                refused = mine
            else:
                results = await self._create_as_client(client, request, mine, defaults)
                refused = [name for name, error_code in results.items() if error_code != TOPIC_AUTHORIZATION_FAILED]
                errors |= {name: error_code for name, error_code in results.items() if name not in refused}
        finally:
            self._on_demand.end(mine, refused=refused)
        return errors

    async def _create_as_client(
        self, client: Client, request: Request, names: list[str], defaults: Mapping[str, str | None]
    ) -> dict[str, int]:
        """Create topics, and return Kafka's errors of those that do not exist afterwards.

        The request has the brokers' own numbers of partitions and replicas, as a broker's request has. If a request
        omits them, the controllers use their own defaults, which may differ.
        """
        errors = {}
        results = await self._creator.create_by_name(
            client,
            request,
            names,
            partitions=_number(defaults.get(NUM_PARTITIONS)),
            replication_factor=_number(defaults.get(DEFAULT_REPLICATION_FACTOR)),
        )
        for name, result in results.items():
            error_code = result.error_code.value
            if error_code in (NONE, TOPIC_ALREADY_EXISTS):
                continue
            errors[name] = error_code
            if error_code != TOPIC_AUTHORIZATION_FAILED and self._on_demand.warns(name):
                log.warning(
                    "topic_not_auto_created",
                    topic=name,
                    error=result.error_code.name,
                    reason=result.error_message,
                    remedy="create it with an Admin client, or fix what the reason names",
                )
        return errors

    async def _brokers_create(self) -> Mapping[str, str | None] | None:
        """Return the brokers' defaults if they create topics on demand; None if they don't, or don't answer."""
        try:
            configs = await broker_configs(self._cluster, (_AUTO_CREATE, NUM_PARTITIONS, DEFAULT_REPLICATION_FACTOR))
            return configs if configs.get(_AUTO_CREATE) == "true" else None
        except (BrokerUnreachable, ProtocolError, DefaultsRefused) as error:
            log.warning(
                "auto_creation_unknown",
                reason=str(error),
                effect="topics that match default_diskless_topics are not created on demand; no topic is while "
                "brokers are missing",
                remedy="allow the proxy's principal to describe the configs of the cluster",
            )
            return None

    def _is_guarded(self, name: str) -> bool:
        patterns = self._settings.default_diskless_topics
        return self._topics.find(name) is not None or diskless_by_name(name, patterns)

    def _is_mine(self, name: str) -> bool:
        return self._is_guarded(name) or (self._brokers_are_missing() and name not in _INTERNAL)

    def _brokers_are_missing(self) -> bool:
        """Whether the brokers may refuse what they create on demand: fewer live than it has replicas by default."""
        return self._under_replicated.enabled and (
            0 < len(self._cluster.view.brokers) < self._topic_defaults.replication_factor
        )


@Pausing
def without_creation(asked: MetadataRequest) -> Steps[bytes]:
    """Return the body by which nothing is created, in the highest version that brokers know up to the request's."""
    return (
        yield from encode_metadata_request.steps(
            asked._replace(version=_version(asked), allow_auto_topic_creation=False)
        )
    )


def _missing(body: Buffer, version: int) -> Steps[list[str]]:
    """The topics that brokers don't have."""
    topics, missing = (yield from metadata_topics.steps(body, version)), list[str]()
    for some in in_slices(topics):
        missing += [one.name for one in some if one.error_code == UNKNOWN_TOPIC_OR_PARTITION and one.name is not None]
        yield
    yield from emptied(topics)
    return missing


def _number(value: str | None) -> int:
    """-1, the controllers' own, where it is not known."""
    return int(value) if value is not None and value.isdecimal() else -1


def _version(asked: MetadataRequest) -> int:
    return min(max(asked.version, FIRST_FLAG_VERSION), FIRST_RACK_ID - 1)
