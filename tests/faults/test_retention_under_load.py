"""Retention and deletions under load, with the lease holder killed; `python -m tests.retention_under_load` is the long
run."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from proxy.demo.stack import Stack
from tests.retention_under_load.run import SETTINGS, RunOptions, retention_under_load

SECONDS = 20.0


@pytest.mark.timeout(300)
def test_the_bucket_follows_the_live_bytes_and_readers_get_all_live_records(new_stack: Callable[..., Stack]) -> None:
    """On a stack of its own: the run allows housekeeping so many seconds, and the topics of other tests take some."""
    report = retention_under_load(new_stack(overrides=SETTINGS), RunOptions(SECONDS, seed=20))
    assert report.problems == []
    assert report.proxies_killed >= 1
    assert report.records_deletions >= 1
    assert report.topics_made > 5, "none was deleted and made again"
    assert report.overtaken or report.bytes["most_waiting"] > 0, "nothing was given back"
    assert min(report.read.values()) > 0
