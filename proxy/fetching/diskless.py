"""The diskless half of a Fetch: from the coordinator's coordinates and the rack-local caches."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

from proxy.client.client import Client
from proxy.client.request import Request
from proxy.client.rights import READ, ClientRights, Rights
from proxy.coordinator.interface_registry import DisklessTopic
from proxy.diskless.diskless_reader import DisklessReader, PartitionRead, ReadRequest
from proxy.fetching.answer import DISKLESS, Answer, Piece, piece_of
from proxy.fetching.asked import DisklessAsked, Key
from proxy.process.turns import Turns
from proxy.protocol.errors import (
    KAFKA_STORAGE_ERROR,
    NONE,
    NOT_LEADER_OR_FOLLOWER,
    UNKNOWN_SERVER_ERROR,
    UNKNOWN_TOPIC_ID,
    UNKNOWN_TOPIC_OR_PARTITION,
)
from proxy.wire.fetch import READ_COMMITTED, FetchRequest, PartitionFetch
from proxy.wire.fetch_response import PartitionFetched
from proxy.wire.primitives import Buffer
from proxy.wire.steps import AT_A_TIME, Steps, in_slices


class DisklessReads:
    """The parts that reading diskless partitions needs. `rack` is the proxy's."""

    def __init__(
        self, rack: str, *, reader: DisklessReader, rights: ClientRights, turns: Turns, now: Callable[[], float]
    ) -> None:
        """`now`: monotonic seconds."""
        self.rack = rack
        self.reader = reader
        self.rights = rights
        self.turns = turns
        self.now = now


