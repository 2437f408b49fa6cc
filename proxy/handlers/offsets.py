"""Offsets of diskless partitions, asked of the coordinator for the handlers that answer with them."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING

from proxy.coordinator.interface import CoordinatorUnavailable, ListRequest, OffsetAnswer
from proxy.coordinator.patience import patiently
from proxy.errors import KAFKA_STORAGE_ERROR

if TYPE_CHECKING:
    from proxy.connection import ClientConnection


async def listed_offsets(
    connection: ClientConnection, wanted: Sequence[ListRequest], timeout_s: float | None = None
) -> list[OffsetAnswer]:
    """In the order of `wanted`; KAFKA_STORAGE_ERROR, retriable, for all of them where the coordinator is away.

    For the time of one of its calls it is asked again first: admin calls of clients hand retriable errors on.

    `timeout_s`: of the client, for lookups by time; the setting's where that is shorter, or it named none.
    """
    if not wanted:
        return []
    context = connection.context
    longest_s = context.settings.fetch.time_lookup_timeout_ms / 1000
    if timeout_s is not None:
        longest_s = min(timeout_s, longest_s)
    try:
        return await patiently(
            partial(context.time_lookup.list_offsets, wanted, longest_s),
            within_s=min(context.settings.redis.timeout_ms / 1000, longest_s),
        )
    except CoordinatorUnavailable as error:
        context.log_seldom.warning("offsets_unavailable", reason=str(error))
        return [OffsetAnswer(KAFKA_STORAGE_ERROR, -1, -1)] * len(wanted)
