"""The brokers' defaults for configs that a topic may leave unset, read from a broker (DescribeConfigs, API key 32)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from proxy.brokers.cluster import Cluster
from proxy.brokers.upstream import BrokerUnreachable
from proxy.protocol.api_keys import DESCRIBE_CONFIGS
from proxy.protocol.cleanup_policy import DELETE
from proxy.protocol.errors import CLUSTER_AUTHORIZATION_FAILED
from proxy.wire.cold import encode, nested, read_response

_VERSION = 4
_BROKER = 4
_UNITS_MS = {"log.retention.ms": 1, "log.retention.minutes": 60_000, "log.retention.hours": 3_600_000}
"""The first that is set counts."""
_RETENTION_BYTES = "log.retention.bytes"
_CLEANUP_POLICY = "log.cleanup.policy"


class DefaultsRefused(Exception):
    """The proxy's principal may not ask brokers for their configs; the text names Kafka's errors."""


class RetentionDefaults(NamedTuple):
    """Retention of topics that set none; -1 for no bound."""

    retention_ms: int
    retention_bytes: int
    cleanup_policy: str = DELETE


async def retention_defaults(cluster: Cluster) -> RetentionDefaults:
    """Return the defaults as the brokers apply them.

    Raises BrokerUnreachable, and DefaultsRefused if the principal may not read them.
    """
    return read_defaults(await broker_configs(cluster, (*_UNITS_MS, _RETENTION_BYTES, _CLEANUP_POLICY)))


async def broker_configs(cluster: Cluster, names: tuple[str, ...]) -> dict[str, str | None]:
    """Return configs of one of the brokers by name, without those that it does not know.

    Raises BrokerUnreachable (also if no broker answers for a reason that may pass), ProtocolError, and DefaultsRefused
    if the principal may not read them.
    """
    from kio.schema.describe_configs.v4.request import DescribeConfigsRequest

    if not cluster.view.brokers:
        raise BrokerUnreachable("no broker is known")
    # A broker describes only itself, and the service connection is to any broker: results for the others are errors.
    resources = tuple(
        nested(DescribeConfigsRequest, "resources")(
            resource_type=_BROKER, resource_name=str(node_id), configuration_keys=names
        )
        for node_id in sorted(cluster.view.brokers)
    )
    request = DescribeConfigsRequest(resources=resources, include_synonyms=False, include_documentation=False)
    body = await cluster.service.ask(DESCRIBE_CONFIGS, _VERSION, encode(request))
    response: Any = read_response(DESCRIBE_CONFIGS, _VERSION, body)
    for result in response.results:
        if not result.error_code.value:
            return {str(config.name): config.value for config in result.configs}
    errors = sorted({result.error_code.name for result in response.results})
    found = f"DescribeConfigs of the brokers answers {', '.join(errors) or 'nothing'}"
    if any(result.error_code.value == CLUSTER_AUTHORIZATION_FAILED for result in response.results):
        raise DefaultsRefused(found)
    raise BrokerUnreachable(f"{found}; the broker that was asked may not know itself yet")


def read_defaults(configs: Mapping[str, str | None]) -> RetentionDefaults:
    """From a broker's configs; its log.retention.ms goes before minutes, and those before hours."""
    retention_ms = next(
        (int(value) * unit for name, unit in _UNITS_MS.items() if (value := configs.get(name)) is not None), -1
    )
    policy = configs.get(_CLEANUP_POLICY)
    retention_bytes = int(configs.get(_RETENTION_BYTES) or -1)
    return RetentionDefaults(max(retention_ms, -1), retention_bytes, DELETE if policy is None else policy)
