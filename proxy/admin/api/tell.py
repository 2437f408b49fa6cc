"""What one process answers to a question of the admin port, its own or its parent's."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from proxy.admin.api import connections, errors, figures, fleet, segments, topics
from proxy.admin.api.question import Question, Resource

if TYPE_CHECKING:
    from proxy.assembly.parts import Parts


async def tell(parts: Parts, question: Question) -> Any:
    """Return what this process knows of it."""
    match question.resource:
        case Resource.FIGURES:
            return await figures.told(parts)
        case Resource.FLEET:
            lease_ms, brokers = parts.process.settings.fleet.lease_ms, parts.brokers.cluster.view.brokers
            return await fleet.told(parts.routing.fleet, lease_ms, brokers.values())
        case Resource.TOPICS:
            own_rack, replicas = parts.process.settings.rack, parts.replicas.replicas
            return await topics.told(parts.topics.topics, parts.process.stats, replicas, own_rack, question)
        case Resource.SEGMENTS:
            return await segments.told(parts.diskless.wal, question)
        case Resource.CONNECTIONS:
            return await connections.told(parts.clients.connections.all(), parts.routing.racks, question)
        case Resource.ERRORS:
            return await errors.told(question)