class DisklessSource:
    """Diskless partitions of one Fetch. `check` comes first."""

    def __init__(
        self,
        of: DisklessReads,
        client: Client,
        topics: Sequence[DisklessAsked],
        parsed: FetchRequest,
        *,
        large: bool = False,
    ) -> None:
        """`large`: the work is done in turns with other work."""
        self._of = of
        self._client = client
        self._topics = topics
        self._parsed = parsed
        self._large = large
        self._too_small: set[Key] = set()
        """Partitions with a negative limit: brokers fail to read them, unless there is nothing to read."""
        self._refused: dict[Key, int] = {}
        """Errors of partitions that are not read."""
        self._asked: list[Key] = []
        self._reads: list[ReadRequest] = []
        """Reads of `_asked`, in the request's order."""
        self.partitions: list[tuple[bytes, int]] = []
        """Partitions whose news the Fetch waits for."""

    @property
    def known(self) -> tuple[list[Any], ...]:
        """Return the lists that have an entry for each partition, to be emptied at the end."""
        return self._reads, self._asked, self.partitions

    async def check(self, request: Request) -> None:
        """The client's right to read, and partitions that are not there. Raises BrokerUnreachable."""
        rights = self._of.rights.of(self._client.session)
        turns = self._of.turns
        if self._large:
            unasked = rights.unasked(await turns.run(self._entries()))
        else:
            unasked = rights.unasked({entry.name: entry.topic_id for _, entry in self._topics if entry is not None})
        if unasked:
            await rights.ask(self._client, request, unasked)
        if self._large:
            await turns.run(self._judge(rights))
            return
        for asked, entry in self._topics:
            self._judge_some(rights, asked.topic, entry, asked.partitions)

    def _entries(self) -> Steps[dict[str, bytes]]:
        """Topic IDs of the diskless topics, by name."""
        entries: dict[str, bytes] = {}
        for some in in_slices(self._topics):
            entries |= {entry.name: entry.topic_id for _, entry in some if entry is not None}
            yield
        return entries

    def _judge(self, rights: Rights) -> Steps[None]:
        for asked, entry in self._topics:
            for some in in_slices(asked.partitions):
                self._judge_some(rights, asked.topic, entry, some)
                yield

    def _judge_some(
        self, rights: Rights, topic: str | bytes, entry: DisklessTopic | None, partitions: Sequence[PartitionFetch]
    ) -> None:
        """Divide partitions of a topic into those that are read and those that are rejected."""
        if entry is None:
            # A broker's fetch session that began with a shadow would go on with it, unasked, forever.
            self._refused.update(((topic, one.index), KAFKA_STORAGE_ERROR) for one in partitions)
            return
        error_code = rights.error(entry.name, READ, entry.topic_id)
        if error_code == UNKNOWN_TOPIC_OR_PARTITION and isinstance(topic, bytes):
            error_code = UNKNOWN_TOPIC_ID
        for partition in partitions:
            if error_code == NONE and entry.state != "live" and isinstance(topic, bytes):
                self._refused[topic, partition.index] = UNKNOWN_TOPIC_ID
            elif error_code == NONE and not (entry.state == "live" and 0 <= partition.index < entry.partitions):
                self._refused[topic, partition.index] = UNKNOWN_TOPIC_OR_PARTITION
            elif error_code != NONE:
                self._refused[topic, partition.index] = error_code
            elif self._parsed.replica_id >= 0:
                # A broker that fetches as a follower: the topic has none, and the replica is not assigned.
                self._refused[topic, partition.index] = NOT_LEADER_OR_FOLLOWER
            else:
                if min(partition.partition_max_bytes, self._parsed.max_bytes) < 0:
                    self._too_small.add((topic, partition.index))
                self._asked.append((topic, partition.index))
                place = (entry.topic_id, partition.index, partition.fetch_offset, partition.partition_max_bytes)
                self._reads.append(ReadRequest(*place, committed=self._parsed.isolation_level == READ_COMMITTED))
                self.partitions.append((entry.topic_id, partition.index))

    async def ask(self, *, max_bytes: int, wait_s: float, trust_ends: bool, first_exempt: bool = True) -> Answer:
        """Read once, as `DisklessReader.read`; `wait_s` is for object storage."""
        read, limits = self._of.reader.read, {"trust_ends": trust_ends}
        if not self._large:
            reads = await read(self._reads, max_bytes=max_bytes, first_exempt=first_exempt, wait_s=wait_s, **limits)
            pieces = self._refusals(self._refused.items())
            self._add_pieces(pieces, self._asked, reads)
            size = sum(one.size_bytes for one in reads)
            more = any(one.more for one in reads)
            errors = {piece.error_code for piece in pieces.values()}
            return self._answer(pieces, size, errors, more=more)
        pieces, size, more, errors = {}, 0, False, set()
        until_s = self._of.now() + wait_s
        for refused in in_slices(list(self._refused.items())):
            await self._of.turns.next()
            pieces |= self._refusals(refused)
            errors |= {error_code for _, error_code in refused}
        for start in range(0, len(self._reads), AT_A_TIME):
            await self._of.turns.next()
            reads = await read(
                self._reads[start : start + AT_A_TIME],
                max_bytes=max(max_bytes - size, 0),
                first_exempt=first_exempt and not size,
                wait_s=max(0.0, until_s - self._of.now()),
                **limits,
            )
            keys = self._asked[start : start + AT_A_TIME]
            self._add_pieces(pieces, keys, reads)
            size += sum(one.size_bytes for one in reads)
            more = more or any(one.more for one in reads)
            errors |= {pieces[key].error_code for key in keys}
        return self._answer(pieces, size, errors, more=more)

    def _refusals(self, refused: Iterable[tuple[Key, int]]) -> dict[Key, Piece]:
        return {
            key: self._refusal(key[1], error_code, None if error_code == NOT_LEADER_OR_FOLLOWER else ())
            for key, error_code in refused
        }

    def _add_pieces(self, pieces: dict[Key, Piece], keys: Sequence[Key], reads: Sequence[PartitionRead]) -> None:
        for key, read in zip(keys, reads, strict=True):
            pieces[key] = self._piece(key, read)

    def _answer(self, pieces: dict[Key, Piece], size: int, errors: set[int], *, more: bool) -> Answer:
        errors.discard(NONE)
        unavailable = errors == {KAFKA_STORAGE_ERROR} and not size
        settled = not pieces or more or (bool(errors) and not unavailable)
        return Answer(DISKLESS, self._of.rack, True, pieces, size, settled, unavailable=unavailable)

    def _piece(self, key: Key, read: PartitionRead) -> Piece:
        partition = key[1]
        if key in self._too_small and (read.size_bytes or read.more) and not read.error_code:
            return self._refusal(partition, UNKNOWN_SERVER_ERROR, aborted=None)
        if read.error_code:
            # Next to an error, brokers give neither watermarks nor the log start, OFFSET_OUT_OF_RANGE included.
            return self._refusal(partition, read.error_code, aborted=None)
        records: list[Buffer] = read.records
        aborted = [(one.producer_id, one.first_offset) for one in read.aborted]
        fetched = PartitionFetched(
            partition,
            NONE,
            read.high_watermark,
            read.last_stable_offset,
            read.log_start_offset,
            records,
            read.size_bytes,
            aborted if self._parsed.isolation_level else None,
        )
        return piece_of(fetched)

    def _refusal(self, partition: int, error_code: int, aborted: Sequence[tuple[int, int]] | None = ()) -> Piece:
        fetched = PartitionFetched(partition, error_code, -1, -1, -1, (), 0, aborted)
        return piece_of(fetched)
