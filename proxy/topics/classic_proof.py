"""Proof, by the journal, that topics are classic while the coordinator's store is away.

A creator of a diskless topic appends the reservation of its name to the journal before the placeholder topic exists. So
if a broker has an ID for a name, and the registry does not have the name after that, the ID is a classic topic's. IDs
never become another topic's, so the proof holds forever; how long a name stands for an ID is for `classic.py` to say.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Sequence

from proxy.brokers.broker_metadata import Ask, named_topics
from proxy.brokers.upstream import BrokerUnreachable
from proxy.coordinator.fleet_lease import FleetLease
from proxy.coordinator.interface import CoordinatorUnavailable
from proxy.coordinator.interface_registry import RegistrySnapshot
from proxy.process.turns import Turns
from proxy.process.waiting import wait_at_most
from proxy.protocol.errors import NONE
from proxy.telemetry.throttled_log import ThrottledLog
from proxy.topics.classic import TopicReference
from proxy.topics.topics import Topics
from proxy.wire.errors import ProtocolError
from proxy.wire.metadata import MetadataTopic

_EVERY_S = 0.5
_PAUSE_S = 0.05
"""Least time between two proofs: clients that use topics which do not exist cost no more."""
_TOPICS_AT_A_TIME = 100
_MOST_TOPICS = 50_000
"""Topics of a cluster that are proved before a client uses them; others are proved at their first use."""
_ENDS_SOON = 1 / 2
"""Share of the lease: if so little of it is left, heartbeats fail."""


class ClassicProof:
    """Proves all topics when the lease ends, and later those that clients use and nothing is known of."""

    def __init__(
        self,
        topics: Topics,
        lease: FleetLease,
        *,
        lease_ms: int,
        ask: Ask,
        read_registry: Callable[[], Awaitable[RegistrySnapshot]],
        turns: Turns,
    ) -> None:
        """`ask`: `ServiceConnection.ask`; `read_registry` returns the registry with all changes before the call."""
        self._topics = topics
        self._lease = lease
        self._lease_ms = lease_ms
        self._ask = ask
        self._read_registry = read_registry
        self._turns = turns
        self._all_proved = False
        """True if all topics were proved since the lease ended."""
        self._throttled_log = ThrottledLog(time.monotonic)

    async def follow(self) -> None:
        """Prove topics whenever the lease is out, forever."""
        unknown = self._topics.classic.unknown
        while True:
            await wait_at_most(unknown, _EVERY_S)
            unknown.clear()
            try:
                await self.step()
            except (BrokerUnreachable, CoordinatorUnavailable, ProtocolError) as error:
                self._throttled_log.warning("topics_not_proved", reason=str(error))
            await asyncio.sleep(_PAUSE_S)

    async def step(self) -> None:
        """Prove what is due. Raises BrokerUnreachable, CoordinatorUnavailable and ProtocolError."""
        if self._lease.left_ms() > self._lease_ms * _ENDS_SOON:
            self._all_proved = False
        elif not self._all_proved:
            await self.prove_all()
        elif wanted := self._topics.classic.wanted(_TOPICS_AT_A_TIME):
            for kind in (str, bytes):
                if references := [one for one in wanted if isinstance(one, kind)]:
                    await self._prove(references)

    async def prove_all(self) -> None:
        """Prove all topics that the brokers show to the proxy. Raises as `step`."""
        await self._prove(None)
        self._all_proved = True

    async def _prove(self, references: Sequence[TopicReference] | None) -> None:
        """Prove topics; all for None. The brokers are asked first: a topic that is created later has no proof."""
        classic = self._topics.classic
        asked_s = classic.now()
        answered = await named_topics(self._ask, references, self._turns)
        found = [
            one for one in answered if one.error_code == NONE and one.name is not None and any(one.topic_id or b"")
        ]
        if not found and references is not None:
            return
        registry = await self._read_registry()
        self._topics.take(registry)
        diskless = {topic.name for topic in registry.topics}
        for topic in found[:_MOST_TOPICS]:
            self._take(topic, diskless, asked_s)

    def _take(self, topic: MetadataTopic, diskless: set[str], asked_s: float) -> None:
        name, topic_id = topic.name, topic.topic_id
        assert name is not None
        assert topic_id is not None
        if name in diskless or self._topics.find(name) is not None or self._topics.find(topic_id) is not None:
            return
        self._topics.classic.prove(topic_id, topic_id, asked_s=asked_s)
        self._topics.classic.prove(name, topic_id, asked_s=asked_s)
