"""The interface of the registry of diskless topics, whatever store it is on."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from typing import NamedTuple, Protocol

from proxy.coordinator.interface import CoordinatorUnavailable

NO_TOPIC_ID = bytes(16)
"""Topic ID of a name that is only reserved."""
UNKNOWN_STATE = "unknown"
"""State of a topic that a newer release has put into a state of its own: it is neither served nor treated as
classic."""


@dataclass(frozen=True, slots=True)
class DisklessTopic:
    """One entry of the registry of diskless topics."""

    name: str
    topic_id: bytes
    """The topic's ID; zeros while the name is only reserved."""
    partitions: int
    state: str
    """`reserved` (the shadow topic may not exist yet), `live` or `deleting`; `unknown` if a newer release has put it
    into a state that this release does not know."""
    configs: dict[str, str] = field(default_factory=dict)
    """Topic configs that apply to data; the shadow topic does not have them."""
    owner: str = ""
    """Proxy that reserved the name, by the name of its record in the fleet."""


NO_MARK = bytes(8)
"""Mark of a change whose mark is unknown."""


class RegistryChange(NamedTuple):
    """One change of the registry.

    The version alone is not enough: after a failover that lost a change, another change gets the same version.
    """

    version: int
    mark: bytes = NO_MARK
    """8 random bytes."""


NO_CHANGE = RegistryChange(-1)
"""Newest change of a process that has loaded nothing."""


@dataclass(frozen=True, slots=True)
class RegistrySnapshot:
    """All diskless topics at one version."""

    version: int
    topics: tuple[DisklessTopic, ...]
    mark: bytes = field(default=NO_MARK, compare=False)
    """Mark of the change that led to this version."""
    why_fenced: str = ""
    """Reason why no proxy may change the registry: it has lost changes. Empty if it has not, or if an operator accepted
    that."""

    @property
    def change(self) -> RegistryChange:
        """The change that led to this version."""
        return RegistryChange(self.version, self.mark)


class TopicReserved(Exception):
    """The name is already in the registry."""


class TopicNotReserved(CoordinatorUnavailable):
    """A topic can't be made live: its reservation is gone, it is being deleted, or it is live under another ID."""


class RegistryChanged(Exception):
    """The registry has changed since it was read, or the topic is not live: read it again."""


class TopicRegistry(Protocol):
    """The one authority on which topics are diskless. Every method may raise CoordinatorUnavailable.

    Each change raises the version by one and is announced; `load` of any proxy sees it at once.
    """

    def expect_identity(self, identity: str) -> None:
        """Set the name of the store (32 hex digits): known changes are not held against a store of another name."""

    async def load(self, known: RegistryChange = NO_CHANGE) -> RegistrySnapshot:
        """Return everything, at its version. If the registry does not have the `known` change, it is fenced."""

    async def newest_change(self) -> RegistryChange:
        """Return the newest change, and read nothing else."""

    async def reserve(self, name: str, partitions: int, configs: dict[str, str], owner: str) -> int:
        """Reserve the name before its shadow topic exists; return the version to wait for. Raises TopicReserved."""

    async def activate(self, name: str, topic_id: bytes, partitions: int) -> int:
        """Make the topic usable, as its shadow exists under this ID and its logs exist; return the version with that.

        Also changes the number of partitions of a live topic. May be repeated. Raises TopicNotReserved.
        """

    async def configure(self, name: str, read: RegistryChange, configs: dict[str, str]) -> int:
        """Replace the configs of a live topic, as they were read at that change. Raises RegistryChanged."""

    async def begin_delete(self, name: str, topic_id: bytes = b"") -> int:
        """Make the topic `deleting`: no new batch is accepted. No error if the name is unknown. May be repeated.

        If a topic ID is given and the name has another one by now, nothing is changed.
        """

    async def remove(self, name: str, topic_id: bytes = b"", owner: str = "") -> int:
        """Remove the name: a reservation that failed, or a topic whose logs have been deleted. May be repeated.

        As for `begin_delete`; the topic ID of a reservation is NO_TOPIC_ID. If an owner is given and the name was
        reserved by another one, nothing is changed.
        """

    async def belongs_to(self, cluster_id: str) -> bool:
        """Return whether the topics are those of that Kafka cluster: the first that was ever named. May be repeated."""

    def changes(self) -> AsyncIterator[RegistryChange]:
        """Changes as they come, forever; also once after each reconnect."""
