"""A short run of generated operations finds no difference; with a bug planted in a proxy, it finds the bug.

The long run is a command: `python -m tests.differential`.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from proxy.demo.stack import Stack
from tests.differential.planted import BUGS
from tests.differential.run import run
from tests.differential.stack import listeners, options, plant
from tests.differential.views import BATCHES
from tests.tiers import Tier

pytestmark = [pytest.mark.stack, pytest.mark.timeout(400)]

SEED = 20_261_121
OPERATIONS_OF_TIER = {Tier.QUICK: 400, Tier.FULL: 1_200}
MOST_OPERATIONS_TO_FIND = 1_200
FOUND_AT = {
    "duplicate-offset": {"base_offset"},
    "time-lookup": {"offset", "timestamp", "leader_epoch"},
    "watermark": {"high_watermark", "last_stable_offset"},
    "byte-limit": {BATCHES},
    "delete-bound": {"error_code", "low_watermark"},
}
"""Fields in which the bug shows."""


@pytest.fixture(scope="module")
def differential_stack() -> Iterator[Stack]:
    with Stack(options()) as running:
        yield running


def test_both_kinds_answer_the_same(differential_stack: Stack, pytestconfig: pytest.Config) -> None:
    operations = OPERATIONS_OF_TIER[pytestconfig.getoption("tier")]
    outcome = run(listeners(differential_stack), operations=operations, seed=SEED)
    assert outcome.found is None, str(outcome)
    assert outcome.operations >= operations
    assert len(outcome.done) == 11, "not every kind of operation was among them"


@pytest.mark.parametrize("bug", BUGS)
def test_a_planted_bug_is_found(differential_stack: Stack, bug: str) -> None:
    asked = plant(differential_stack, bug)
    outcome = run(asked, operations=MOST_OPERATIONS_TO_FIND, seed=SEED, most_replays=0)
    assert outcome.found is not None, f"not found by {outcome.operations} operations"
    assert {one.path[-1] for one in outcome.found.found} & FOUND_AT[bug], str(outcome)
