"""Names that are reserved for diskless topics, on their way to be opened or undone.

A reservation is settled by what the brokers say: the shadow topic exists, so the diskless topic is opened; or it does
not, so the name is free again. Its owner does that at once; when the owner is gone, any proxy does it later. Both ways
may be repeated and raced: opening gives the same logs and the same entry.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import structlog

from proxy.cluster import METADATA
from proxy.coordinator.interface import NO_TOPIC_ID, CoordinatorUnavailable
from proxy.coordinator.registry import TopicNotReserved
from proxy.errors import NONE, TOPIC_AUTHORIZATION_FAILED, UNKNOWN_TOPIC_OR_PARTITION
from proxy.upstream import BrokerUnreachable
from proxy.wire.errors import ProtocolError
from proxy.wire.metadata import MetadataTopic, build_metadata_request, metadata_topics

if TYPE_CHECKING:
    from proxy.context import Context

log = structlog.get_logger()

_METADATA_VERSION = 12
_NOT_THERE = (UNKNOWN_TOPIC_OR_PARTITION, 17)
"""17 is INVALID_TOPIC_EXCEPTION: a name that no topic can have."""
_SETTLE_POLL_S = 0.25
_SWEEP_S = 2.0


class Reservations:
    """Opens, undoes and settles reservations."""

    def __init__(self, context: Context) -> None:
        self._context = context
        self._orphaned_since_s: dict[str, float] = {}
        self._left: set[str] = set()
        """What this proxy could not see through: nobody else settles it as long as its owner lives."""

    async def open(self, name: str, topic_id: bytes, partitions: int) -> None:
        """Make the logs and let the topic be used. Raises CoordinatorUnavailable."""
        await self._context.coordinator.create_logs(topic_id, range(partitions))
        await self._context.topics.registry.activate(name, topic_id, partitions)
        await self._context.topics.load()
        log.info("diskless_topic_created", topic=name, partitions=partitions)

    async def undo(self, name: str) -> None:
        """Let go of a reserved name whose shadow surely does not exist; what can't be undone now is settled later."""
        try:
            # By the ID that a reservation has: another proxy may have opened it meanwhile.
            await self._context.topics.registry.remove(name, NO_TOPIC_ID)
            await self._context.topics.load()
        except CoordinatorUnavailable as error:
            self.leave(name)
            log.warning("reservation_left", topic=name, reason=str(error), remedy="none: it is settled later")

    def leave(self, name: str) -> None:
        """Settle a reservation, or a topic that has not grown with its shadow, later."""
        self._left.add(name)

    def take_up(self, name: str) -> None:
        """The name is reserved anew: what was left of an earlier attempt is over."""
        self._left.discard(name)

    async def shadow(self, name: str) -> MetadataTopic | None:
        """The shadow topic as the brokers know it; None where they don't.

        Raises ProtocolError, and BrokerUnreachable also where they don't say: a topic that the proxy's own principal
        may not see is not one that is not there.
        """
        body = await self._context.cluster.service.ask(
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

    async def settle(self, name: str, wait_s: float) -> None:
        """Open or undo, after giving the brokers `wait_s` to have heard of the shadow.

        Raises BrokerUnreachable, ProtocolError, CoordinatorUnavailable: it stays reserved.
        """
        shadow = await self.shadow(name)
        for _ in range(int(wait_s / _SETTLE_POLL_S)):
            if shadow is not None:
                break
            await asyncio.sleep(_SETTLE_POLL_S)
            shadow = await self.shadow(name)
        if shadow is not None and shadow.topic_id is not None:
            await self.open(name, shadow.topic_id, shadow.partition_count)
        else:
            await self.undo(name)

    async def keep_settling(self) -> None:
        """Settle, for ever, what proxies left behind that are no longer in the fleet, and what this one left."""
        while True:
            await asyncio.sleep(_SWEEP_S)
            now_s, lease_s = self._context.now(), self._context.settings.fleet.lease_ms / 1000
            fleet, own = self._context.fleet.records, self._context.fleet.identity
            orphaned = {
                topic.name
                for topic in self._context.topics.all()
                if (topic.state == "reserved" and topic.owner not in fleet)
                or (topic.state == "reserved" and topic.owner == own and topic.name in self._left)
                or (topic.state == "live" and topic.name in self._left)
            }
            self._orphaned_since_s = {name: self._orphaned_since_s.get(name, now_s) for name in orphaned}
            for name, since_s in self._orphaned_since_s.items():
                if now_s - since_s < lease_s:
                    continue
                try:
                    self._left.discard(name)  # before: `undo` may leave it again
                    await self.settle(name, 0.0)
                    log.warning(
                        "reservation_settled", topic=name, reason="the proxy that reserved it is gone, or failed"
                    )
                except TopicNotReserved as error:
                    log.warning("reservation_not_settled", topic=name, reason=str(error))
                except (BrokerUnreachable, ProtocolError, CoordinatorUnavailable) as error:
                    self.leave(name)
                    log.warning("reservation_not_settled", topic=name, reason=str(error))
