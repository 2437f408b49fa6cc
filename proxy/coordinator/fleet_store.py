"""Heartbeats of all proxies on a Redis-compatible store: one hash of leases, under one hash tag."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import asdict, fields, replace
from struct import Struct

from proxy.coordinator import scripts
from proxy.coordinator.cluster import Store, server_of
from proxy.coordinator.connect import store_call
from proxy.coordinator.interface_fleet import Beaten, ListenersRecord, ProxyRecord, ProxySums, SeenProxy
from proxy.coordinator.shards import FLEET_PREFIX

_LEASE_BYTES = 24
"""Bytes before a record: the end of its lease, and the change that it obeys (`lua/fleet_beat.lua`)."""
_OBEYED = Struct(">q8s")
_HAS = Struct(">?I")
_BEATEN = Struct(">q")
_FIELDS = frozenset(field.name for field in fields(ProxyRecord))
_LISTENERS_FIELDS = frozenset(field.name for field in fields(ListenersRecord))


class RedisFleetStore:
    """`interface_fleet.FleetStore` on the shared client of `connect.py`, which the caller closes."""

    def __init__(self, client: Store) -> None:
        self._client = client

    async def beat(self, record: ProxyRecord, lease_ms: int, *, runs: bool = False) -> Beaten:
        packed_record = json.dumps(asdict(record)).encode()
        obeyed = _OBEYED.pack(record.registry_version, bytes.fromhex(record.registry_mark))
        call = scripts.Call(FLEET_PREFIX, (record.proxy_id.encode(), packed_record, lease_ms, obeyed, int(runs)))
        reply: bytes = await scripts.run(self._client, "fleet_beat", call)
        (complete_for_ms,) = _BEATEN.unpack_from(reply)
        records = tuple(sorted(_records(reply[_BEATEN.size :]), key=lambda one: one.proxy_id))
        return Beaten(records, complete_for_ms)

    async def look(self) -> tuple[SeenProxy, ...]:
        async with store_call(self._client, "reading the fleet's records"):
            server = await server_of(self._client, FLEET_PREFIX)
            seconds, microseconds = await server.time()
            leases: dict[bytes, bytes] = await self._client.hgetall(f"{FLEET_PREFIX}leases")  # type: ignore[assignment]
        now_ms = seconds * 1000 + microseconds // 1000
        seen = [
            SeenProxy(_record(lease[_LEASE_BYTES:]), int.from_bytes(lease[:8], "big") - now_ms)
            for lease in leases.values()
        ]
        return tuple(sorted((one for one in seen if one.lease_left_ms > 0), key=lambda one: one.record.proxy_id))

    async def newest_registry_version(self) -> int:
        """Return the highest version that any proxy has obeyed, proxies without a lease included; -1 if there is
        none."""
        async with store_call(self._client, "reading the fleet's records"):
            leases: list[bytes] = await self._client.hvals(f"{FLEET_PREFIX}leases")  # type: ignore[assignment]
        return max((_record(lease[_LEASE_BYTES:]).registry_version for lease in leases), default=-1)

    async def hold(self, name: str, holder: str, lease_ms: int) -> bool:
        call = scripts.Call(FLEET_PREFIX, (name.encode(), holder.encode(), lease_ms))
        return bool(await scripts.run(self._client, "fleet_hold", call))

    async def leave(self, proxy_id: str) -> None:
        async with store_call(self._client, "leaving the fleet"):
            await self._client.hdel(f"{FLEET_PREFIX}leases", proxy_id)


def _records(reply: bytes) -> Iterator[ProxyRecord]:
    at = 0
    while at < len(reply):
        has_change, length = _HAS.unpack_from(reply, at)
        at += _HAS.size
        record = _record(reply[at : at + length])
        yield record if has_change else replace(record, registry_version=-1)
        at += length


def _record(packed: bytes) -> ProxyRecord:
    values = {name: value for name, value in json.loads(packed).items() if name in _FIELDS}
    values["listeners"] = tuple(
        ListenersRecord(**{name: value for name, value in listeners.items() if name in _LISTENERS_FIELDS})
        for listeners in values["listeners"]
    )
    if values.get("sums") is not None:
        values["sums"] = ProxySums(*values["sums"][: len(ProxySums._fields)])
    return ProxyRecord(**values)
