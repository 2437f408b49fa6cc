"""Build parts of `proxy/creation` for tests that need only some of their dependencies."""

from __future__ import annotations

import asyncio
import time
from typing import Any, TypeVar

from proxy import config
from proxy.creation.auto_creation import AutoCreation
from proxy.creation.creator import TopicCreator
from proxy.creation.on_demand import OnDemand
from proxy.creation.reservations import Reservations
from proxy.process.turns import Turns
from proxy.process.unfinished import Unfinished
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


def creator_of(settings: Any, reservations: Any, **others: Any) -> TopicCreator:
    """Make a creator of topics that needs only some of its parts."""
    parts: dict[str, Any] = dict.fromkeys(("topics", "fleet", "under_replicated"))
    parts |= {"unfinished": Unfinished(), "now": time.monotonic}
    return TopicCreator(settings, reservations=reservations, **parts | others)


def auto_creation_of(settings: Any, **others: Any) -> AutoCreation:
    """Make what creates topics on demand, of which only some parts are needed."""
    parts: dict[str, Any] = dict.fromkeys(("topics", "topic_defaults", "cluster", "under_replicated", "creator"))
    parts |= {"on_demand": OnDemand(lambda: 0.0), "turns": Turns(0.001)}
    return AutoCreation(settings, **parts | others)
