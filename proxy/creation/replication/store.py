"""Wishes for replicas on a Redis-compatible store: one hash per Kafka cluster, from wish to JSON."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import asdict, fields, replace
from typing import Any

from proxy.coordinator import scripts
from proxy.coordinator.cluster import Store
from proxy.coordinator.connect import store_call
from proxy.coordinator.interface import CoordinatorUnavailable
from proxy.coordinator.shards import REPLICATION_PREFIX
from proxy.creation.replication.interface import Pending

MAX_PENDING = 10_000
"""Wishes of one cluster; roughly, as proxies do not count together."""
MAX_BYTES = 32 << 20
"""Maximum size of all together if a large one is added: an exact assignment of hundreds of partitions."""
_LARGE_BYTES = 4096
_FIELDS = frozenset(field.name for field in fields(Pending))


class RedisPendingTopics:
    """`interface.PendingTopics` on the shared client of `connect.py`, which stays the caller's to close.

    `cluster_id`: the Kafka cluster's, as far as it is known; empty where it is not, which fails every call.
    """

    def __init__(self, client: Store, cluster_id: Callable[[], str]) -> None:
        self._client = client
        self._cluster_id = cluster_id

    async def remember(self, wishes: Sequence[Pending]) -> None:
        """Write down all of them or none; one of the same `pending_id` is replaced.

        Raises CoordinatorUnavailable also where too many are remembered already.
        """
        key = self._key()
        async with store_call(self._client, "remembering topics that lack replicas"):
            remembered = await self._client.hlen(key)
        if remembered + len(wishes) > MAX_PENDING:
            raise CoordinatorUnavailable(
                f"{remembered} wishes for missing replicas are stored, and at most {MAX_PENDING} may be"
            )
        large = [size for wish in wishes if (size := len(_pack(wish))) > _LARGE_BYTES]
        if large:
            async with store_call(self._client, "remembering topics that lack replicas"):
                there: Any = await self._client.hvals(key)
            if sum(map(len, there)) + sum(large) > MAX_BYTES:
                raise CoordinatorUnavailable(
                    f"the stored wishes for missing replicas take {MAX_BYTES} bytes, which is the maximum"
                )
        await self._write(key, wishes)

    async def bind(self, pending: Pending, topic_id: bytes) -> Pending:
        """The topic exists, under this ID; the wish as it is remembered now, also where it was forgotten meanwhile."""
        bound = replace(pending, topic_id=topic_id)
        await self._write(self._key(), [bound])
        return bound

    async def change(self, was: Pending, to: Pending) -> bool:
        """Replace one by another of its `pending_id`; whether it was still there, and still the same."""
        key, field = self._key(), was.pending_id
        async with store_call(self._client, "changing what topics that lack replicas wait for"):
            packed: Any = await self._client.hget(key, field)
            if packed is None or _unpack(packed) != was:
                return False
        call = scripts.Call(REPLICATION_PREFIX, (self._cluster_id(), field, packed, _pack(to)))
        return bool(await scripts.run(self._client, "replication_change", call))

    async def all(self) -> tuple[Pending, ...]:
        """Every wish, the oldest first."""
        key = self._key()
        async with store_call(self._client, "reading which topics lack replicas"):
            packed: list[bytes] = await self._client.hvals(key)  # type: ignore[assignment]
        return tuple(sorted(map(_unpack, packed), key=lambda pending: (pending.since_ms, pending.pending_id)))

    async def forget(self, wishes: Sequence[Pending]) -> None:
        """They are fulfilled, or there is nothing left to wish for. Unknown ones are no error."""
        if not wishes:
            return
        key = self._key()
        async with store_call(self._client, "forgetting topics that lacked replicas"):
            await self._client.hdel(key, *(pending.pending_id for pending in wishes))

    async def _write(self, key: str, wishes: Sequence[Pending]) -> None:
        values: dict[Any, Any] = {pending.pending_id: _pack(pending) for pending in wishes}
        async with store_call(self._client, "remembering topics that lack replicas"):
            await self._client.hset(key, mapping=values)

    def _key(self) -> str:
        if not (cluster_id := self._cluster_id()):
            raise CoordinatorUnavailable("the Kafka cluster's ID is not known yet")
        return f"{REPLICATION_PREFIX}{cluster_id}:pending"


def _pack(pending: Pending) -> bytes:
    return json.dumps(asdict(pending) | {"topic_id": pending.topic_id.hex()}).encode()


def _unpack(packed: bytes) -> Pending:
    """Fields that a newer release added are left out."""
    values = {name: value for name, value in json.loads(packed).items() if name in _FIELDS}
    values["topic_id"] = bytes.fromhex(values["topic_id"])
    values["assignment"] = tuple(map(tuple, values["assignment"]))
    return Pending(**values)
