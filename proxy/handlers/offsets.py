"""Offsets of diskless partitions, asked of the coordinator for the handlers that answer with them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from proxy.coordinator.interface import CoordinatorUnavailable, ListRequest, OffsetAnswer
from proxy.coordinator.patience import patiently
from proxy.protocol.errors import KAFKA_STORAGE_ERROR

if TYPE_CHECKING:
    from proxy.client.client import Client
    from proxy.diskless.time_lookup import TimeLookup


async def listed_offsets(
    client: Client, wanted: Sequence[ListRequest], timeout_s: float | None = None
) -> list[OffsetAnswer]:
    """In the order of `wanted`; KAFKA_STORAGE_ERROR, retriable, for all of them where the coordinator is away.

    It is asked again first, for the time of one of its calls from the moment on when it was found away: admin calls of
    clients hand retriable errors on. Later in an outage nobody waits: what comes behind, of classic topics too, would.

    `timeout_s`: of the client, for lookups by time; the setting's where that is shorter, or it named none.
    """
    if not wanted:
        return []
    context = client.context
    longest_s = context.settings.fetch.time_lookup_timeout_ms / 1000
    if timeout_s is not None:
        longest_s = min(timeout_s, longest_s)
    began_s = context.now()
    away_since_s = began_s if context.offsets_away_since_s is None else context.offsets_away_since_s
    patient_s = context.settings.redis.timeout_ms / 1000 - (began_s - away_since_s)

    async def ask() -> list[OffsetAnswer]:
        lookup: TimeLookup = context.time_lookup
        return await lookup.list_offsets(wanted, max(0.0, began_s + longest_s - context.now()))

    try:
        answers = await patiently(ask, within_s=min(patient_s, longest_s))
        context.offsets_away_since_s = None
        return answers
    except CoordinatorUnavailable as error:
        context.offsets_away_since_s = away_since_s
        context.throttled_log.warning("offsets_unavailable", reason=str(error))
        return [OffsetAnswer(KAFKA_STORAGE_ERROR, -1, -1)] * len(wanted)
