"""Parts of `proxy/creation`, made for tests that need only some of what they are made of."""

from __future__ import annotations

import asyncio
from typing import Any, TypeVar

from proxy import config
from proxy.creation.reservations import Reservations
from proxy.topics.topics import Topics
from tests.coordinator_model import ModelCoordinator
from tests.registry_model import ModelTopicRegistry

Kind = TypeVar("Kind", bound=Reservations)


class NoCoordinates:
    """Coordinates of which none is cached."""

    def forget(self, topic_id: bytes) -> None:
        pass


def reservations_of(kind: type[Kind], registry: ModelTopicRegistry, **others: Any) -> Kind:
    """Make reservations of that kind; `others` replaces arguments of the constructor, or `settings`."""
    unused: Any = None
    parts: dict[str, Any] = {
        "topics": others.get("topics") or Topics(registry, lease_runs=lambda: True),
        "coordinator": ModelCoordinator(),
        "coordinates": NoCoordinates(),
        "fleet": unused,
        "cluster": unused,
        "now": asyncio.get_running_loop().time,
    }
    return kind(others.pop("settings", config.Fleet()), **parts | others)
