"""Partitions as Metadata and DescribeTopicPartitions list them: skip them, or give them leaders.

Both begin a partition with error code, index, leader ID and (Metadata from v7) leader epoch, and go on with arrays of
node IDs. On real clusters the partitions of a topic mostly have the same shape, so a topic is looked at column by
column first, and partition by partition only where one differs.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Mapping
from functools import lru_cache
from operator import itemgetter
from typing import NamedTuple
from zlib import crc32

from proxy.wire.primitives import (
    INT32,
    NO_TAGS,
    check_end,
    read_count,
    skip_int32_array,
    skip_tags,
    write_count,
)
from proxy.wire.steps import Pace, Steps

_FEWEST_FOR_COLUMNS = 3
_NO_ERROR = b"\0\0"
_INDEX, _LEADER, _EPOCH = 2, 6, 10
"""Positions of index, leader and leader epoch in a partition."""
HASH_SLOTS = 256
MOST_AT_ONCE, AS_ONE = 1024, 8
"""Partitions that are handled without a pause, and how many of them take as long as another element."""
_MOST_PIECES = 4096
"""Maximum number of different topics whose results `HashedLeaders` caches."""


class SoleLeader(NamedTuple):
    """One broker is leader of every partition, without error (KAFKA-19257)."""

    leader: int
    others: tuple[int, ...] = ()
    """Replicas after the leader. All of them are in the ISR."""

    @property
    def replica_count(self) -> int:
        """Number of replicas of a partition."""
        return 1 + len(self.others)

    def others_of(self, leader: int) -> tuple[int, ...]:
        """The same for each leader."""
        return self.others


class HashedLeaders:
    """Like `SoleLeader`, but each partition has its own leader, by the hash of its topic's name and its index."""

    def __init__(self, leaders: tuple[int, ...], others: Mapping[int, tuple[int, ...]] | None = None) -> None:
        """`leaders` are HASH_SLOTS node IDs, `others` the replicas after each of them."""
        self._leaders = leaders
        self._others = others or {}
        self._pieces: dict[tuple[int, bytes, bytes], tuple[list[bytes], list[bytes]]] = {}

    @property
    def replica_count(self) -> int:
        """Largest number of replicas of a partition."""
        return 1 + max(map(len, self._others.values()), default=0)

    def others_of(self, leader: int) -> tuple[int, ...]:
        """Return the replicas after a leader, all in the ISR."""
        return self._others.get(leader, ())

    def leader_of(self, topic: str | None, partition: int) -> int:
        """Return the leader of a partition."""
        return self._leaders[(crc32((topic or "").encode()) + partition) % HASH_SLOTS]

    def pieces(
        self, topic: str | None, indexes: bytes, behind: Callable[[int], bytes]
    ) -> tuple[list[bytes], list[bytes]]:
        """Return the leaders of partitions, given the last bytes of their indexes, and what stands `behind` each
        leader.

        The result is cached, because most topics look alike.
        """
        first = crc32((topic or "").encode()) % HASH_SLOTS
        # What stands behind depends on the version: that of one node stands for it.
        key = first, indexes, behind(self._leaders[0])
        found = self._pieces.get(key)
        if found is None:
            nodes = [self._leaders[(first + index) % HASH_SLOTS] for index in indexes]
            if len(self._pieces) >= _MOST_PIECES:
                self._pieces.clear()
            found = [INT32.pack(node) for node in nodes], [behind(node) for node in nodes]
            self._pieces[key] = found
        return found


class ReplicaLeaders(NamedTuple):
    """The first of `order` that is a replica leads; a partition with no such replica, and all else, is left alone."""

    order: tuple[int, ...]
    preferred: int
    """Broker that PreferredProduceBrokers names, if the version has it."""

    def leader_of(self, replicas: frozenset[int]) -> int | None:
        """Return the leader of a partition with these replicas; None if it stays."""
        return next((node for node in self.order if node in replicas), None)


Leaders = SoleLeader | HashedLeaders | ReplicaLeaders


class PartitionLayout(NamedTuple):
    """How a version writes a partition."""

    flexible: bool
    leader_epoch: bool
    node_arrays: int
    """Replicas, ISR, and whatever else of node IDs follows."""
    add_preferred: bool = False
    """Write PreferredProduceBrokers (KIP-1163) after these arrays; the input does not have it."""


