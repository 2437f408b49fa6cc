"""The storage process of a proxy with several workers, as its processes know it."""

from __future__ import annotations

from typing import NamedTuple

STORAGE_PROCESS = 0
"""Number of the storage process among the workers of a proxy."""


class Sharing(NamedTuple):
    """The storage process of a proxy with workers, as one of these processes sees it."""

    name: str
    """Name of its socket, in the abstract namespace: nothing is left of it when the process ends."""
    is_storage: bool
    """Whether this process is the storage process."""

    @property
    def address(self) -> str:
        """The address of the socket."""
        return f"\0{self.name}"
