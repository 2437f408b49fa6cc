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
    """Return offsets in the order of `wanted`; KAFKA_STORAGE_ERROR for all of them if the coordinator is unreachable.

    The error is retriable, but admin clients pass it on. So the coordinator is asked again first, for the time of one
    of its calls since it was found unreachable. Later in an outage no request waits, because that would hold up later
    requests, also of classic topics.

    `timeout_s` is the client's, for lookups by time; the setting's if that is shorter, or if the client has none.
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
