"""Each kind of anomaly is found where one is planted into a clean history, and is named with its evidence."""

from __future__ import annotations

from functools import cache
from random import Random

import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from proxy.judge.findings import Anomaly
from proxy.judge.judge import judge
from tests.support.histories import clean_history
from tests.support.planted_anomalies import PLANTS, NothingToPlantInError, Plant, planted

SEEDS = 60
"""Different histories. They are made once, because every plant uses them."""
history_of = cache(lambda seed: clean_history(seed, steps=80))


def test_every_kind_is_planted() -> None:
    assert {anomaly for anomaly, _ in PLANTS.values()} == set(Anomaly)


@pytest.mark.parametrize("plant", PLANTS, ids=lambda plant: plant.__name__)
@given(seed=st.integers(0, SEEDS - 1))
@settings(max_examples=15, suppress_health_check=[HealthCheck.filter_too_much])
def test_a_planted_anomaly_is_found_and_no_other(plant: Plant, seed: int) -> None:
    try:
        history = planted(plant, history_of(seed), Random(seed))
    except NothingToPlantInError:
        assume(False)
    verdict = judge(history)
    anomaly, others = PLANTS[plant]
    assert not verdict.ok
    assert anomaly in verdict.totals
    assert set(verdict.totals) <= {anomaly, *others}, verdict.findings
    found = next(finding for finding in verdict.findings if finding.anomaly is anomaly)
    assert found.message
    if anomaly is not Anomaly.STUCK:
        assert found.topic == "t"
        assert found.offsets or found.values
        assert found.operations
