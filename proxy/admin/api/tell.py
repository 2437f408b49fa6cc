"""What one process answers to a question of the admin port, its own or its parent's."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import TYPE_CHECKING, Any

from proxy.admin.api import connections, errors, figures, fleet, segments, topics
from proxy.admin.api.question import Question, Resource

if TYPE_CHECKING:
    from proxy.assembly.context import Context

_TOLD: Mapping[Resource, Callable[[Context, Question], Awaitable[Any]]] = {
    Resource.FIGURES: figures.told,
    Resource.FLEET: fleet.told,
    Resource.TOPICS: topics.told,
    Resource.SEGMENTS: segments.told,
    Resource.CONNECTIONS: connections.told,
    Resource.ERRORS: errors.told,
}


async def tell(context: Context, question: Question) -> Any:
    """What this process knows of it."""
    return await _TOLD[question.resource](context, question)
