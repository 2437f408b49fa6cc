"""What the job asks brokers for: how a topic is cleaned up that does not say so itself."""

from __future__ import annotations

from proxy.brokers.broker_defaults import DefaultsRefused, retention_defaults
from proxy.brokers.cluster import Cluster
from proxy.brokers.upstream import BrokerUnreachable
from proxy.config import Settings
from proxy.protocol.cleanup_policy import DELETE
from proxy.wire.errors import ProtocolError


async def default_cleanup_policy(settings: Settings) -> str:
    """Return the brokers' `log.cleanup.policy`, as proxies go by it; Kafka's own default where no broker tells it."""
    cluster = Cluster(settings)
    try:
        await cluster.refresh()
        return (await retention_defaults(cluster)).cleanup_policy
    except (BrokerUnreachable, ProtocolError, DefaultsRefused):
        return DELETE
    finally:
        cluster.service.close()
