"""Configs of topics, as the brokers describe them to the proxy's own principal."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from proxy.brokers.service import ServiceConnection
from proxy.protocol.api_keys import DESCRIBE_CONFIGS
from proxy.protocol.errors import NONE
from proxy.wire.cold import encode, nested, read_response

_VERSION = 4
_TOPIC = 2
"""The type of a resource that is a topic."""


async def ask_topic_configs(connection: ServiceConnection, names: Sequence[str], key: str) -> dict[str, str | None]:
    """Return the value of a config by topic, of topics that exist and whose configs the principal may read.

    Raises BrokerUnreachable and ProtocolError.
    """
    from kio.schema.describe_configs.v4.request import DescribeConfigsRequest

    resource_type = nested(DescribeConfigsRequest, "resources")
    resources = tuple(
        resource_type(resource_type=_TOPIC, resource_name=name, configuration_keys=(key,)) for name in names
    )
    request = DescribeConfigsRequest(resources=resources, include_synonyms=False, include_documentation=False)
    response: Any = read_response(
        DESCRIBE_CONFIGS, _VERSION, await connection.ask(DESCRIBE_CONFIGS, _VERSION, encode(request))
    )
    return {
        str(result.resource_name): config.value
        for result in response.results
        if result.error_code.value == NONE
        for config in result.configs
        if str(config.name) == key
    }
