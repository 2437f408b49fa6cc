"""When a WAL segment ends, and how many PUTs that costs. Sans-io; seconds are monotonic.

A segment ends at its deadline at the latest. It ends earlier if a *token* is available and few enough segments are
under way. Tokens come at the rate of the budget, and each PUT takes one. So little traffic waits for no timer, and
much traffic makes as many PUTs as the budget allows.
"""

from __future__ import annotations

import math

BURST_PUTS = 8.0
"""Tokens that a budget holds at most: this many requests in a row find one each after a pause."""
_ENOUGH = 1 - 1e-6
"""A whole token, as far as floating-point numbers add up to one."""


class PutBudget:
    """The tokens of one process. `per_second` may change at any time."""

    __slots__ = ("_at_s", "_tokens", "burst", "per_second")

    def __init__(self, per_second: float, burst: float = BURST_PUTS) -> None:
        self.per_second = per_second
        self.burst = burst
        self._tokens = burst
        self._at_s = -math.inf

    def take(self, now_s: float) -> None:
        """Take the token of a PUT. A PUT that cannot wait for one takes what there is.

        So there is never a debt: PUTs of full segments that come faster than tokens leave none for others meanwhile.
        """
        self._tokens = max(0.0, self._available(now_s) - 1)
        self._at_s = now_s

    def wait_s(self, now_s: float) -> float:
        """Return the seconds until a token is available, 0 if one is."""
        available = self._available(now_s)
        if available >= _ENOUGH:
            return 0.0
        return (1 - available) / self.per_second if self.per_second > 0 else math.inf

    def _available(self, now_s: float) -> float:
        if self._at_s == -math.inf:
            return self.burst
        return min(self.burst, self._tokens + max(0.0, now_s - self._at_s) * self.per_second)


class Deadline:
    """The time at which one segment ends at the latest, and whether a token may end it earlier."""

    __slots__ = ("at_s", "may_be_early")

    def __init__(self) -> None:
        self.at_s = math.inf
        self.may_be_early = False

    def add(self, now_s: float, interval_s: float, patience_s: float) -> bool:
        """Count a batch that has just come. Return whether the segment may end earlier than before.

        `interval_s`: the longest wait of a batch whose topic has no patience. `patience_s`: that of this batch's topic.
        A batch whose topic has more patience than the interval takes no token: it waits for others, or for its time.
        """
        patient = patience_s > interval_s
        at_s = now_s + max(interval_s, patience_s)
        sooner = at_s < self.at_s or (self.may_be_early < (not patient))
        self.at_s = min(self.at_s, at_s)
        self.may_be_early = self.may_be_early or not patient
        return sooner

    def ends_s(self, now_s: float, budget: PutBudget, *, may_begin: bool) -> float:
        """Return the time at which the segment ends if nothing changes.

        `may_begin`: whether few enough segments are under way for one that ends early.
        """
        if not (self.may_be_early and may_begin):
            return self.at_s
        return min(self.at_s, now_s + budget.wait_s(now_s))
