"""Ends the segment that is being filled when its time has come (`pace.py`), on the event loop."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from proxy.diskless.wal.pace import Deadline, PutBudget

_CLOCK_STEP_S = 0.001
"""Loops may count whole milliseconds: a timer may fire this much early."""


class SegmentTimer:
    """Calls `end` when the segment that is being filled is to end.

    `interval_s` is the longest wait of a batch whose topic has no patience (`diskless.append.commit.interval.ms`). A
    segment ends early only while fewer than `max_underway` segments are under way (`diskless.append.underway`);
    `underway` returns their number.
    """

    def __init__(
        self,
        end: Callable[[], None],
        underway: Callable[[], int],
        budget: PutBudget,
        *,
        interval_s: float,
        max_underway: int,
    ) -> None:
        self._end = end
        self._underway = underway
        self.budget = budget
        self.interval_s = interval_s
        self.max_underway = max_underway
        self._deadline: Deadline | None = None
        self._handle: asyncio.Handle | None = None

    def batch_added(self, patience_s: float) -> None:
        """Count a batch of the segment. It opens the segment if none is open.

        Nothing ends here, but in the loop's next step at the earliest: all batches of a request, and all requests that
        came together, share a segment.
        """
        loop = asyncio.get_running_loop()
        deadline = self._deadline
        if deadline is None:
            deadline = self._deadline = Deadline()
        elif deadline.may_be_early:
            return  # no later batch makes it end sooner
        if deadline.add(loop.time(), self.interval_s, patience_s):
            self._set(loop.call_soon(self.look))

    def look(self) -> None:
        """End the segment if it is time, or come back when it is. Call it, too, when a segment is under way no more."""
        deadline = self._deadline
        if deadline is None:
            return
        loop = asyncio.get_running_loop()
        now_s = loop.time()
        ends_s = deadline.ends_s(now_s, self.budget, may_begin=self._underway() < self.max_underway)
        if ends_s <= now_s:
            self._end()
        else:
            self._set(loop.call_at(max(ends_s, now_s + _CLOCK_STEP_S), self.look))

    def ended(self) -> None:
        """Note that the segment has ended, for whatever reason, and will be uploaded: a PUT."""
        if self._deadline is not None:
            self.budget.take(asyncio.get_running_loop().time())
        self.cancel()

    def cancel(self) -> None:
        """Forget the segment."""
        self._deadline = None
        self._set(None)

    def _set(self, handle: asyncio.Handle | None) -> None:
        if self._handle is not None:
            self._handle.cancel()
        self._handle = handle
