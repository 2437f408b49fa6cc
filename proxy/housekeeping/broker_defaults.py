"""The brokers' own defaults of what a topic may leave unset, asked of a broker (DescribeConfigs, API key 32)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from proxy.cluster import Cluster
from proxy.housekeeping.retention import RetentionDefaults
from proxy.upstream import BrokerUnreachable
from proxy.wire.cold import encode, nested, read_response

_DESCRIBE_CONFIGS = 32
_VERSION = 4
_BROKER = 4
_UNITS_MS = {"log.retention.ms": 1, "log.retention.minutes": 60_000, "log.retention.hours": 3_600_000}
"""The first that is set counts."""
_RETENTION_BYTES = "log.retention.bytes"


async def retention_defaults(cluster: Cluster) -> RetentionDefaults:
    """As the brokers apply them. Raises BrokerUnreachable, also where the proxy's principal may not ask."""
    from kio.schema.describe_configs.v4.request import DescribeConfigsRequest

    if not cluster.view.brokers:
        raise BrokerUnreachable("no broker is known")
    resource = nested(DescribeConfigsRequest, "resources")(
        resource_type=_BROKER,
        resource_name=str(min(cluster.view.brokers)),
        configuration_keys=(*_UNITS_MS, _RETENTION_BYTES),
    )
    request = DescribeConfigsRequest(resources=(resource,), include_synonyms=False, include_documentation=False)
    body = await cluster.service.ask(_DESCRIBE_CONFIGS, _VERSION, encode(request))
    response: Any = read_response(_DESCRIBE_CONFIGS, _VERSION, body)
    (result,) = response.results
    if result.error_code.value:
        raise BrokerUnreachable(f"DescribeConfigs of a broker answers {result.error_code.name}")
    return read_defaults({config.name: config.value for config in result.configs})


def read_defaults(configs: Mapping[str, str | None]) -> RetentionDefaults:
    """From a broker's configs; its log.retention.ms goes before minutes, and those before hours."""
    retention_ms = next(
        (int(value) * unit for name, unit in _UNITS_MS.items() if (value := configs.get(name)) is not None), -1
    )
    return RetentionDefaults(max(retention_ms, -1), int(configs.get(_RETENTION_BYTES) or -1))
