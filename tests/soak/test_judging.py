"""The calculations of the soak: slope, percentiles between samples, coverage, plots."""

from __future__ import annotations

import random
from xml.etree import ElementTree

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.soak.flatness import HOUR_SECONDS, Bound, Point, judge, slope
from tests.soak.group import Coverage
from tests.soak.plot import picture
from tests.soak.run import BOUNDS
from tests.soak.samples import percentile

MEMORY = Bound("rss_mib", "MiB", 0.03, 8.0)
RUN_SECONDS = 3_600


def samples(per_hour: float, *, noise: float = 3.0, spikes: int = 20) -> list[Point]:
    """Return samples of a process of 100 MiB that warms up for five minutes, with noise and occasional spikes."""
    chance = random.Random(1)
    spiked = set(chance.sample(range(0, RUN_SECONDS, 10), spikes))
    return [
        Point(
            at_s,
            100
            + per_hour * at_s / HOUR_SECONDS
            - max(0, 300 - at_s) / 6
            + chance.uniform(-noise, noise)
            + 200 * (at_s in spiked),
        )
        for at_s in range(0, RUN_SECONDS, 10)
    ]


@pytest.mark.parametrize(("per_hour", "flat"), [(0.0, True), (5.0, True), (-30.0, True), (12.0, False), (60.0, False)])
def test_growth_is_found_despite_noise_spikes_and_a_warm_up(per_hour: float, flat: bool) -> None:
    verdict = judge(MEMORY, "rack-a", samples(per_hour), 1_200)
    assert verdict is not None
    assert verdict.flat == flat
    assert verdict.per_hour == pytest.approx(per_hour, abs=1.5)
    assert verdict.allowed == 8.0


def test_the_larger_of_share_and_amount_counts() -> None:
    verdict = judge(MEMORY, "rack-a", [Point(at, 1_000.0) for at in range(0, RUN_SECONDS, 10)], 1_200)
    assert verdict is not None
    assert verdict.allowed == pytest.approx(30.0)


def test_a_short_life_is_not_judged() -> None:
    assert judge(MEMORY, "rack-a", samples(60.0)[:60], 1_200) is None
    assert judge(MEMORY, "rack-a", [], 1_200) is None


@pytest.mark.parametrize(("left_behind", "flat"), [(0.0, True), (30.0, False)])
def test_clients_that_come_and_go_are_not_growth_but_their_leaks_are(left_behind: float, flat: bool) -> None:
    """Three applications take turns as clients, and the last one opens the most connections."""
    descriptors = Bound("descriptors", "file descriptors", 0.05, 8.0, floor=True)
    points = [
        Point(at_s, 50 + left_behind * at_s / HOUR_SECONDS + 20 * (at_s // 1_200) * (at_s % 240 > 40))
        for at_s in range(0, RUN_SECONDS, 10)
    ]
    verdict = judge(descriptors, "rack-a", points, 1_200)
    assert verdict is not None
    assert verdict.flat == flat
    assert verdict.per_hour == pytest.approx(left_behind, abs=2.0)


@given(st.floats(-100, 100), st.floats(-1e4, 1e4), st.integers(2, 30))
def test_the_slope_of_a_line_is_exact(rise: float, start: float, count: int) -> None:
    points = [Point(at, start + rise * at) for at in range(count)]
    assert slope(points) == pytest.approx(rise, abs=1e-6)


def test_a_percentile_covers_only_the_observations_in_between() -> None:
    infinity = float("inf")
    before = {0.1: 100.0, 1.0: 100.0, infinity: 100.0}
    after = {0.1: 100.0, 1.0: 150.0, infinity: 150.0}
    assert percentile(before, after, 0.5) == pytest.approx(0.55)
    assert percentile(before, before, 0.5) is None
    assert percentile(before, {0.1: 100.0, 1.0: 100.0, infinity: 101.0}, 0.99) == 1.0
    assert percentile({}, {}, 0.5) is None


@given(st.permutations(range(30)), st.lists(st.integers(0, 29)))
def test_coverage_is_complete_in_any_order_and_counts_repeated_records(order: list[int], again: list[int]) -> None:
    covered = Coverage()
    for offset in order[:-1]:
        covered.add(offset)
    assert covered.next == order[-1]
    covered.add(order[-1])
    for offset in again:
        covered.add(offset)
    assert (covered.next, covered.beyond, covered.again) == (30, set(), len(again))


def test_a_plot_is_well_formed_and_has_a_gap_without_samples() -> None:
    lines = {"rack-a": [(0.0, 1.0), (10.0, 2.0), (200.0, 3.0)], "<rack>": [(0.0, 5.0)]}
    drawn = ElementTree.fromstring(picture("Memory & more", "MiB", lines, [50.0], 220.0))
    paths = [one.get("d", "") for one in drawn.iter("{http://www.w3.org/2000/svg}path") if one.get("stroke-width")]
    assert [path.count("M") for path in paths] == [2, 1]
    assert drawn.get("aria-label") == "Memory & more"


@pytest.mark.parametrize(("an_hour", "flat"), [(0.0, True), (3.0, True), (10.0, False)])
@pytest.mark.parametrize("dips_late", [False, True])
def test_all_samples_count_for_a_proxys_own_descriptors(an_hour: float, flat: bool, dips_late: bool) -> None:
    """A fault that resets a pool makes one sample low. Neither many early ones nor many late ones may count as
    growth."""
    (bound,) = [one for one in BOUNDS if one.figure == "own_descriptors"]
    chance = random.Random(1)
    points = []
    for at_s in range(0, 3_000, 10):
        late = at_s >= 1_500
        dip = chance.randrange(3, 8) if at_s % 150 == 0 and late == dips_late else 0
        points.append(Point(at_s, 43 + an_hour * at_s / 3_600 + chance.randrange(-1, 2) - dip))
    verdict = judge(bound, "rack-a", points, 1_200)
    assert verdict is not None
    assert verdict.flat == flat
