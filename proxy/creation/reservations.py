"""Names that are reserved for diskless topics until the topic is opened or the reservation undone; and deletions.

The brokers' answer settles a reservation. If the shadow topic exists, the diskless topic is opened. If it does not
exist, the name is free again. The owner settles at once if the brokers have answered it. Otherwise, or if the owner has
died, another proxy settles later. It waits because the shadow may still appear: the controller may carry out the
creation until `fleet.create_topic_timeout_ms` is over, and some brokers may learn of it before others. Both ways may be
repeated, and may race: opening gives the same logs and the same entry, and undoing names the owner of the reservation.

The owner may have died before it looked whether the name is free. So a topic that was created without a proxy is
distinguished from a placeholder by its configs, if the proxy's principal may read them.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import structlog

from proxy import config
from proxy.brokers.cluster import Cluster
from proxy.brokers.service import ServiceConnection
from proxy.brokers.upstream import BrokerUnreachable
from proxy.coordinator.interface import Coordinator, CoordinatorUnavailable
from proxy.coordinator.interface_registry import NO_TOPIC_ID, DisklessTopic, TopicNotReserved
from proxy.creation.placeholder import is_placeholder
from proxy.diskless.coordinates import Coordinates
from proxy.protocol.api_keys import METADATA
from proxy.protocol.errors import NONE, TOPIC_AUTHORIZATION_FAILED, UNKNOWN_TOPIC_OR_PARTITION
from proxy.routing.fleet import Fleet
from proxy.topics.topics import Topics
from proxy.wire.errors import ProtocolError
from proxy.wire.metadata import MetadataTopic, build_metadata_request, metadata_topics

log = structlog.get_logger()

_METADATA_VERSION = 12
_NOT_THERE = (UNKNOWN_TOPIC_OR_PARTITION, 17)
"""17 is INVALID_TOPIC_EXCEPTION: a name that no topic can have."""
_SETTLE_POLL_S = 0.25
_SWEEP_S = 2.0


class Reservations:
    """Opens, undoes and settles reservations."""

    def __init__(
        self,
        settings: config.Fleet,
        *,
        topics: Topics,
        coordinator: Coordinator,
        coordinates: Coordinates,
        fleet: Fleet,
        cluster: Cluster,
        now: Callable[[], float],
    ) -> None:
        """`now`: monotonic seconds."""
        self._settings = settings
        self._topics = topics
        self._coordinator = coordinator
        self._coordinates = coordinates
        self._fleet = fleet
        self._cluster = cluster
        self._now = now
        self._orphaned_since_s: dict[tuple[str, str], float] = {}
        """Time since which a reservation has no owner, by name and owner."""
        self._under_way: set[str] = set()
        self._left: dict[str, bool] = {}
        """Reservations that this proxy could not finish, which no other proxy settles as long as their owner lives; and
        whether the placeholder topic was surely never created, so that a topic of that name is another one."""

    async def open(self, name: str, topic_id: bytes, partitions: int, *, known_before: bool = False) -> None:
        """Make the logs and let the topic be used. Raises CoordinatorUnavailable; TopicNotReserved where it may not be
        any more.

        `known_before`: the topic may have been open before a loss that was accepted, and so had records.
        """
        known = self._topics.find(topic_id)
        growing = known_before or (known is not None and known.state == "live")
        await self._coordinator.create_logs(topic_id, range(partitions), growing=growing)
        try:
            await self._topics.registry.activate(name, topic_id, partitions)
        except TopicNotReserved:
            await self._coordinator.delete_logs(topic_id, range(partitions))
            raise
        await self._topics.load()
        log.info("diskless_topic_created", topic=name, partitions=partitions)

    async def undo(self, name: str, owner: str | None = None) -> None:
        """Let go of a reserved name whose shadow surely does not exist; what can't be undone now is settled later.

        `owner`: whose reservation it is; this proxy's where None. Another one's of the same name stays.
        """
        try:
            # By the ID that a reservation has: another proxy may have opened it meanwhile.
            identity = self._fleet.identity
            await self._topics.registry.remove(name, NO_TOPIC_ID, identity if owner is None else owner)
            await self._topics.load()
        except CoordinatorUnavailable as error:
            self.leave(name, never_made=True)
            log.warning("reservation_left", topic=name, reason=str(error), remedy="none; it is settled later")

    async def forget(self, topic: DisklessTopic) -> None:
        """End a topic whose shadow is gone: no batch is accepted any more, its logs go, then its entry.

        May be repeated, and leaves a topic alone that has another ID by now. Raises CoordinatorUnavailable.
        """
        await self._topics.registry.begin_delete(topic.name, topic.topic_id)
        await self._topics.load()
        if any(topic.topic_id):
            now = self._topics.find(topic.topic_id)  # it may have grown
            partitions = max(topic.partitions, now.partitions if now is not None else 0)
            await self._coordinator.delete_logs(topic.topic_id, range(partitions))
        await self._topics.registry.remove(topic.name, topic.topic_id)
        await self._topics.load()
        self._coordinates.forget(topic.topic_id)

    def begin(self, name: str) -> bool:
        """Whether this process may begin to reserve or settle a name: nothing of it does so now. `end` follows."""
        if name in self._under_way:
            return False
        self._under_way.add(name)
        return True

    def end(self, name: str) -> None:
        """Note that the work that `begin` began is over."""
        self._under_way.discard(name)

    def leave(self, name: str, *, never_made: bool = False) -> None:
        """Settle a reservation, or a topic that has not grown with its shadow, later.

        `never_made`: the shadow surely was not, so the reservation is undone whatever topic has its name by then.
        """
        self._left[name] = never_made

    def take_up(self, name: str) -> None:
        """Note that the name is reserved again, and drop the rest of an earlier attempt."""
        self._left.pop(name, None)

    async def shadow(self, name: str, connection: ServiceConnection | None = None) -> MetadataTopic | None:
        """The shadow topic as a broker knows it; None where it doesn't. `connection`: to which; any where None.

        Raises ProtocolError, and BrokerUnreachable also where it doesn't say: a topic that the proxy's own principal
        may not see is not one that is not there.
        """
        body = await (connection or self._cluster.service).ask(
            METADATA, _METADATA_VERSION, build_metadata_request(_METADATA_VERSION, [name])
        )
        found = next((topic for topic in metadata_topics(body, _METADATA_VERSION) if topic.name == name), None)
        if found is None or found.error_code in _NOT_THERE:
            return None
        if found.error_code == TOPIC_AUTHORIZATION_FAILED:
            raise BrokerUnreachable(f"the proxy's principal may not see topic {name}; allow it Describe on all topics")
        if found.error_code != NONE:
            raise BrokerUnreachable(f"the brokers answer error {found.error_code} for topic {name}")
        return found

    async def shadow_anywhere(self, name: str) -> MetadataTopic | None:
        """Do the same as `shadow` on each live broker, until one knows it: they learn about topics one after the
        other."""
        for node_id in self._live():
            if (found := await self._shadow_at(node_id, name)) is not None:
                return found
        return None

    async def shadows(self, name: str) -> dict[bytes | None, MetadataTopic | None]:
        """Return the topics that live brokers know under the name, by ID; None stands for a broker that knows none.

        A broker that lags behind may still know a deleted topic of that name, so only a single entry is certain. Raises
        as `shadow`.
        """
        known: dict[bytes | None, MetadataTopic | None] = {}
        for node_id in self._live():
            found = await self._shadow_at(node_id, name)
            topic_id = None if found is None else found.topic_id
            before = known.get(topic_id)
            if before is None or found is None or before.partition_count < found.partition_count:
                known[topic_id] = found
        return known

    async def is_another(self, name: str) -> bool:
        """Return whether the topic of that name is surely no placeholder. Raises BrokerUnreachable, ProtocolError."""
        return await is_placeholder(self._cluster.service, name) is False

    def _live(self) -> list[int]:
        """Raises BrokerUnreachable if no broker is known."""
        if not self._cluster.view.brokers:
            raise BrokerUnreachable("no broker is known")
        return sorted(self._cluster.view.brokers)

    async def _shadow_at(self, node_id: int, name: str) -> MetadataTopic | None:
        connection = self._cluster.connection_to(node_id)
        try:
            return await self.shadow(name, connection)
        finally:
            connection.close()

    async def settle(self, name: str, wait_s: float, topic_id: bytes | None = None) -> bool:
        """Open the topic if its shadow exists, and return whether it does. The brokers get `wait_s` to learn of it.

        `topic_id`: the ID of the shadow; if it is not known, all live brokers must know the same topic of that name.

        Raises BrokerUnreachable, ProtocolError, CoordinatorUnavailable: it stays reserved, as it does on False.
        """
        for attempt in range(1 + int(wait_s / _SETTLE_POLL_S)):
            if attempt:
                await asyncio.sleep(_SETTLE_POLL_S)
            known = await self.shadows(name)
            shadow = _only(known) if topic_id is None else known.get(topic_id)
            if topic_id is None and shadow is not None and await self.is_another(name):
                return False
            if shadow is not None and shadow.topic_id is not None:
                await self.open(name, shadow.topic_id, shadow.partition_count)
                return True
        return False

    async def keep_settling(self) -> None:
        """Settle, forever, reservations of proxies that have left the fleet, and own ones that nothing works on.

        A registry whose loss was accepted may have a reservation again that this proxy had finished.
        """
        while True:
            await asyncio.sleep(_SWEEP_S)
            now_s, fleet_settings = self._now(), self._settings
            lease_s, late_s = fleet_settings.lease_ms / 1000, fleet_settings.create_topic_timeout_ms / 1000
            fleet, own = self._fleet.records, self._fleet.identity
            orphaned = {
                topic.name: topic
                for topic in self._topics.all()
                if (topic.state == "reserved" and topic.owner not in fleet)
                or (topic.state == "reserved" and topic.owner == own and topic.name not in self._under_way)
                or (topic.state == "live" and topic.name in self._left)
            }
            self._orphaned_since_s = {
                (name, topic.owner): self._orphaned_since_s.get((name, topic.owner), now_s)
                for name, topic in orphaned.items()
            }
            for (name, _), since_s in self._orphaned_since_s.items():
                if now_s - since_s < lease_s or not self.begin(name):
                    continue
                try:
                    await self._settle_left(orphaned[name], may_undo=now_s - since_s >= lease_s + late_s)
                except TopicNotReserved as error:
                    self._left.pop(name, None)
                    log.warning("reservation_not_settled", topic=name, reason=str(error))
                except (BrokerUnreachable, ProtocolError, CoordinatorUnavailable) as error:
                    log.warning("reservation_not_settled", topic=name, reason=str(error))
                finally:
                    self.end(name)

    async def _settle_left(self, topic: DisklessTopic, *, may_undo: bool) -> None:
        """Raises BrokerUnreachable, ProtocolError, CoordinatorUnavailable: it is tried again."""
        never_made = topic.owner == self._fleet.identity and self._left.get(topic.name, False)
        known = {} if never_made else await self.shadows(topic.name)
        if topic.state == "live":
            # One that did not grow with its shadow; where that is gone or another one, `housekeeping/shadows.py` acts.
            if (grown := known.get(topic.topic_id)) is not None:
                await self.open(topic.name, topic.topic_id, grown.partition_count)
            self._left.pop(topic.name, None)
            return
        shadow = _only(known)
        if shadow is not None and await self.is_another(topic.name):
            self._left.pop(topic.name, None)
            await self.undo(topic.name, topic.owner)
            log.warning(
                "reservation_undone",
                topic=topic.name,
                reason="a topic that was not created through a proxy has the name",
                remedy="none; it is a classic topic",
            )
            return
        if shadow is not None and shadow.topic_id is not None:
            await self.open(topic.name, shadow.topic_id, shadow.partition_count, known_before=True)
            self._left.pop(topic.name, None)
        elif len(known) > 1:
            return  # a broker lags behind: the one with the shadow, or one that still knows a deleted topic of the name
        elif may_undo or never_made:
            self._left.pop(topic.name, None)
            await self.undo(topic.name, topic.owner)  # may leave it again
        else:
            return
        log.warning(
            "reservation_settled", topic=topic.name, reason="the proxy that reserved the name has ended, or failed"
        )


def _only(known: dict[bytes | None, MetadataTopic | None]) -> MetadataTopic | None:
    """Return the topic that all brokers know; None if they know none, or differ."""
    return next(iter(known.values())) if len(known) == 1 else None
