"""The rights of the proxy's own principal at the brokers. docs/security.md names each right and its purpose."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Iterable, Sequence
from typing import Any

from proxy.brokers.broker_defaults import DefaultsRefused, broker_configs
from proxy.brokers.cluster import Cluster
from proxy.check.findings import Finding, Kind, error, ok, warning
from proxy.client.rights import READ
from proxy.config import Settings
from proxy.protocol.api_keys import METADATA
from proxy.protocol.errors import NONE, TOPIC_AUTHORIZATION_FAILED
from proxy.wire.cold import read_response
from proxy.wire.metadata import MetadataRequest, MetadataTopic, build_metadata_request, encode_metadata_request
from proxy.wire.metadata import metadata_topics as topics_of

_VERSION = 9
_CLUSTER_ALTER, _CLUSTER_ACTION = 1 << 7, 1 << 9
_NAMED = 3
_WHERE = "brokers.sasl"


async def check_rights(settings: Settings, cluster: Cluster, diskless: Sequence[str]) -> list[Finding]:
    """`diskless`: names of the diskless topics, as far as they are known.

    Raises BrokerUnreachable and ProtocolError.
    """
    operations, (may_describe, hidden), visible = await asyncio.gather(
        _cluster_operations(cluster), _described(cluster, diskless), _visible(cluster)
    )
    where = _WHERE if settings.brokers.with_sasl else "brokers.security_protocol"
    return [
        of_topics(where, visible, hidden, describes_any=may_describe),
        await _configs(where, cluster),
        of_cluster(where, operations),
        *of_transactions(where, operations, settings.transactions.client_version),
    ]


def of_topics(where: str, visible: Sequence[MetadataTopic], hidden: Sequence[str], *, describes_any: bool) -> Finding:
    """Describe and Read on topics. `hidden`: diskless ones that the principal may not see; `describes_any`: it may
    see a topic of any name."""
    grant = "allow the proxies' principal Describe on topics: kafka-acls in docs/security.md"
    if not describes_any and not visible:
        return error(Kind.RIGHTS, where, "may not describe any topic: right Describe is missing", grant)
    if hidden:
        text = f"may not describe the diskless topics {_some(hidden)}: right Describe is missing"
        return error(Kind.RIGHTS, where, text, grant)
    unread = [
        str(topic.name) for topic in visible if topic.error_code == NONE and not topic.authorized_operations & READ
    ]
    if unread:
        text = f"may not read {_some(unread)}, so these topics are read from their leaders: right Read is missing"
        remedy = "allow the proxies' principal Read on topics, or accept this: docs/security.md"
        return warning(Kind.RIGHTS, where, text, remedy)
    if not describes_any:
        return ok(Kind.RIGHTS, where, f"may describe and read {_count(len(visible))}, but not all topics")
    return ok(Kind.RIGHTS, where, f"may describe all topics, and read the existing {_count(len(visible))}")


def of_cluster(where: str, operations: int) -> Finding:
    """Alter on the cluster. `operations`: bits of AclOperation."""
    if operations & _CLUSTER_ALTER:
        return ok(Kind.RIGHTS, where, "may alter the cluster")
    text = "may not alter the cluster, so topics that lack replicas get no more: right Alter is missing"
    remedy = "allow the proxies' principal Alter on the cluster, or accept this: docs/security.md"
    return warning(Kind.RIGHTS, where, text, remedy)


def of_transactions(where: str, operations: int, client_version: int) -> list[Finding]:
    """ClusterAction on the cluster, if clients are to use transaction version 2. `operations`: bits of AclOperation."""
    if client_version == 1:
        return []
    if operations & _CLUSTER_ACTION:
        return [ok(Kind.RIGHTS, where, "may add partitions to transactions of version 2")]
    text = (
        "may not add partitions to transactions, so clients use transaction version 1: right ClusterAction is missing"
    )
    remedy = (
        "allow the proxies' principal ClusterAction on the cluster, or set transactions.client_version to 1: "
        "docs/transactions.md"
    )
    return [warning(Kind.RIGHTS, where, text, remedy)]


async def _configs(where: str, cluster: Cluster) -> Finding:
    try:
        await broker_configs(cluster, ("message.max.bytes",))
    except DefaultsRefused as problem:
        text = (
            f"may not describe configs, so quotas are not enforced and no diskless topic is created on "
            f"demand ({problem})"
        )
        remedy = "allow the proxies' principal DescribeConfigs on the cluster: docs/security.md"
        return warning(Kind.RIGHTS, where, text, remedy)
    return ok(Kind.RIGHTS, where, "may describe configs")


async def _cluster_operations(cluster: Cluster) -> int:
    body = encode_metadata_request(MetadataRequest(_VERSION, [], False, True, False))
    answer: Any = read_response(METADATA, _VERSION, await cluster.service.ask(METADATA, _VERSION, body))
    return int(answer.cluster_authorized_operations)


async def _described(cluster: Cluster, diskless: Iterable[str]) -> tuple[bool, list[str]]:
    """Return whether a topic of any name would be seen, and which of these are not."""
    anything = f"diskless-proxy-check-{uuid.uuid4().hex}"  # it is not made, and may not be there
    topics = await _topics(cluster, [anything, *diskless])
    refused = [str(topic.name) for topic in topics if topic.error_code == TOPIC_AUTHORIZATION_FAILED]
    return anything not in refused, [name for name in refused if name != anything]


async def _visible(cluster: Cluster) -> list[MetadataTopic]:
    return await _topics(cluster, None)


async def _topics(cluster: Cluster, names: list[str] | None) -> list[MetadataTopic]:
    body = build_metadata_request(_VERSION, names, topic_authorized_operations=True)
    return topics_of(await cluster.service.ask(METADATA, _VERSION, body), _VERSION)


def _some(names: Sequence[str]) -> str:
    more = f" and {len(names) - _NAMED} more" if len(names) > _NAMED else ""
    return f"{', '.join(sorted(names)[:_NAMED])}{more}"


def _count(topics: int) -> str:
    return f"{topics} topic{'' if topics == 1 else 's'}"
