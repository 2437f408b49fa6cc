"""The journal on the Kafka brokers, as the coordinator uses it (`interface_journal.py`)."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from proxy.brokers.cluster import Cluster
from proxy.brokers.upstream import BrokerUnreachable
from proxy.config.journal import Journal as Settings
from proxy.coordinator.interface_journal import Appended, JournalRecord, JournalUnavailable
from proxy.journal.appends import Appends
from proxy.journal.connections import Connections
from proxy.journal.errors import JournalUnfit, TooFewBrokers
from proxy.journal.leaders import Leaders
from proxy.journal.messages import Topic
from proxy.journal.positions import KnownEnds
from proxy.journal.reads import Reads
from proxy.journal.topic import FoundTopic, check_topic, create_topic, find_topic, missing, topic_configs
from proxy.telemetry.stats import Stats
from proxy.wire.errors import ProtocolError


class _Opened:
    """The parts of a journal whose topic is known."""

    def __init__(self, found: FoundTopic, settings: Settings, cluster: Cluster, connections: Connections, stats: Stats):
        self.topic = Topic(settings.topic, found.topic_id)
        self.cluster_id = found.cluster_id
        leaders = Leaders(self.topic, cluster, connections)
        leaders.take(found.metadata)
        known = KnownEnds()
        self.appends = Appends(self.topic, settings, leaders, connections, known, stats)
        self.reads = Reads(self.topic, settings, leaders, connections, known)


class KafkaJournal:
    """A journal in a topic of the brokers. Call `open` first, and `close` at the end.

    An append whose outcome is unknown (`JournalUnavailable.appended`) can still take place after the error, even after
    later appends to its partition: its request may wait in the broker.
    """

    def __init__(self, settings: Settings, cluster: Cluster, *, partitions: int, stats: Stats) -> None:
        """`partitions`: one for each shard, and the last one for the registry."""
        self._settings = settings
        self._cluster = cluster
        self._partitions = partitions
        self._stats = stats
        self._connections = Connections(cluster, settings)
        self._opened: _Opened | None = None
        self._opening = asyncio.Lock()

    async def open(self, *, create_missing: bool = True) -> None:
        """Create the topic if it is missing, and check it. Does nothing if the journal is open.

        With `create_missing` false a missing topic is an error: a store that has a journal must not get an empty one.
        Raises JournalUnavailable if the brokers do not answer within the timeout or are too few, and JournalUnfit.
        """
        async with self._opening:
            if self._opened is None:
                self._opened = await self._open_topic(create_missing)

    async def _open_topic(self, create_missing: bool) -> _Opened:
        settings, loop = self._settings, asyncio.get_running_loop()
        deadline_s = loop.time() + settings.timeout_ms / 1000
        backoff_s = settings.retry_backoff_ms / 1000
        reason = ""
        while True:
            try:
                async with asyncio.timeout_at(deadline_s):
                    found = await self._found(create_missing)
                return _Opened(found, settings, self._cluster, self._connections, self._stats)
            except TimeoutError:
                # An attempt that time cut short has no cause of its own, if there was one before it.
                reason = reason or f"no answer within {settings.timeout_ms / 1000:g} s"
            except TooFewBrokers as error:
                raise JournalUnavailable(str(error), appended=False) from error
            except (BrokerUnreachable, ProtocolError) as error:
                reason = str(error)
            if loop.time() + backoff_s >= deadline_s:
                raise JournalUnavailable(f"the journal can't be opened: {reason}", appended=False)
            await asyncio.sleep(backoff_s)
            backoff_s = min(2 * backoff_s, settings.retry_backoff_max_ms / 1000)

    async def _found(self, create_missing: bool) -> FoundTopic:
        settings, connection = self._settings, self._connections.to_any
        found = await find_topic(connection, settings.topic)
        if found is None:
            if not create_missing:
                raise JournalUnfit(missing(settings.topic))
            await create_topic(connection, settings, self._partitions)
            raise BrokerUnreachable(f"the brokers do not know the new topic {settings.topic} yet")
        configs = await topic_configs(connection, settings)
        check_topic(settings, self._partitions, found.partitions, configs)
        return found

    async def close(self) -> None:
        """Reject appends that wait, and close all connections."""
        if self._opened is not None:
            await self._opened.appends.close()
        self._connections.close()

    @property
    def identity(self) -> bytes:
        """Return the topic's ID. Raises JournalUnavailable before the journal is open."""
        return self._open().topic.topic_id

    @property
    def cluster_id(self) -> str:
        """Return the ID of the Kafka cluster. Raises JournalUnavailable before the journal is open."""
        return self._open().cluster_id

    async def append(self, partition: int, value: bytes) -> Appended:
        """Append a record; see the interface."""
        return await self._open(partition).appends.append(partition, value)

    async def read(self, partition: int, from_position: int, max_bytes: int) -> Sequence[JournalRecord]:
        """Return records from a position on; see the interface."""
        return await self._open(partition).reads.read(partition, from_position, max_bytes)

    async def end(self, partition: int) -> int:
        """Return the position after the last record; see the interface.

        A leader that is cut off from the other brokers, and does not know of its successor yet, answers with its own
        last record. So does its Fetch, as to every consumer.
        """
        return await self._open(partition).reads.end(partition)

    async def start(self, partition: int) -> int:
        """Return the position of the oldest record; see the interface."""
        return await self._open(partition).reads.start(partition)

    async def trim(self, partition: int, before: int) -> int:
        """Delete the records before a position, and return the position of the oldest record."""
        return await self._open(partition).reads.trim(partition, before)

    def _open(self, partition: int = 0) -> _Opened:
        if self._opened is None:
            raise JournalUnavailable("the journal is not open", appended=False)
        if not 0 <= partition < self._partitions:
            raise ValueError(f"the journal has no partition {partition}: it has {self._partitions}")
        return self._opened
