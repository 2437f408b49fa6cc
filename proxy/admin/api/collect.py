"""The answers of one process to the questions of its own admin port, or of its parent's."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from proxy.admin.api import connections, errors, figures, fleet, nodes, segments, topics
from proxy.admin.api.question import Question, Resource

if TYPE_CHECKING:
    from proxy.assembly.parts import Parts


async def collect(parts: Parts, question: Question) -> Any:
    """Return the values of this process for the question's resource."""
    match question.resource:
        case Resource.FIGURES:
            return await figures.collect(parts)
        case Resource.FLEET:
            lease_ms, brokers = parts.process.settings.fleet.lease_ms, parts.brokers.cluster.view.brokers
            return await fleet.collect(parts.routing.fleet, lease_ms, brokers.values())
        case Resource.NODES:
            return await nodes.collect(parts.stores.nodes)
        case Resource.TOPICS:
            own_rack, replicas = parts.process.settings.rack, parts.replicas.replicas
            return await topics.collect(parts.topics.topics, parts.process.stats, replicas, own_rack, question)
        case Resource.SEGMENTS:
            return await segments.collect(parts.diskless.buffer, question)
        case Resource.CONNECTIONS:
            return await connections.collect(parts.clients.connections.all(), parts.routing.racks, question)
        case Resource.ERRORS:
            return await errors.collect(question)
