"""The diskless topics: this proxy's copy of the registry, by name and by topic ID.

Names are never judged by a guess: while the lease in the fleet runs, every name that is not in this copy is classic,
because a creator waits for this proxy before a diskless topic's placeholder topic exists. When the lease has run out,
only topics that were seen to be classic while it ran count as classic (`classic.py`).
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Iterable

import structlog

from proxy.coordinator.interface import CoordinatorUnavailable
from proxy.coordinator.interface_registry import (
    NO_CHANGE,
    NO_TOPIC_ID,
    UNKNOWN_STATE,
    DisklessTopic,
    RegistryChange,
    RegistrySnapshot,
    TopicRegistry,
)
from proxy.telemetry.throttled_log import ThrottledLog
from proxy.topics.classic import ClassicTopics, TopicReference

log = structlog.get_logger()

_RELOAD_PAUSE_S = 0.1


class Topics:
    """The registry as far as this proxy has loaded it."""

    def __init__(
        self,
        registry: TopicRegistry,
        *,
        lease_runs: Callable[[], bool],
        lease_number: Callable[[], int] = lambda: 0,
        names_max_age_s: float = 10.0,
        now: Callable[[], float] = time.monotonic,
    ) -> None:
        """`lease_number` returns another number after each break of the lease.

        `names_max_age_s` and `now`: see `ClassicTopics`.
        """
        self.registry = registry
        self.classic = ClassicTopics(now, max_age_s=names_max_age_s)
        """Topics that were seen to be classic."""
        self.change = NO_CHANGE
        """Newest change of the registry that is loaded."""
        self.gone_back = False
        """The registry has lost changes that some proxy knows: nothing is certain until an operator has looked."""
        self.remembered = NO_CHANGE
        """Newest change that any proxy is known to have seen, before this one has loaded any."""
        self.names_taken = 0
        """Number of loads of the registry that brought names which it did not have before."""
        self.state = object()
        """Replaced whenever `find` and `is_diskless` may answer otherwise than before."""
        self.any_diskless = False
        """True if the registry has an entry."""
        self._lease_runs = lease_runs
        self._lease_number = lease_number
        self._by_name: dict[str, DisklessTopic] = {}
        self._by_id: dict[bytes, DisklessTopic] = {}
        self._reserved: frozenset[str] = frozenset()
        """Names that are only reserved: their placeholder topics may exist, and have IDs that are not known yet."""
        self._taken = asyncio.Event()
        """Set, and replaced, when a newer registry is loaded."""
        self._streams: dict[object, tuple[RegistryChange, int]] = {}
        """Newest change and number of the lease at the beginning of each Produce that is under way."""
        self._throttled_log = ThrottledLog(time.monotonic)

    def begin_stream(self, stream: object) -> None:
        """A Produce that was judged by the present version goes to a broker in parts, until `end_stream`."""
        self._streams[stream] = self.change, self._lease_number()

    def end_stream(self, stream: object) -> bool:
        """Note that all of it has come, or never will; a stream without a noted beginning is ignored.

        Return whether the judgement of its beginning still holds: the lease has run since then, so no creator of a
        diskless topic has passed this proxy over.
        """
        _, number = self._streams.pop(stream, (None, None))
        return self.is_current and number == self._lease_number()

    @property
    def version(self) -> int:
        """Version of the registry that is loaded; -1 before the first load."""
        return self.change.version

    @property
    def obeyed(self) -> RegistryChange:
        """Return the newest change that all requests under way have seen, which creators of diskless topics wait
        for."""
        return min([self.change, *(change for change, _ in self._streams.values())], key=lambda one: one.version)

    @property
    def loaded(self) -> bool:
        """Return whether the registry was ever read."""
        return self.version >= 0

    @property
    def nothing_diskless(self) -> bool:
        """Certain, at this moment, that every topic is classic."""
        return not self.gone_back and not self.any_diskless and self.loaded and self._lease_runs()

    def find(self, topic: TopicReference) -> DisklessTopic | None:
        """Return the diskless topic of that name or ID; None if it is classic or unknown."""
        return self._by_name.get(topic) if isinstance(topic, str) else self._by_id.get(topic)

    @property
    def is_current(self) -> bool:
        """True if changes of the registry reach this proxy within the lease: others still wait for it."""
        return not self.gone_back and self._lease_runs()

    def is_diskless(self, name: str | None, topic_id: bytes | None) -> bool:
        """Return whether the name or the ID is diskless; a name for which the brokers have another ID is of a newer
        topic.

        This proxy has not heard of that topic, and can't say that it is diskless.
        """
        if name is None:
            return topic_id in self._by_id
        entry = self._by_name.get(name)
        if entry is None or not topic_id or NO_TOPIC_ID in (topic_id, entry.topic_id):
            return entry is not None
        return entry.topic_id == topic_id

    def surely_classic(self, topic: TopicReference) -> bool:
        """Return whether records of a topic that `find` does not know may go to the brokers.

        A topic ID that comes up first while a name is reserved may be that very placeholder topic's: not sure. If the
        registry has gone back, no name is sure: a topic may have been recreated as diskless.
        """
        if (self.gone_back and isinstance(topic, str)) or self.may_be_a_shadow(topic):
            return False
        return self.is_read_as_classic(topic)

    def is_read_as_classic(self, topic: TopicReference) -> bool:
        """Return whether the brokers may be asked about a topic that `find` does not know.

        Else it may be a diskless topic's shadow, whose empty log is OFFSET_OUT_OF_RANGE for every position. While the
        lease runs a shadow that is not known yet belongs to a topic that is not live, and so has no positions.
        """
        if self.gone_back or not self._lease_runs():
            return self.classic.holds(topic)
        if not self.may_be_a_shadow(topic):
            self.classic.note(topic)
        return True

    def may_be_a_shadow(self, topic: TopicReference) -> bool:
        """Return whether it is a topic ID that has come up first while a name is reserved."""
        return bool(self._reserved) and isinstance(topic, bytes) and not self.classic.was_noted(topic)

    async def settle_ids(self, topic_ids: Iterable[bytes]) -> None:
        """Wait until it is certain which of these IDs, which `may_be_a_shadow`, are diskless; the others are classic.

        They exist already, so they can't be of names that are reserved later: these are not waited for.
        """
        names = self._reserved if self.is_current else frozenset()
        while names & self._reserved:
            await self._taken.wait()
        for topic_id in topic_ids:
            if names and self.is_current and self.find(topic_id) is None:
                self.classic.note(topic_id)

    def pass_while_leased(self, topic: TopicReference) -> bool:
        """Return whether a topic is certainly classic at this moment, by the lease, and keep it if so.

        The same as `nothing_diskless` and `passed`, or `is_current`, `find` and `surely_classic`, in one look.
        """
        lease_runs = self._lease_runs
        if self.gone_back or not lease_runs():
            return False
        if self.any_diskless and (topic in self._by_name or topic in self._by_id or self.may_be_a_shadow(topic)):
            return False
        self.classic.note(topic)
        return True

    def passed(self, topic: TopicReference) -> None:
        """Note that a request of a topic went to the brokers while every topic was classic, and keep it if that still
        holds."""
        if topic not in self._by_name and topic not in self._by_id:
            self.is_read_as_classic(topic)

    def all(self) -> tuple[DisklessTopic, ...]:
        """Every entry."""
        return tuple(self._by_name.values())

    def live_logs(self) -> list[tuple[bytes, int]]:
        """Topic ID and partition of every log of a live topic."""
        return [
            (topic.topic_id, index)
            for topic in self.all()
            if topic.state == "live"
            for index in range(topic.partitions)
        ]

    async def load(self) -> None:
        """Read the registry. Raises CoordinatorUnavailable.

        The newest change that this proxy knows is reported with it: a registry that does not have that change is fenced
        for all proxies. From a fenced registry nothing is taken, unless nothing was loaded before.
        """
        known = max(self.remembered, self.change, key=lambda change: change.version)
        snapshot = await self.registry.load(known)
        if snapshot.why_fenced and not self.gone_back:
            self.gone_back = True
            log.critical(
                "registry_went_back",
                known_version=known.version,
                read_version=snapshot.version,
                reason=snapshot.why_fenced,
                remedy="the store has lost data; restore them, or accept the loss with `diskless-proxy "
                "coordinator unfence`",
            )
        elif self.gone_back and not snapshot.why_fenced:
            self.gone_back = False
            log.warning("registry_trusted_again", version=snapshot.version)
        if not self.gone_back or not self.loaded:
            self.take(snapshot)

    async def look_again(self) -> None:
        """Load newer changes, if the store answers: another proxy may already have answered a creation or a deletion
        that this proxy does not know. Never raises; costs next to nothing if nothing is newer."""
        try:
            if await self.registry.newest_change() != self.change:
                await self.load()
        except CoordinatorUnavailable as error:
            self._throttled_log.warning("registry_unreadable", reason=str(error))

    async def follow(self, acknowledge: Callable[[], Awaitable[None]]) -> None:
        """Load each change as it comes, forever, and acknowledge it to the fleet at once."""
        async for change in self.registry.changes():
            while change != self.change:
                try:
                    await self.load()
                    await acknowledge()
                    break
                except CoordinatorUnavailable as error:
                    log.warning("registry_unreadable", reason=str(error))
                    await asyncio.sleep(_RELOAD_PAUSE_S)

    def take(self, snapshot: RegistrySnapshot) -> None:
        """Replace this copy of the registry, unless it is newer."""
        if snapshot.version < self.version:
            return
        self.change = snapshot.change
        for topic in snapshot.topics:
            known = self._by_name.get(topic.name)
            if topic.state == UNKNOWN_STATE and (known is None or known.state != UNKNOWN_STATE):
                log.error(
                    "topic_of_newer_release",
                    topic=topic.name,
                    reason="its state in the registry is unknown to this release",
                    effect="this proxy does not serve it",
                    remedy="run the release that the other proxies run",
                )
        names = {topic.name: topic for topic in snapshot.topics}
        self.names_taken += bool(names.keys() - self._by_name.keys())
        self._by_name = names
        self.any_diskless = bool(names)
        self._by_id = {topic.topic_id: topic for topic in snapshot.topics if any(topic.topic_id)}
        self.state = object()
        self._reserved = frozenset(topic.name for topic in snapshot.topics if not any(topic.topic_id))
        self._taken.set()
        self._taken = asyncio.Event()
        no_longer: list[TopicReference] = [*self._by_name, *self._by_id]
        for reference in no_longer:
            self.classic.forget(reference)
