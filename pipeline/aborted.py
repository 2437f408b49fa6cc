"""Recognize batches of aborted transactions."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable

from proxy.coordinator.interface_transactions import AbortedTransaction


class Aborted:
    """Some of the aborted transactions of one log, as the coordinator returns them with rows.

    The transactions of a producer follow one another, so the offset of a batch says which one it belongs to.
    """

    def __init__(self, transactions: Iterable[AbortedTransaction] = ()) -> None:
        self._firsts: dict[int, list[int]] = {}
        self._lasts: dict[int, list[int]] = {}
        transactions = sorted(set(transactions))
        for one in transactions:
            self._firsts.setdefault(one.producer_id, []).append(one.first_offset)
            self._lasts.setdefault(one.producer_id, []).append(one.last_offset)

        self._last_offsets = {one.last_offset for one in transactions}

    def ends_at(self, offset: int) -> bool:
        """Return whether the marker of one of them is at an offset."""
        return offset in self._last_offsets

    def has(self, producer_id: int, offset: int) -> bool:
        """Return whether a transactional batch of the producer at an offset was aborted."""
        firsts = self._firsts.get(producer_id)
        if firsts is None:
            return False
        place = bisect_right(firsts, offset) - 1
        return place >= 0 and offset <= self._lasts[producer_id][place]


NONE_ABORTED = Aborted()
