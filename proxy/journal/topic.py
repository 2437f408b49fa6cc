"""The journal's topic: create it, or check that it can hold the journal."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from proxy.brokers.service import ServiceConnection
from proxy.brokers.upstream import BrokerUnreachable
from proxy.config.journal import Journal
from proxy.journal.errors import JournalUnfit, TooFewBrokers, described
from proxy.journal.messages import METADATA_VERSION, metadata_request
from proxy.journal.rights import grant_command
from proxy.protocol.api_keys import CREATE_TOPICS, DESCRIBE_CONFIGS, METADATA
from proxy.protocol.errors import (
    CLUSTER_AUTHORIZATION_FAILED,
    INVALID_REPLICATION_FACTOR,
    NONE,
    POLICY_VIOLATION,
    TOPIC_ALREADY_EXISTS,
    TOPIC_AUTHORIZATION_FAILED,
    UNKNOWN_TOPIC_OR_PARTITION,
)
from proxy.wire.cold import encode, milliseconds, nested, read_response
from proxy.wire.metadata import metadata_cluster_id
from proxy.wire.partition_states import PartitionState, read_partitions, split_topics

_CREATE_VERSION = 7
_DESCRIBE_VERSION = 4
_TOPIC = 2
_FORBIDDEN = (TOPIC_AUTHORIZATION_FAILED, CLUSTER_AUTHORIZATION_FAILED)

MIN_INSYNC_REPLICAS = "min.insync.replicas"
MAX_MESSAGE_BYTES = "max.message.bytes"
_EXACTLY = {
    "cleanup.policy": ("delete",),
    "retention.ms": ("-1",),
    "retention.bytes": ("-1",),
    "message.timestamp.type": ("LogAppendTime",),
    "unclean.leader.election.enable": ("false",),
    "compression.type": ("uncompressed", "producer"),
}
"""Values that the journal can do with; the first of them is set."""


class FoundTopic(NamedTuple):
    """The topic as a broker describes it."""

    topic_id: bytes
    cluster_id: str
    partitions: dict[int, PartitionState]
    metadata: memoryview
    """The body of the Metadata response."""


async def find_topic(connection: ServiceConnection, name: str) -> FoundTopic | None:
    """Return the topic; None if it is missing. Raises BrokerUnreachable, ProtocolError and JournalUnfit."""
    body = await connection.ask(METADATA, METADATA_VERSION, metadata_request(name))
    for topic in split_topics(body):
        if topic.name != name:
            continue
        if topic.error_code == UNKNOWN_TOPIC_OR_PARTITION:
            return None
        if topic.error_code in _FORBIDDEN:
            raise JournalUnfit(
                f"the proxy's principal may not see the topic {name} of the journal; run {grant_command(name)}"
            )
        if topic.error_code != NONE:
            raise BrokerUnreachable(f"the topic {name}: {described(topic.error_code)}")
        cluster_id = metadata_cluster_id(body, METADATA_VERSION) or ""
        return FoundTopic(topic.topic_id, cluster_id, read_partitions(topic.encoded), body)
    raise BrokerUnreachable(f"the broker does not answer for the topic {name}")


def missing(name: str) -> str:
    """Return the error for a journal that exists, but whose topic does not."""
    return (
        f"the topic {name} of the journal is missing; it was deleted, or brokers.bootstrap leads to another cluster. "
        "If the store was begun with journal.mode: off, set that. If the topic is lost, see docs/journal.md"
    )


async def create_topic(
    connection: ServiceConnection, settings: Journal, partitions: int, *, only_try: bool = False
) -> None:
    """Create the topic unless it exists. Raises BrokerUnreachable, ProtocolError, JournalUnfit and TooFewBrokers.

    `only_try`: raise the same errors, but create nothing.
    """
    from kio.schema.create_topics.v7.request import CreateTopicsRequest

    topic_type = nested(CreateTopicsRequest, "topics")
    config_type = nested(topic_type, "configs")
    topic = topic_type(
        name=settings.topic,
        num_partitions=partitions,
        replication_factor=settings.replication_factor,
        assignments=(),
        configs=tuple(config_type(name=name, value=value) for name, value in wanted_configs(settings).items()),
    )
    request = CreateTopicsRequest(topics=(topic,), timeout=milliseconds(settings.timeout_ms), validate_only=only_try)
    response: Any = read_response(
        CREATE_TOPICS, _CREATE_VERSION, await connection.ask(CREATE_TOPICS, _CREATE_VERSION, encode(request))
    )
    for result in response.topics:
        error_code = result.error_code.value
        found = f"{described(error_code)}: {result.error_message or 'no reason given'}"
        if error_code in _FORBIDDEN:
            raise JournalUnfit(
                f"the proxy's principal may not create the topic {settings.topic} of the journal; run "
                f"{grant_command(settings.topic)}, or create the topic yourself"
            )
        refused = f"the brokers do not create the topic {settings.topic} of the journal"
        if error_code == POLICY_VIOLATION:
            raise JournalUnfit(f"{refused} ({found}); let the policy allow it, or create the topic yourself")
        if error_code == INVALID_REPLICATION_FACTOR:
            raise TooFewBrokers(
                f"{refused} with {settings.replication_factor} replicas ({found}); start more brokers, or set "
                "journal.replication_factor and journal.min_insync_replicas to what your cluster has: both to 1 for a "
                "single broker, whose disk is then the only copy"
            )
        if error_code not in (NONE, TOPIC_ALREADY_EXISTS):
            raise BrokerUnreachable(f"the topic {settings.topic} can't be created: {found}")


async def topic_configs(connection: ServiceConnection, settings: Journal) -> dict[str, str | None]:
    """Return the configs of the topic that matter. Raises BrokerUnreachable, ProtocolError and JournalUnfit."""
    from kio.schema.describe_configs.v4.request import DescribeConfigsRequest

    resource = nested(DescribeConfigsRequest, "resources")(
        resource_type=_TOPIC, resource_name=settings.topic, configuration_keys=tuple(wanted_configs(settings))
    )
    request = DescribeConfigsRequest(resources=(resource,), include_synonyms=False, include_documentation=False)
    response: Any = read_response(
        DESCRIBE_CONFIGS, _DESCRIBE_VERSION, await connection.ask(DESCRIBE_CONFIGS, _DESCRIBE_VERSION, encode(request))
    )
    for result in response.results:
        error_code = result.error_code.value
        if error_code in _FORBIDDEN:
            raise JournalUnfit(
                f"the proxy's principal may not read the configs of the topic {settings.topic} of the journal; run "
                f"{grant_command(settings.topic)}"
            )
        if error_code != NONE:
            raise BrokerUnreachable(f"the configs of the topic {settings.topic}: {described(error_code)}")
        return {str(config.name): config.value for config in result.configs}
    raise BrokerUnreachable(f"the broker does not answer for the configs of the topic {settings.topic}")


def wanted_configs(settings: Journal) -> dict[str, str]:
    """Return the configs of a new topic."""
    return {name: values[0] for name, values in _EXACTLY.items()} | {
        MIN_INSYNC_REPLICAS: str(settings.min_insync_replicas),
        MAX_MESSAGE_BYTES: str(settings.max_append_bytes),
    }


def check_topic(
    settings: Journal, partitions: int, found: Mapping[int, PartitionState], configs: Mapping[str, str | None]
) -> None:
    """Raise JournalUnfit if the topic can't hold a journal of that many partitions."""
    topic = f"the topic {settings.topic} of the journal"
    if len(found) != partitions:
        raise JournalUnfit(
            f"{topic} has {len(found)} partitions, but it needs {partitions}: one for each shard and one for the "
            "registry; name a topic that does not exist in journal.topic, or the topic of this store"
        )
    short = {partition for partition, state in found.items() if len(state.replicas) < settings.replication_factor}
    if short:
        raise JournalUnfit(
            f"{topic} has fewer than {settings.replication_factor} replicas in {len(short)} of {partitions} "
            "partitions; add replicas with kafka-reassign-partitions, or lower journal.replication_factor"
        )
    wrong = {name: value for name, value in wanted_configs(settings).items() if not _fits(settings, name, configs)}
    if wrong:
        present = ", ".join(f"{name}={configs.get(name)}" for name in wrong)
        needed = ",".join(f"{name}={value}" for name, value in wrong.items())
        raise JournalUnfit(
            f"{topic} has {present}; set what it needs with kafka-configs --alter --entity-type topics "
            f"--entity-name {settings.topic} --add-config {needed}"
        )


def _fits(settings: Journal, name: str, configs: Mapping[str, str | None]) -> bool:
    value = configs.get(name) or ""
    if name in _EXACTLY:
        return value in _EXACTLY[name]
    least = {MIN_INSYNC_REPLICAS: settings.min_insync_replicas, MAX_MESSAGE_BYTES: settings.max_append_bytes}
    return value.isdecimal() and int(value) >= least[name]
