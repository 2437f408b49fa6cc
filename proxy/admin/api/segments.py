"""`/api/segments`: the last WAL segments that this proxy has uploaded."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from proxy.admin.api.question import ProcessAnswer, Question

if TYPE_CHECKING:
    from proxy.diskless.wal.buffer import WalBuffer
    from proxy.diskless.wal.recent import RecentSegment


async def collect(wal: WalBuffer | None, question: Question) -> list[RecentSegment]:
    """Return the newest segments of this process; `wal` is None if it has none."""
    return [] if wal is None else wal.recent.newest(question.limit)


def document(answers: Iterable[ProcessAnswer], question: Question) -> dict[str, Any]:
    """Return the answer of `GET /api/segments`."""
    segments = sorted((one for part in answers for one in part.value), key=lambda one: one.uploaded_ms, reverse=True)
    return {
        "segments": [
            {
                "object": one.key,
                "bytes": one.size_bytes,
                "batches": one.batches,
                "partitions": one.partitions,
                "uploaded_ms": one.uploaded_ms,
                "upload_ms": round(one.upload_ms, 3),
                "commit_ms": None if one.commit_ms is None else round(one.commit_ms, 3),
            }
            for one in segments[: question.limit]
        ]
    }
