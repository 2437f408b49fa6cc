"""A mapping that keeps what was noted last, so that what clients can make up does not grow without end."""

from __future__ import annotations

from collections import OrderedDict
from typing import Generic, TypeVar

Key = TypeVar("Key")
Value = TypeVar("Value")


class Newest(OrderedDict[Key, Value], Generic[Key, Value]):
    """The `most` entries that were noted last, oldest first."""

    def __init__(self, most: int) -> None:
        super().__init__()
        self._most = most

    def note(self, key: Key, value: Value) -> None:
        """Set an entry, which is the newest then; the oldest one goes if there are too many."""
        self[key] = value
        self.move_to_end(key)
        if len(self) > self._most:
            self.popitem(last=False)
