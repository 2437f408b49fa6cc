"""All parts of a proxy that has not connected to anything, for tests that replace what they need."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import redis.asyncio

from proxy.assembly.parts import Parts, build_parts
from proxy.config import Settings
from proxy.coordinator.interface_registry import DisklessTopic, RegistrySnapshot
from proxy.storage.file import FileStorage

_SETTINGS: dict[str, Any] = {
    "rack": "rack-a",
    "brokers": {"bootstrap": ["localhost:9092"]},
    "redis": {"url": "redis://localhost:6379"},
    "storage": {"url": "file:///nowhere"},
}


def settings_of(**sections: Any) -> Settings:
    """Return settings; `sections` adds to those that every proxy needs."""
    merged = dict(_SETTINGS)
    for name, value in sections.items():
        before = merged.get(name)
        merged[name] = {**before, **value} if isinstance(before, dict) and isinstance(value, Mapping) else value
    return Settings.model_validate(merged)


def parts_of(settings: Settings | None = None, *diskless: DisklessTopic) -> Parts:
    """Build the parts in the running loop; the lease runs, and the registry has the topics `diskless`."""
    settings = settings or settings_of()
    parts = build_parts(settings, FileStorage(settings.storage), redis.asyncio.Redis())
    topics = parts.topics.topics
    topics._lease_runs = lambda: True
    topics.take(RegistrySnapshot(1, diskless))
    return parts


def with_parts(parts: Parts, **rooms: Mapping[str, Any]) -> Parts:
    """Replace parts, by room and name."""
    return replace(parts, **{room: replace(getattr(parts, room), **new) for room, new in rooms.items()})
