"""Whether a topic of the brokers is the placeholder of a diskless topic, by its configs."""

from __future__ import annotations

from typing import Any

from proxy.brokers.service import ServiceConnection
from proxy.protocol.api_keys import DESCRIBE_CONFIGS
from proxy.protocol.errors import NONE
from proxy.topics.topic_configs import MAX_MESSAGE_BYTES, SHADOW_CONFIGS
from proxy.topics.topic_resources import TOPIC
from proxy.wire.cold import encode, nested, read_response

_VERSION = 4


async def is_placeholder(connection: ServiceConnection, name: str) -> bool | None:
    """Return whether a topic takes only markers, as placeholders do; None if the principal may not read its configs.

    Raises BrokerUnreachable and ProtocolError.
    """
    from kio.schema.describe_configs.v4.request import DescribeConfigsRequest

    resource = nested(DescribeConfigsRequest, "resources")(
        resource_type=TOPIC, resource_name=name, configuration_keys=(MAX_MESSAGE_BYTES,)
    )
    request = DescribeConfigsRequest(resources=(resource,), include_synonyms=False, include_documentation=False)
    body = await connection.ask(DESCRIBE_CONFIGS, _VERSION, encode(request))
    response: Any = read_response(DESCRIBE_CONFIGS, _VERSION, body)
    for result in response.results:
        if result.error_code.value == NONE and str(result.resource_name) == name:
            values = {str(config.name): config.value for config in result.configs}
            if MAX_MESSAGE_BYTES in values:
                return bool(values[MAX_MESSAGE_BYTES] == SHADOW_CONFIGS[MAX_MESSAGE_BYTES])
    return None
