"""The interface that every room of the process has once its parts are built."""

from __future__ import annotations

from collections.abc import Collection, Coroutine, Iterable
from typing import Any

Work = Coroutine[Any, Any, None]
"""Background work: it never ends by itself."""


class RoomParts:
    """The parts of one room. A room overrides what it has: background work, something to close, settings that it keeps.

    Most parts read a setting at each use and need nothing here when it changes.
    """

    __slots__ = ()

    def background(self) -> Iterable[Work]:
        """Return the work that runs from the start until the process ends."""
        return ()

    def background_on_store(self) -> Iterable[Work]:
        """Return the work that begins when the coordinator's store was checked, and runs until the process ends."""
        return ()

    async def close(self) -> None:
        """Close what the parts hold open. The background work has ended."""

    def take_settings(self, changed: Collection[str]) -> None:
        """Apply the settings that the parts keep. `changed` has the dotted paths of those that a reload has changed."""
