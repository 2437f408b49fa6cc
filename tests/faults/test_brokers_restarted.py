"""Restart the brokers one after the other, cleanly, under load through the proxies."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from proxy.demo.stack import Stack
from tests.support.load import assert_right, load_of, wait_for_more
from tests.support.topics import KINDS


@pytest.mark.timeout(480)
def test_a_rolling_restart_of_the_brokers_loses_and_repeats_nothing(new_stack: Callable[..., Stack]) -> None:
    """On a stack of its own: brokers with the topics of hundreds of tests take minutes to stop and to start."""
    stack = new_stack(overrides={"diskless_append_commit_interval_ms": 50})
    with load_of(stack) as load:
        for node in stack.kafka.brokers:
            for kind in KINDS:
                wait_for_more(load, kind)
            stack.stop_broker(node)
            for kind in KINDS:
                wait_for_more(load, kind)
            stack.start_broker(node)
        for kind in KINDS:
            wait_for_more(load, kind)
        tally = load.stop()
    assert_right(tally)
