"""Whether a topic of the brokers is the placeholder of a diskless topic, by its configs."""

from __future__ import annotations

from proxy.brokers.service import ServiceConnection
from proxy.brokers.topic_configs import ask_topic_configs
from proxy.topics.topic_configs import MAX_MESSAGE_BYTES, SHADOW_CONFIGS


async def is_placeholder(connection: ServiceConnection, name: str) -> bool | None:
    """Return whether a topic takes only markers, as placeholders do; None if the principal may not read its configs.

    Raises BrokerUnreachable and ProtocolError.
    """
    values = await ask_topic_configs(connection, [name], MAX_MESSAGE_BYTES)
    return values[name] == SHADOW_CONFIGS[MAX_MESSAGE_BYTES] if name in values else None
