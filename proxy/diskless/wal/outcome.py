"""The outcome of a produced batch, and its report to the appender."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import NamedTuple

import structlog

from proxy.protocol.errors import KAFKA_STORAGE_ERROR, THROTTLING_QUOTA_EXCEEDED

log = structlog.get_logger()


class Outcome(NamedTuple):
    """The outcome of one batch."""

    error_code: int
    base_offset: int = -1
    append_time_ms: int = -1
    log_start_offset: int = -1
    error_message: str | None = None
    record_errors: tuple[tuple[int, str], ...] = ()
    """(place in the batch, text) of records that are to blame."""
    duplicate: bool = False
    """It was stored before, by an earlier attempt."""
    high_watermark: int = -1
    """The log's high watermark, as of this commit or a later one; -1 if it is unknown."""


Settle = Callable[[Outcome], None]


def producer_error(error_code: int) -> int:
    """Return the error for a producer if the coordinator answers this: librdkafka gives up at
    THROTTLING_QUOTA_EXCEEDED."""
    return KAFKA_STORAGE_ERROR if error_code == THROTTLING_QUOTA_EXCEEDED else error_code


def report(outcomes: Iterable[tuple[Settle, Outcome]]) -> None:
    """Report each outcome in its turn; if one report fails, the next ones are still made."""
    for settle, outcome in outcomes:
        try:
            settle(outcome)
        except Exception:
            log.exception("outcome_not_told", error_code=outcome.error_code)
