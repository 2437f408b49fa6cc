"""Everything that a view of a journal must hold again after it was rebuilt, in a form that can be compared."""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence
from typing import Any

from proxy.coordinator.cluster import Store, server_of
from proxy.coordinator.interface import FindRequest
from proxy.coordinator.redis import RedisCoordinator
from proxy.coordinator.shards import shard_prefix, split_partition_key

INDEX_BYTES_AT = 28
"""Position in a shard's state of the memory that its indexes take, which depends on packing."""
HASHES = ("logs", "compacted", "raised", "producers", "segments", "txn", "shadows")
SORTED_SETS = ("producer_ids", "garbage", "tombstones", "open", "aborted", "followed")


async def digest_of(client: Store, coordinator: RedisCoordinator, shards: int) -> dict[str, object]:
    """Return the contents of all shards: raw, except rows, which may be packed."""
    assert coordinator.view is not None
    await coordinator.view.prove(range(shards))
    digest: dict[str, object] = {}
    for shard in range(shards):
        prefix = shard_prefix(shard)
        state: Any = await client.hget(f"{prefix}meta", "state")
        if state is not None:
            (index_bytes,) = struct.unpack_from(">Q", state, INDEX_BYTES_AT)
            assert index_bytes >= 0
            digest[f"{prefix}state"] = state[:INDEX_BYTES_AT] + state[INDEX_BYTES_AT + 8 :]
        for name in HASHES:
            digest[prefix + name] = await client.hgetall(prefix + name)
        for name in SORTED_SETS:
            digest[prefix + name] = await client.zrange(prefix + name, 0, -1, withscores=True)
        digest[f"{prefix}answers"] = await _answers(client, prefix)
        logs: Mapping[bytes, bytes] = digest[f"{prefix}logs"]  # type: ignore[assignment]
        digest[f"{prefix}rows"] = {log: await _rows(coordinator, log) for log in logs}
    return digest


async def _answers(client: Store, prefix: str) -> dict[bytes, bytes]:
    """Return the answers to commits, by segment; those of an earlier pass are gone."""
    this_pass: Any = await client.hget(f"{prefix}meta", "pass")
    own = f"{prefix}answers:".encode() + (this_pass or b"")
    answers: dict[bytes, Any] = {}
    at = await server_of(client, f"{prefix}meta")
    names = [key async for key in at.scan_iter(match=f"{prefix}answers:*")]
    for key in names:
        if key[:-16] == own:
            answers[key[-16:]] = await client.get(key)
    return answers


async def _rows(coordinator: RedisCoordinator, log: bytes) -> Sequence[object]:
    topic_id, partition = split_partition_key(log)
    rows: list[object] = []
    offset = 0
    while offset >= 0:
        page = await coordinator.rows.index_page(topic_id, partition, offset)
        rows += [one.row for one in page.rows]
        offset = page.next_offset
    (answer,) = await coordinator.find([FindRequest(topic_id, partition, 0, 1)])
    return [*rows, answer.log_start_offset, answer.high_watermark]
