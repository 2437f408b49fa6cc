"""Offsets of diskless partitions, asked of the coordinator for the handlers that answer with them."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from proxy.config import FetchSettings, Redis
from proxy.coordinator.interface import (
    LATEST_STABLE_TIMESTAMP,
    LATEST_TIMESTAMP,
    CoordinatorUnavailable,
    ListRequest,
    OffsetAnswer,
)
from proxy.coordinator.patience import patiently
from proxy.diskless.coordinates import Coordinates
from proxy.diskless.time_lookup import TimeLookup
from proxy.protocol.errors import KAFKA_STORAGE_ERROR
from proxy.telemetry.throttled_log import ThrottledLog


class Offsets:
    """Looks up offsets of diskless partitions."""

    def __init__(
        self,
        fetch: FetchSettings,
        redis: Redis,
        *,
        time_lookup: TimeLookup,
        coordinates: Coordinates,
        throttled_log: ThrottledLog,
        now: Callable[[], float],
    ) -> None:
        """`now`: monotonic seconds."""
        self._fetch = fetch
        self._redis = redis
        self._time_lookup = time_lookup
        self._coordinates = coordinates
        self._throttled_log = throttled_log
        self._now = now
        self._away_since_s: float | None = None
        """Time since when the coordinator has not answered; None if it did, the last time."""

    async def listed(
        self, wanted: Sequence[ListRequest], timeout_s: float | None = None, *, committed: bool = False
    ) -> list[OffsetAnswer]:
        """Return offsets in the order of `wanted`; KAFKA_STORAGE_ERROR for all if the coordinator is unreachable.

        The error is retriable, but admin clients pass it on. So the coordinator is asked again first, for the time of
        one of its calls since it was found unreachable. Later in an outage no request waits, because that would hold up
        later requests, also of classic topics.

        `timeout_s` is the client's, for lookups by time; the setting's if that is shorter, or if the client has none.
        `committed`: lookups by time find nothing from the last stable offset on.
        """
        if not wanted:
            return []
        longest_s = self._fetch.time_lookup_timeout_ms / 1000
        if timeout_s is not None:
            longest_s = min(timeout_s, longest_s)
        began_s = self._now()
        away_since_s = began_s if self._away_since_s is None else self._away_since_s
        patient_s = self._redis.timeout_ms / 1000 - (began_s - away_since_s)

        async def ask() -> list[OffsetAnswer]:
            left_s = max(0.0, began_s + longest_s - self._now())
            return await self._time_lookup.list_offsets(wanted, left_s, committed=committed)

        try:
            answers = await patiently(ask, within_s=min(patient_s, longest_s))
            self._away_since_s = None
        except CoordinatorUnavailable as error:
            self._away_since_s = away_since_s
            self._throttled_log.warning("offsets_unavailable", reason=str(error))
            return [OffsetAnswer(KAFKA_STORAGE_ERROR, -1, -1)] * len(wanted)
        self._note_ends(wanted, answers)
        return answers

    def _note_ends(self, wanted: Sequence[ListRequest], answers: Sequence[OffsetAnswer]) -> None:
        """Let no later Fetch go below the ends in these answers."""
        for request, answer in zip(wanted, answers, strict=True):
            log = request.topic_id, request.partition
            if request.timestamp_ms == LATEST_TIMESTAMP:
                self._coordinates.note(*log, high_watermark=answer.offset)
            elif request.timestamp_ms == LATEST_STABLE_TIMESTAMP:
                self._coordinates.note(*log, last_stable_offset=answer.offset)
