"""A short run of failovers under load; `make failover-run` takes ten minutes."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.failovers_under_load.run import RunOptions, failovers_under_load


@pytest.mark.timeout(180)
async def test_no_offset_has_two_values_after_a_failover_and_each_loss_is_counted(tmp_path: Path) -> None:
    report = await failovers_under_load(RunOptions(10.0, 5, tmp_path))
    assert report.books.problems == []
    assert report.failovers.total() >= 1
    assert report.books.acknowledged > 0