class PartitionWalker:
    """Walks over the partitions of one response's topics. `leaders` is whom `lead` names."""

    def __init__(self, layout: PartitionLayout, leaders: Leaders | None = None) -> None:
        self._layout = layout
        self._leaders = leaders
        self._fixed = 14 if layout.leader_epoch else 10
        self._columnar = layout.flexible and layout.leader_epoch
        self._columns: list[tuple[int, int]] = []
        """Shape of the last topic's partitions: position and value of the length of each array and of the tagged
        fields."""
        self._stride = 0
        self._tails: dict[int, bytes] = {}
        """Encoded arrays of node IDs of a partition, by leader."""
        self._sole: list[bytes] = []
        """One partition of a SoleLeader: index, leader, epoch, and the rest; the first and third are filled in."""
        if isinstance(leaders, SoleLeader):
            self._sole = [b"", INT32.pack(leaders.leader), b"", self._behind(leaders.leader)]
        self._chosen = _Chosen(leaders, layout.flexible) if isinstance(leaders, ReplicaLeaders) else None

    def skipped(self, data: memoryview, at: int, count: int, pace: Pace) -> Steps[int]:
        """Do `skip` with pauses."""
        if pace.pauses(1):
            yield
        for done in range(0, count, MOST_AT_ONCE):
            now = min(MOST_AT_ONCE, count - done)
            at = self.skip(data, at, now)
            if pace.pauses(now // AS_ONE):
                yield
        return at

    def written(
        self, data: memoryview, at: int, count: int, out: bytearray, topic: str | None, pace: Pace, *, led: bool
    ) -> Steps[int]:
        """Do `write` with pauses."""
        if pace.pauses(1):
            yield
        for done in range(0, count, MOST_AT_ONCE):
            now = min(MOST_AT_ONCE, count - done)
            at = self.write(data, at, now, out, topic, led=led)
            if pace.pauses(now // AS_ONE):
                yield
        return at

    def write(self, data: memoryview, at: int, count: int, out: bytearray, topic: str | None, *, led: bool) -> int:
        """Do `lead`, or `copy` unless `led`."""
        return self.lead(data, at, count, out, topic) if led else self.copy(data, at, count, out)

    def skip(self, data: memoryview, at: int, count: int) -> int:
        """Return the position after `count` partitions."""
        alike = self._alike(data, at, count)
        if alike is not None:
            return at + len(alike)
        for _ in range(count):
            at = self._skip_one(data, at)
            if self._layout.flexible:
                at = skip_tags(data, at)
        check_end(data, at)
        return at

    def copy(self, data: memoryview, at: int, count: int, out: bytearray) -> int:
        """Append `count` partitions to `out` as they are, with no preferred broker; the position after them."""
        alike = self._alike(data, at, count)
        if alike is not None:
            out += self._with_preferred(alike, count, write_count(0, True))
            return at + len(alike)
        for _ in range(count):
            start, at = at, self._skip_one(data, at)
            out += data[start:at]
            at = self._finish(data, at, out, write_count(0, True))
        return at

    def lead(self, data: memoryview, at: int, count: int, out: bytearray, topic: str | None) -> int:
        """Append `count` partitions of the topic to `out` with their leaders; return the position after them.

        Index, leader epoch and tagged fields stay. With a SoleLeader or HashedLeaders the first two arrays of node IDs
        are the leader and its other replicas, the further arrays are empty, and there is no error.
        """
        alike = self._alike(data, at, count)
        if alike is not None:
            self._lead_alike(alike, count, out, topic)
            return at + len(alike)
        leaders = self._leaders
        for _ in range(count):
            start, at = at, self._skip_one(data, at)
            if isinstance(leaders, ReplicaLeaders):
                assert self._chosen is not None
                end = skip_int32_array(data, start + self._fixed, self._layout.flexible)
                chosen = self._chosen[data[start + self._fixed : end].tobytes()]
                out += data[start : start + _LEADER]
                out += chosen or data[start + _LEADER : start + _EPOCH]
                out += data[start + _EPOCH : at]
                at = self._finish(data, at, out, _alone(leaders.preferred, True))
                continue
            leader = self._leader_of(topic, INT32.unpack_from(data, start + _INDEX)[0])
            out += _NO_ERROR
            out += data[start + _INDEX : start + _LEADER]
            out += INT32.pack(leader)
            out += data[start + _EPOCH : start + self._fixed]
            out += self._tail(leader)
            at = self._finish(data, at, out, b"")
        return at

    def _finish(self, data: memoryview, at: int, out: bytearray, preferred: bytes) -> int:
        """Append preferred brokers, if they are written, and the tagged fields; return the position after those."""
        if self._layout.add_preferred:
            out += preferred
        if self._layout.flexible:
            start, at = at, skip_tags(data, at)
            out += data[start:at]
        check_end(data, at)
        return at

    def _leader_of(self, topic: str | None, partition: int) -> int:
        if isinstance(self._leaders, HashedLeaders):
            return self._leaders.leader_of(topic, partition)
        assert isinstance(self._leaders, SoleLeader)
        return self._leaders.leader

    def _others_of(self, leader: int) -> tuple[int, ...]:
        assert isinstance(self._leaders, SoleLeader | HashedLeaders)
        return self._leaders.others_of(leader)

    def _tail(self, leader: int) -> bytes:
        tail = self._tails.get(leader)
        if tail is None:
            flexible = self._layout.flexible
            replicas = _nodes((leader, *self._others_of(leader)), flexible)
            tail = replicas + replicas + write_count(0, flexible) * (self._layout.node_arrays - 2)
            self._tails[leader] = tail = tail + (_alone(leader, flexible) if self._layout.add_preferred else b"")
        return tail

    def _behind(self, leader: int) -> bytes:
        """From the arrays of node IDs to the next partition's index, without unknown tagged fields."""
        return self._tail(leader) + NO_TAGS + _NO_ERROR

    def _lead_alike(self, alike: bytes, count: int, out: bytearray, topic: str | None) -> None:
        """Do the same as `lead`, for partitions of `_stride` bytes each."""
        leaders, stride = self._leaders, self._stride
        if isinstance(leaders, ReplicaLeaders):
            out += self._lead_replicas(alike, count, leaders)
            return
        kept = _index_and_epoch(stride, count).unpack(alike)
        # Each piece but the first begins behind the error code, which ends the one before.
        if isinstance(leaders, HashedLeaders):
            pieces = [b""] * (4 * count)
            pieces[1::4], pieces[3::4] = leaders.pieces(topic, alike[_INDEX + 3 :: stride], self._behind)
        else:
            pieces = self._sole * count
        pieces[0::4], pieces[2::4] = kept[0::2], kept[1::2]
        out += _NO_ERROR
        out += b"".join(pieces)
        del out[-len(_NO_ERROR) :]

    def _lead_replicas(self, alike: bytes, count: int, leaders: ReplicaLeaders) -> bytes:
        stride, chosen = self._stride, self._chosen
        assert chosen is not None
        before = self._fixed - _EPOCH
        replicas = itemgetter(slice(before, before + 4 * self._columns[0][1] - 3))
        pieces = list(_head_leader_rest(stride, count).unpack(alike))
        nodes = list(map(chosen.__getitem__, map(replicas, pieces[2::3])))
        if None in nodes:
            nodes = [node or leader for node, leader in zip(nodes, pieces[1::3], strict=True)]
        pieces[1::3] = nodes
        return self._with_preferred(b"".join(pieces), count, _alone(leaders.preferred, True))

    def _with_preferred(self, partitions: bytes, count: int, preferred: bytes) -> bytes:
        """Return partitions of `_stride` bytes without tagged fields, with preferred brokers if they are written."""
        if not self._layout.add_preferred:
            return partitions
        behind = preferred + NO_TAGS
        return behind.join(_without_tags(self._stride, count).unpack(partitions)) + behind

    def _skip_one(self, data: memoryview, at: int) -> int:
        """Return the position of the tagged fields."""
        at += self._fixed
        for _ in range(self._layout.node_arrays):
            at = skip_int32_array(data, at, self._layout.flexible)
        check_end(data, at)
        return at

    def _alike(self, data: memoryview, at: int, count: int) -> bytes | None:
        """Return the bytes of all partitions if they have the first one's shape and no tagged fields; set `_stride`."""
        if count < _FEWEST_FOR_COLUMNS or not self._columnar:
            return None
        alike = self._fits(data, at, count) if self._stride else None
        if alike is None and self._learn_shape(data, at):
            alike = self._fits(data, at, count)
        return alike

    def _fits(self, data: memoryview, at: int, count: int) -> bytes | None:
        stride = self._stride
        partitions = data[at : at + stride * count].tobytes()
        if len(partitions) != stride * count:
            return None
        for column, length in self._columns:
            if partitions[column::stride].count(length) != count:
                return None
        return partitions

    def _learn_shape(self, data: memoryview, at: int) -> bool:
        column, columns = self._fixed, []
        for _ in range(self._layout.node_arrays):
            length = data[at + column]
            if not 0 < length < 0x80:
                return False
            columns.append((column, length))
            column += 4 * length - 3
        self._columns, self._stride = [*columns, (column, 0)], column + 1
        return True


class _Chosen(dict[bytes, "bytes | None"]):
    """The leader by the bytes of an array of replicas; None if it stays."""

    def __init__(self, leaders: ReplicaLeaders, flexible: bool) -> None:
        self._leaders = leaders
        self._flexible = flexible

    def __missing__(self, replicas: bytes) -> bytes | None:
        count, at = read_count(replicas, 0, self._flexible)
        nodes = frozenset(INT32.unpack_from(replicas, at + 4 * number)[0] for number in range(count))
        leader = self._leaders.leader_of(nodes)
        self[replicas] = chosen = None if leader is None else INT32.pack(leader)
        return chosen


def _alone(node_id: int, flexible: bool) -> bytes:
    """Return an array of one node ID; empty for -1."""
    return _nodes(() if node_id < 0 else (node_id,), flexible)


def _nodes(node_ids: tuple[int, ...], flexible: bool) -> bytes:
    return write_count(len(node_ids), flexible) + b"".join(map(INT32.pack, node_ids))


@lru_cache(maxsize=1024)
def _index_and_epoch(stride: int, count: int) -> struct.Struct:
    """Reads index and leader epoch of `count` partitions as bytes."""
    return struct.Struct(">" + f"2x4s4x4s{stride - 14}x" * count)


@lru_cache(maxsize=1024)
def _head_leader_rest(stride: int, count: int) -> struct.Struct:
    """Return a reader of `count` partitions that splits each into the part before the leader, the leader, and the
    rest."""
    return struct.Struct(">" + f"6s4s{stride - 10}s" * count)


@lru_cache(maxsize=1024)
def _without_tags(stride: int, count: int) -> struct.Struct:
    """Reads `count` partitions without their last byte."""
    return struct.Struct(">" + f"{stride - 1}sx" * count)
