"""Offsets of diskless partitions, asked of the coordinator for the handlers that answer with them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import structlog

from proxy.coordinator.interface import CoordinatorUnavailable, ListRequest, OffsetAnswer
from proxy.errors import KAFKA_STORAGE_ERROR

if TYPE_CHECKING:
    from proxy.connection import ClientConnection

log = structlog.get_logger()


async def listed_offsets(
    connection: ClientConnection, wanted: Sequence[ListRequest]
) -> dict[tuple[bytes, int], OffsetAnswer]:
    """By topic ID and partition; KAFKA_STORAGE_ERROR, retriable, for all of them where the coordinator is away."""
    try:
        found = await connection.context.coordinator.list_offsets(wanted) if wanted else []
    except CoordinatorUnavailable as error:
        log.warning("offsets_unavailable", reason=str(error))
        found = [OffsetAnswer(KAFKA_STORAGE_ERROR, -1, -1)] * len(wanted)
    return dict(zip(((one.topic_id, one.partition) for one in wanted), found, strict=True))
