"""Config resources of a request: which of them are diskless topics."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from proxy.coordinator.interface_registry import DisklessTopic
from proxy.topics.topics import Topics

TOPIC = 2
"""`ConfigResource.Type` of a topic."""
DYNAMIC_TOPIC_CONFIG = 1
"""The source of a config that the topic sets itself."""


def diskless_topics_of(resources: Iterable[Any], topics: Topics) -> dict[str, DisklessTopic]:
    """Return the live diskless topics among the resources, by name."""
    found = (topics.find(str(one.resource_name)) for one in resources if one.resource_type == TOPIC)
    return {entry.name: entry for entry in found if entry is not None and entry.state == "live"}


def being_made(resources: Iterable[Any], topics: Topics) -> bool:
    """Return whether a topic among the resources is in the registry, but not live, as far as this proxy has heard."""
    found = (topics.find(str(one.resource_name)) for one in resources if one.resource_type == TOPIC)
    return any(entry is not None and entry.state != "live" for entry in found)
