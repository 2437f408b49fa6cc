"""Batches that failed for now: what their producers sent after them is rejected until they arrive again.

A log that is not empty accepts any first sequence of a producer that it does not know. If a producer's first batch
fails and its next one passes, the first one can never be stored: it is OUT_OF_ORDER_SEQUENCE_NUMBER from then on.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict

KEPT_S = 5.0
"""How long a failure counts, if the log is likely to know the producer, and so would reject what comes too early. A
producer that continues through another proxy, or abandons the batch, must not wait for long."""
FIRST_KEPT_S = 20.0
"""How long the failure of a producer's very first batch counts. Nothing else stops its successor, which comes late if
the proxy does not read the connection for want of memory."""
_MAX_FAILURES = 10_000
"""Producers in partitions; the oldest failures make room."""
_SEQUENCES = 1 << 31
_Producer = tuple[bytes, int, int, int]
"""Topic ID, partition, producer ID, producer epoch."""


class FailedBatches:
    """The earliest batch of each idempotent producer and partition that failed and has not arrived again."""

    def __init__(self) -> None:
        self._failed: OrderedDict[_Producer, tuple[int, float]] = OrderedDict()
        """Base sequence, and when it failed."""

    def note(self, topic_id: bytes, partition: int, producer_id: int, epoch: int, base_sequence: int) -> None:
        """Keep that a batch failed with a retriable error."""
        if producer_id < 0:
            return
        producer = topic_id, partition, producer_id, epoch
        now_s = asyncio.get_running_loop().time()
        known = self._failed.get(producer)
        if known is None or now_s - known[1] > _kept_s(known[0]) or not _is_after(base_sequence, known[0]):
            self._failed[producer] = base_sequence, now_s
        self._failed.move_to_end(producer)
        if len(self._failed) > _MAX_FAILURES:
            self._failed.popitem(last=False)

    def comes_too_early(
        self, topic_id: bytes, partition: int, producer_id: int, epoch: int, base_sequence: int
    ) -> bool:
        """Return whether a batch follows one that failed; a batch that arrives again is a failure no more."""
        if not self._failed or producer_id < 0:
            return False
        producer = topic_id, partition, producer_id, epoch
        known = self._failed.get(producer)
        if known is None:
            return False
        failed_sequence, failed_at_s = known
        if (
            asyncio.get_running_loop().time() - failed_at_s > _kept_s(failed_sequence)
            or base_sequence == failed_sequence
        ):
            del self._failed[producer]
            return False
        return _is_after(base_sequence, failed_sequence)


def _kept_s(failed_sequence: int) -> float:
    return KEPT_S if failed_sequence else FIRST_KEPT_S


def _is_after(sequence: int, other: int) -> bool:
    """Return whether a sequence comes after another one, across the wrap from 2147483647 to 0."""
    return 0 < (sequence - other) % _SEQUENCES < _SEQUENCES // 2
