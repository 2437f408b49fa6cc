"""The diskless half of a Fetch: from the coordinator's coordinates and the rack-local caches."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from proxy.diskless_reader import PartitionRead, ReadRequest
from proxy.errors import (
    KAFKA_STORAGE_ERROR,
    NONE,
    NOT_LEADER_OR_FOLLOWER,
    UNKNOWN_SERVER_ERROR,
    UNKNOWN_TOPIC_ID,
    UNKNOWN_TOPIC_OR_PARTITION,
)
from proxy.fetching.answer import DISKLESS, Answer, Piece, piece_of
from proxy.fetching.asked import DisklessAsked, Key
from proxy.security.rights import READ, rights_of
from proxy.wire.fetch import FetchRequest
from proxy.wire.fetch_response import PartitionFetched
from proxy.wire.primitives import Buffer

if TYPE_CHECKING:
    from proxy.connection import ClientConnection
    from proxy.request import Request


class DisklessSource:
    """Diskless partitions of one Fetch. `check` comes first."""

    def __init__(self, connection: ClientConnection, topics: Sequence[DisklessAsked], parsed: FetchRequest) -> None:
        self._connection = connection
        self._context = connection.context
        self._topics = topics
        self._parsed = parsed
        self._too_small: set[Key] = set()
        """Partitions with a negative limit: brokers fail to read them, unless there is nothing to read."""
        self._refused: dict[Key, int] = {}
        """Errors of partitions that are not read."""
        self._asked: list[Key] = []
        self._reads: list[ReadRequest] = []
        """Of `_asked`, in the request's order."""

    @property
    def partitions(self) -> list[tuple[bytes, int]]:
        """Whose news are to be listened to."""
        return [(read.topic_id, read.partition) for read in self._reads]

    async def check(self, request: Request) -> None:
        """The client's right to read, and partitions that are not there. Raises BrokerUnreachable."""
        rights = rights_of(self._connection)
        unasked = rights.unasked({entry.name: entry.topic_id for _, entry in self._topics if entry is not None})
        if unasked:
            await rights.ask(self._connection, request, unasked)
        for asked, entry in self._topics:
            if entry is None:
                # A broker's fetch session that began with a shadow would go on with it, unasked, for ever.
                self._refused.update(((asked.topic, one.index), KAFKA_STORAGE_ERROR) for one in asked.partitions)
                continue
            error_code = rights.error(entry.name, READ, entry.topic_id)
            if error_code == UNKNOWN_TOPIC_OR_PARTITION and isinstance(asked.topic, bytes):
                error_code = UNKNOWN_TOPIC_ID
            for partition in asked.partitions:
                if error_code == NONE and entry.state != "live" and isinstance(asked.topic, bytes):
                    self._refused[asked.topic, partition.index] = UNKNOWN_TOPIC_ID
                elif error_code == NONE and not (entry.state == "live" and 0 <= partition.index < entry.partitions):
                    self._refused[asked.topic, partition.index] = UNKNOWN_TOPIC_OR_PARTITION
                elif error_code != NONE:
                    self._refused[asked.topic, partition.index] = error_code
                elif self._parsed.replica_id >= 0:
                    # A broker that fetches as a follower: the topic has none, and the replica is not assigned.
                    self._refused[asked.topic, partition.index] = NOT_LEADER_OR_FOLLOWER
                else:
                    if min(partition.partition_max_bytes, self._parsed.max_bytes) < 0:
                        self._too_small.add((asked.topic, partition.index))
                    self._asked.append((asked.topic, partition.index))
                    self._reads.append(
                        ReadRequest(
                            entry.topic_id, partition.index, partition.fetch_offset, partition.partition_max_bytes
                        )
                    )

    async def ask(self, *, max_bytes: int, wait_s: float, trust_ends: bool, first_exempt: bool = True) -> Answer:
        """Read once, as `DisklessReader.read`; `wait_s` is for object storage."""
        reads = await self._context.reader.read(
            self._reads, max_bytes=max_bytes, trust_ends=trust_ends, first_exempt=first_exempt, wait_s=wait_s
        )
        pieces = {
            key: self._refusal(key[1], error_code, None if error_code == NOT_LEADER_OR_FOLLOWER else ())
            for key, error_code in self._refused.items()
        }
        for key, read in zip(self._asked, reads, strict=True):
            pieces[key] = self._piece(key, read)
        size = sum(read.size_bytes for read in reads)
        errors = {piece.error_code for piece in pieces.values()} - {NONE}
        unavailable = errors == {KAFKA_STORAGE_ERROR} and not size
        settled = not pieces or any(read.more for read in reads) or (bool(errors) and not unavailable)
        rack = self._context.settings.rack
        return Answer(DISKLESS, rack, True, pieces, size, settled, unavailable=unavailable)

    def _piece(self, key: Key, read: PartitionRead) -> Piece:
        partition = key[1]
        if key in self._too_small and (read.size_bytes or read.more) and not read.error_code:
            return self._refusal(partition, UNKNOWN_SERVER_ERROR, aborted=None)
        if read.error_code:
            # Beside an error brokers tell neither watermarks nor the log start, OFFSET_OUT_OF_RANGE included.
            return self._refusal(partition, read.error_code, aborted=None)
        records: list[Buffer] = read.records
        fetched = PartitionFetched(
            partition,
            NONE,
            read.high_watermark,
            read.high_watermark,
            read.log_start_offset,
            records,
            read.size_bytes,
            () if self._parsed.isolation_level else None,
        )
        return piece_of(fetched)

    def _refusal(self, partition: int, error_code: int, aborted: Sequence[tuple[int, int]] | None = ()) -> Piece:
        fetched = PartitionFetched(partition, error_code, -1, -1, -1, (), 0, aborted)
        return piece_of(fetched)
