"""A short soak: every part once; nothing is lost and no error surfaces. Flatness takes an hour."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from proxy.demo.stack import Stack
from tests.soak.run import BROKER_PROPERTIES, SETTINGS, RunOptions, soak
from tests.soak.samples import STORES

FAULTS = ("a proxy is killed", "a proxy is drained and started", "connections to Redis are reset")
SHORT = RunOptions(
    seconds=5.0,
    longer_seconds=300.0,  # ends as soon as everything has happened once
    seed=11,
    clients=("go",),
    shift_seconds=600.0,  # one shift that lives through all faults
    errand_pause_seconds=30.0,
    renew_seconds=4.0,
    fault_seconds=1.0,
    job_pause_seconds=-1.0,
    sample_seconds=2.0,
    restarts=(),
    faults=FAULTS,
)


@pytest.mark.timeout(600)
def test_nothing_is_lost_and_nothing_surfaces(new_stack: Callable[..., Stack]) -> None:
    stack = new_stack(
        racks=("rack-a", "rack-b"),
        overrides=SETTINGS,
        broker_properties=BROKER_PROPERTIES,
        start_timeout_seconds=180.0,
    )
    report = soak(stack, SHORT)
    assert report.problems == []
    assert report.right
    assert {what for _, what, _ in report.happened} == {*FAULTS}
    assert all(one["produced"] > 0 for one in report.load.values())
    assert all(one["records"] > 0 for one in report.groups.values())
    assert report.shifts == 1
    assert report.applications["go"] > 0
    assert sum(report.errands.values()) >= 1
    assert report.pipeline["jobs"] == {"audit": 1}
    assert {row["of"] for row in report.samples} == {*stack.proxies, STORES}
