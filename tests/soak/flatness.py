"""Decide whether a figure grows: the robust slope of its samples against a bound."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations
from statistics import median
from typing import NamedTuple

HOUR_SECONDS = 3_600.0
MAX_PAIRS = 200_000
WARM_UP_SHARE = 0.15
"""Start-up time of a run, and of a process's life; earlier samples do not count."""
MIN_SAMPLES = 15
FLOOR_SECONDS = 300.0
"""Duration that is longer than a shift of applications."""


class Point(NamedTuple):
    """One sample."""

    at_s: float
    value: float


@dataclass(frozen=True, slots=True)
class Bound:
    """Maximum growth of a figure within an hour: the larger of both limits."""

    figure: str
    unit: str
    share: float
    """Share of the figure's median."""
    amount: float
    """Amount in the figure's unit."""
    by_process: bool = True
    """True if every life of a process is judged separately."""
    floor: bool = False
    """True if only the lowest sample of each FLOOR_SECONDS counts. Clients that come and go do not raise this floor; a
    leak that they leave behind raises it."""

    def allowed(self, middle: float) -> float:
        """Return the allowed growth per hour, in the figure's unit."""
        return max(self.share * middle, self.amount)


@dataclass(frozen=True, slots=True)
class Verdict:
    """The result for one figure of one process, or of one store."""

    figure: str
    unit: str
    of: str
    seconds: float
    """Time from the first sample that counts to the last one."""
    first: float
    """Median of the first tenth of the samples that count."""
    last: float
    """Median of the last tenth."""
    middle: float
    per_hour: float
    """Growth according to the slope."""
    allowed: float
    """Growth that is allowed in an hour."""

    @property
    def flat(self) -> bool:
        """True if the figure does not grow; shrinking is fine."""
        return self.per_hour <= self.allowed


def slope(points: Sequence[Point]) -> float:
    """Return the Theil–Sen slope, the median of the slopes of all pairs, per second; with many pairs, of a fixed
    sample."""
    pairs = [(one, other) for one, other in combinations(points, 2) if other.at_s > one.at_s]
    if len(pairs) > MAX_PAIRS:
        pairs = random.Random(0).sample(pairs, MAX_PAIRS)
    return median((other.value - one.value) / (other.at_s - one.at_s) for one, other in pairs) if pairs else 0.0


def floors(points: Sequence[Point]) -> list[Point]:
    """Return the lowest sample of each FLOOR_SECONDS, the earliest of equals. A short rest at the end, less than half
    of that, is left out."""
    lowest: dict[int, Point] = {}
    begin_s = points[0].at_s
    for point in points:
        number = int((point.at_s - begin_s) // FLOOR_SECONDS)
        if number not in lowest or point.value < lowest[number].value:
            lowest[number] = point
    if len(lowest) > 1 and points[-1].at_s - begin_s < (max(lowest) + 0.5) * FLOOR_SECONDS:
        del lowest[max(lowest)]
    return list(lowest.values())


def judge(bound: Bound, of: str, points: Sequence[Point], min_seconds: float) -> Verdict | None:
    """Return a verdict on the samples after the warm-up; None if there are too few."""
    if not points:
        return None
    begin_s = points[0].at_s + WARM_UP_SHARE * (points[-1].at_s - points[0].at_s)
    counted = [point for point in points if point.at_s >= begin_s]
    seconds = counted[-1].at_s - counted[0].at_s
    if len(counted) < MIN_SAMPLES or seconds < min_seconds:
        return None
    if bound.floor:
        counted = floors(counted)
    values = [point.value for point in counted]
    tenth = max(1, len(values) // 10)
    middle = median(values)
    return Verdict(
        bound.figure,
        bound.unit,
        of,
        seconds,
        median(values[:tenth]),
        median(values[-tenth:]),
        middle,
        slope(counted) * HOUR_SECONDS,
        bound.allowed(middle),
    )
