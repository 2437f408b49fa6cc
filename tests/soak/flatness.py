"""Whether a figure grows: the robust slope of its samples against a bound."""

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
"""Of a run, and of a process's life: what comes before does not count."""
MIN_SAMPLES = 15
FLOOR_SECONDS = 300.0
"""Longer than a shift of applications."""


class Point(NamedTuple):
    """One sample."""

    at_s: float
    value: float


@dataclass(frozen=True, slots=True)
class Bound:
    """How much a figure may grow within an hour: the larger of both."""

    figure: str
    unit: str
    share: float
    """Of its median."""
    amount: float
    """In its unit."""
    by_process: bool = True
    """Whether every life of a process is judged for itself."""
    floor: bool = False
    """Judged is the lowest of each FLOOR_SECONDS: what comes and goes with clients does not grow; what they leave
    behind raises the floor."""

    def allowed(self, middle: float) -> float:
        """In its unit, in an hour."""
        return max(self.share * middle, self.amount)


@dataclass(frozen=True, slots=True)
class Verdict:
    """What came of one figure of one process, or of one store."""

    figure: str
    unit: str
    of: str
    seconds: float
    """From the first sample that counts to the last one."""
    first: float
    """The median of the first tenth of the samples that count."""
    last: float
    """Of the last tenth."""
    middle: float
    per_hour: float
    """By the slope."""
    allowed: float
    """In an hour."""

    @property
    def flat(self) -> bool:
        """Shrinking is no growth."""
        return self.per_hour <= self.allowed


def slope(points: Sequence[Point]) -> float:
    """Theil and Sen's: the median of the slopes of all pairs, per second; of many pairs, those of a fixed choice."""
    pairs = [(one, other) for one, other in combinations(points, 2) if other.at_s > one.at_s]
    if len(pairs) > MAX_PAIRS:
        pairs = random.Random(0).sample(pairs, MAX_PAIRS)
    return median((other.value - one.value) / (other.at_s - one.at_s) for one, other in pairs) if pairs else 0.0


def floors(points: Sequence[Point]) -> list[Point]:
    """The lowest of each FLOOR_SECONDS, the earliest of equals; without a rest at the end of less than half of that."""
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
    """A verdict on what comes after the warm-up; None where that is too short for one."""
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
