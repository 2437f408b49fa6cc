"""DescribeLogDirs (API key 35): diskless partitions are in one more log directory, which is the object storage.

Behaviour: the broker answers, with the client's rights. Its log directories come without the shadow topics, whose
empty logs would pass for the topics' own. The broker that leads diskless partitions for this client, as Metadata says
(it is their only replica), has a log directory more, named as `storage.url`, with those partitions and the bytes that
their live records take there. So over all brokers each diskless byte is counted once, as object storage keeps it once.
On the bootstrap port, where no broker was chosen, all of them are reported.

Version notes: v1 is v0; v3 has an error of the whole; v4 (KIP-827) the size of the volume, which is -1, unknown, here.

The answer of a broker with very many partitions is rewritten in turns with other work.
"""

from __future__ import annotations

from collections.abc import Coroutine, Mapping
from typing import Any

from proxy.client.client import Client
from proxy.client.request import Request
from proxy.client.slots import Slot
from proxy.config import Storage
from proxy.coordinator.interface import Coordinator, CoordinatorUnavailable
from proxy.coordinator.interface_registry import DisklessTopic
from proxy.process.turns import Turns
from proxy.protocol.errors import KAFKA_STORAGE_ERROR, NONE
from proxy.routing.addresses import Addresses
from proxy.telemetry.throttled_log import ThrottledLog
from proxy.topics.topics import Topics
from proxy.wire.log_dirs import LogDir, has_directories, read_partitions, rewrite_log_dirs
from proxy.wire.partition_leaders import Leaders, ReplicaLeaders, SoleLeader
from proxy.wire.steps import AT_A_TIME, LARGE_BYTES, Pace, Steps, at_once

Wanted = Mapping[str, tuple[DisklessTopic, tuple[int, ...]]]
"""Diskless topics by name, and which of their partitions."""
_TOPIC = 8
"""Number of partitions that the search for a topic counts as."""
_DESCRIBED_AT_ONCE = 500
"""Partitions of one request to the coordinator."""


class DescribeLogDirs:
    """Handler of DescribeLogDirs."""

    def __init__(
        self,
        storage: Storage,
        *,
        topics: Topics,
        addresses: Addresses,
        coordinator: Coordinator,
        turns: Turns,
        throttled_log: ThrottledLog,
    ) -> None:
        self._storage = storage
        self._topics = topics
        self._addresses = addresses
        self._coordinator = coordinator
        self._turns = turns
        self._throttled_log = throttled_log

    def describe_log_dirs(self, client: Client, request: Request) -> Coroutine[Any, Any, None] | None:
        """Forward what is about no diskless topic."""
        if not self._topics.all():
            client.forward(request)
            return None
        if len(request.body) > LARGE_BYTES:
            return self._describe(client, request, client.open_slot(request), None)
        asked = read_partitions(request.body, request.api_version)
        if asked is None:
            return self._describe(client, request, client.open_slot(request), None)
        wanted = at_once(self._wanted(asked))
        if not wanted:
            client.forward(request)
            return None
        return self._describe(client, request, client.open_slot(request), wanted)

    async def _describe(self, client: Client, request: Request, slot: Slot, wanted: Wanted | None) -> None:
        """The broker's directories, then the object storage. Raises BrokerUnreachable and ProtocolError.

        What is `wanted` is read first from a request that may be large.
        """
        turns, version = self._turns, request.api_version
        if wanted is None:
            asked = await turns.do(read_partitions.steps(request.body, version))
            wanted = await turns.do(self._wanted(asked))
            if not wanted:
                client.forward_opened(request, slot, None)
                return
        body = await client.ask(request, request.api_key, version, [request.body])
        # An administrator without the right to describe the cluster gets no directory (before v3), or the error.
        if not has_directories(body, version):
            slot.fill([body])
            return
        led = await turns.do(self._led_here(client, request, wanted))
        slot.fill(await turns.do(rewrite_log_dirs.steps(body, version, wanted, await self._object_storage(led))))

    def _wanted(self, asked: Mapping[str, list[int]] | None) -> Steps[Wanted]:
        """Return the diskless topics of a request; all of them if it names no topics."""
        topics, pace, wanted = self._topics, Pace(), dict[str, tuple[DisklessTopic, tuple[int, ...]]]()
        if asked is None:
            asked = {entry.name: list(range(entry.partitions)) for entry in topics.all()}
        for name, partitions in asked.items():
            if pace.pauses(_TOPIC):
                yield
            entry = topics.find(name)
            if entry is None:
                continue
            once = dict[int, None]()
            for start in range(0, len(partitions), AT_A_TIME):
                some = partitions[start : start + AT_A_TIME]
                once |= dict.fromkeys(index for index in some if 0 <= index < entry.partitions)
                if pace.pauses(len(some)):
                    yield
            wanted[name] = entry, tuple(once)
        return wanted

    def _led_here(self, client: Client, request: Request, wanted: Wanted) -> Steps[Wanted]:
        """Return the partitions that the broker of this port leads for this client; all on the bootstrap port."""
        node_id = client.session.node_id
        leaders = None
        if node_id is not None:
            leaders = self._addresses.diskless_leaders(client.session, request.client_id, metadata=False)
            if leaders is None:
                return {}
        pace, led = Pace(), dict[str, tuple[DisklessTopic, tuple[int, ...]]]()
        for name, (entry, indexes) in wanted.items():
            if pace.pauses(_TOPIC):
                yield
            if entry.state != "live":
                continue
            here: list[int] = []
            for start in range(0, len(indexes), AT_A_TIME):
                some = indexes[start : start + AT_A_TIME]
                here += [one for one in some if leaders is None or _leader_of(leaders, name, one) == node_id]
                if pace.pauses(len(some)):
                    yield
            if here:
                led[name] = entry, tuple(here)
        return led

    async def _object_storage(self, led: Wanted) -> LogDir | None:
        """Return the log directory for object storage; None if it would be empty."""
        if not led:
            return None
        topics = dict[str, list[tuple[int, int]]]()
        try:
            for name, (entry, indexes) in led.items():
                sizes = topics[name] = []
                for start in range(0, len(indexes), _DESCRIBED_AT_ONCE):
                    some = indexes[start : start + _DESCRIBED_AT_ONCE]
                    described = await self._coordinator.describe(entry.topic_id, some)
                    sizes += [
                        (index, one.size_bytes) for index, one in zip(some, described, strict=True) if one is not None
                    ]
        except CoordinatorUnavailable as error:
            self._throttled_log.warning("sizes_unavailable", reason=str(error))
            return LogDir(KAFKA_STORAGE_ERROR, self._storage.url, {})
        return LogDir(NONE, self._storage.url, topics)


def _leader_of(leaders: Leaders, topic: str, partition: int) -> int:
    if isinstance(leaders, SoleLeader):
        return leaders.leader
    # Which replicas a partition has is not known here: any one broker will do, as long as it is one.
    return leaders.preferred if isinstance(leaders, ReplicaLeaders) else leaders.leader_of(topic, partition)
