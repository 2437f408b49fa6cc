"""Build the parts of a process that has not connected to anything."""

from __future__ import annotations

import redis.asyncio

from proxy.assembly.parts import Parts, build_parts
from proxy.config import Settings
from proxy.storage import open_storage


def parts_of(settings: Settings) -> Parts:
    """Build them as the server does."""
    return build_parts(settings, open_storage(settings.storage, ""), redis.asyncio.Redis())
