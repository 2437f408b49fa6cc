"""A primary of the demo's stores is killed under load: nothing is lost, and nothing is stored twice."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from proxy.demo.stack import Stack
from tests.support.load import assert_right, load_of, wait_for_more
from tests.support.topics import CLASSIC, DISKLESS

pytestmark = pytest.mark.stack


@pytest.mark.parametrize("kind", ["cluster", "sentinel"])
def test_nothing_is_lost_or_repeated_if_a_primary_is_killed(kind: str, new_stack: Callable[..., Stack]) -> None:
    stack = new_stack(redis=kind, racks=("rack-a",), overrides={"diskless_append_commit_interval_ms": 50})
    with load_of(stack) as load:
        wait_for_more(load, DISKLESS, 200)
        stack.process("redis-1").kill()
        if kind == "cluster":
            stack.process("redis-1").start()  # as the demo does at once
        wait_for_more(load, CLASSIC, 200)
        wait_for_more(load, DISKLESS, 500)
        stack.heal()
        wait_for_more(load, DISKLESS, 200)
        tally = load.stop()
    assert_right(tally)
