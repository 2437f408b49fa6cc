"""Merge, compaction and audit, killed again and again under load; `python -m tests.pipeline_under_load` is the long
run."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from proxy.demo.stack import Stack
from tests.pipeline_under_load.run import SETTINGS, RunOptions, pipeline_under_load

SECONDS = 12.0


@pytest.mark.timeout(600)
def test_three_readers_get_every_record_once_and_in_order(new_stack: Callable[..., Stack]) -> None:
    stack = new_stack(racks=("rack-a", "rack-b"), overrides=SETTINGS, start_timeout_seconds=180.0)
    report = pipeline_under_load(stack, RunOptions(SECONDS, seed=20, kill_share=1.0, kill_within_seconds=6.0))
    assert report.problems == []
    assert sum(report.killed.values()) >= 1
    assert report.done["merge"] >= 1
    assert report.done["audit"] >= 1
    assert report.acknowledged > 0
    assert len(set(report.read.values())) == 1, report.read
    assert report.compacted_away > 0
