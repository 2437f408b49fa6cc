"""The brokers' default cleanup policy, for topics that do not set one."""

from __future__ import annotations

from proxy.brokers.broker_defaults import DefaultsRefused, retention_defaults
from proxy.brokers.cluster import Cluster
from proxy.brokers.upstream import BrokerUnreachable
from proxy.config import Settings
from proxy.protocol.cleanup_policy import DELETE
from proxy.wire.errors import ProtocolError


async def default_cleanup_policy(settings: Settings) -> str:
    """Return the brokers' `log.cleanup.policy`, as proxies use it; Kafka's own default if no broker answers."""
    cluster = Cluster(settings)
    try:
        await cluster.refresh()
        return (await retention_defaults(cluster)).cleanup_policy
    except (BrokerUnreachable, ProtocolError, DefaultsRefused):
        return DELETE
    finally:
        cluster.service.close()
