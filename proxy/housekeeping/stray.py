"""Find records in the logs of shadow topics: somebody produced them to the brokers, past the proxies.

They are counted and never served: they have no place in the order of the diskless log. Transaction markers belong there
and are no strays. Each leader is asked for the ends of its shadows' logs (ListOffsets); what is new in a log that holds
anything is read (Fetch) and counted, a bounded number of bytes per look.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from proxy.brokers.broker_metadata import PARTITIONS_PER_STEP, Partition, ask_leaders, list_offsets
from proxy.brokers.cluster import Cluster
from proxy.brokers.service import ServiceConnection
from proxy.brokers.upstream import BrokerUnreachable
from proxy.protocol.api_keys import FETCH
from proxy.protocol.errors import NONE, OFFSET_OUT_OF_RANGE
from proxy.records.batches import HEADER_BYTES, RecordsError, read_header
from proxy.wire.cold import encode, milliseconds, nested, read_response

MAX_BYTES_PER_FETCH = 1_048_576
MAX_FETCHES_PER_LOOK = 64
"""Maximum number of Fetches of all partitions together; the next check continues."""
_TOPICS_PER_REQUEST = 50
_FETCH_VERSION = 11
_EARLIEST, _LATEST = -2, -1
_NO_EPOCH = -1


@dataclass(slots=True)
class Looked:
    """How far a shadow's log was looked through."""

    topic_id: bytes
    log_start: int = 0
    position: int = 0
    """Offset up to which it was."""
    records: int = 0
    """Stray records that were found."""


class StrayRecords:
    """Counts, from one look to the next."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._looked: dict[Partition, Looked] = {}
        self._fetches_left = 0
        self.refused: str | None = None
        """Why some shadow's log that holds anything can't be read, as of the last look; None where all could."""

    async def look(self, topic_ids: Sequence[bytes]) -> dict[str, int]:
        """Stray records by the name of their topic, as far as is known by now; only topics that have some.

        A partition without a leader is left for the next look. Raises BrokerUnreachable and ProtocolError; what was
        counted by then is kept.
        """
        self._fetches_left = MAX_FETCHES_PER_LOOK
        self.refused = None
        seen: set[Partition] = set()
        connections: dict[int, ServiceConnection] = {}
        try:
            for start in range(0, len(topic_ids), _TOPICS_PER_REQUEST):
                leaders = await ask_leaders(self._cluster.service, topic_ids[start : start + _TOPICS_PER_REQUEST])
                for leader, partitions in leaders.items():
                    seen |= partitions.keys()
                    if leader not in connections:
                        connections[leader] = self._cluster.connection_to(leader)
                    for some in _chunks(list(partitions)):
                        await self._look_at(connections[leader], {one: partitions[one] for one in some})
        finally:
            for connection in connections.values():
                connection.close()
        self._looked = {partition: looked for partition, looked in self._looked.items() if partition in seen}
        counts: defaultdict[str, int] = defaultdict(int)
        for (name, _), looked in self._looked.items():
            counts[name] += looked.records
        return {name: count for name, count in counts.items() if count}

    def without_strays(self) -> dict[Partition, Looked]:
        """Return the partitions in which the last look has found markers only. Their logs may have more by now."""
        return {
            partition: looked
            for partition, looked in self._looked.items()
            if not looked.records and looked.position > looked.log_start
        }

    async def _look_at(self, leader: ServiceConnection, partitions: Mapping[Partition, bytes]) -> None:
        ends = await list_offsets(leader, partitions, _LATEST)
        held = [partition for partition, end in ends.items() if end > 0]
        for partition in ends.keys() - held:
            self._looked.pop(partition, None)
        if not held:
            return
        for partition, log_start in (await list_offsets(leader, held, _EARLIEST)).items():
            looked = self._looked.get(partition)
            if looked is None or looked.topic_id != partitions[partition] or looked.log_start != log_start:
                looked = self._looked[partition] = Looked(partitions[partition], log_start, log_start)
            await self._read(leader, partition, looked, ends[partition])

    async def _read(self, leader: ServiceConnection, partition: Partition, looked: Looked, end: int) -> None:
        while looked.position < end and self._fetches_left:
            self._fetches_left -= 1
            fetched = await _fetch(leader, partition, looked.position)
            if fetched is None:
                self._fetches_left = 0
                return
            error_code, records = fetched
            if error_code == OFFSET_OUT_OF_RANGE:
                return  # its start has moved: the next look sees it
            if error_code != NONE:
                self.refused = f"a Fetch of shadow topics answers error {error_code}"
                return
            counted, behind = _count(records, looked.position)
            if behind == looked.position:
                return
            looked.records += counted
            looked.position = behind


def _chunks(partitions: Sequence[Partition]) -> Iterator[Sequence[Partition]]:
    for start in range(0, len(partitions), PARTITIONS_PER_STEP):
        yield partitions[start : start + PARTITIONS_PER_STEP]


def _count(records: bytes, position: int) -> tuple[int, int]:
    """Records that are no markers from `position` on, and the offset behind the last whole batch."""
    at, counted = 0, 0
    data = memoryview(records)
    while len(data) - at >= HEADER_BYTES:
        try:
            header = read_header(data, at)
        except RecordsError:
            break  # cut off at the size that was asked for
        base_offset = int.from_bytes(data[at : at + 8], "big", signed=True)
        behind = base_offset + header.last_offset_delta + 1
        if not header.is_control:
            counted += max(0, behind - max(base_offset, position))
        position = max(position, behind)
        at += header.length
    return counted, position


async def _fetch(leader: ServiceConnection, partition: Partition, offset: int) -> tuple[int, bytes] | None:
    """Error code and records; None where the broker leaves the partition out, as it does while a quota throttles it.

    Raises BrokerUnreachable and ProtocolError.
    """
    from kio.schema.fetch.v11.request import FetchRequest

    topic_type = nested(FetchRequest, "topics")
    partition_type = nested(topic_type, "partitions")
    asked: Any = partition_type(
        partition=partition[1], fetch_offset=offset, partition_max_bytes=MAX_BYTES_PER_FETCH, log_start_offset=-1
    )
    request: Any = FetchRequest
    body = await leader.ask(
        FETCH,
        _FETCH_VERSION,
        encode(
            request(
                replica_id=-1,
                max_wait=milliseconds(0),
                min_bytes=0,
                max_bytes=MAX_BYTES_PER_FETCH,
                isolation_level=0,
                session_id=0,
                session_epoch=_NO_EPOCH,
                topics=(topic_type(topic=partition[0], partitions=(asked,)),),
                forgotten_topics_data=(),
                rack_id="",
            )
        ),
    )
    response: Any = read_response(FETCH, _FETCH_VERSION, body)
    if response.error_code.value != NONE:
        raise BrokerUnreachable(f"Fetch of shadow {partition[0]} answers error {response.error_code.value}")
    for topic in response.responses:
        for answered in topic.partitions:
            return int(answered.error_code.value), bytes(answered.records or b"")
    return None
