"""A proxy is told to end, or is killed, under load: no acknowledged record lost, no idempotent record twice."""

from __future__ import annotations

from proxy.demo.stack import Stack
from tests.support.load import assert_right, load_of, wait_for_more
from tests.support.topics import CLASSIC, DISKLESS, KINDS


def test_terminated_it_answers_what_is_under_way(stack: Stack) -> None:
    with load_of(stack) as load:
        for rack in ("rack-a", "rack-b"):
            wait_for_more(load, DISKLESS)
            assert stack.terminate_proxy(rack) == 0
            for kind in KINDS:
                wait_for_more(load, kind)
            stack.start_proxy(rack)
        wait_for_more(load, DISKLESS)
        tally = load.stop()
    assert_right(tally)


def test_killed_and_started_again_it_repeats_nothing(stack: Stack) -> None:
    with load_of(stack) as load:
        for rack in ("rack-a", "rack-b", "rack-a", "rack-c"):
            wait_for_more(load, DISKLESS)
            stack.kill_proxy(rack)
            wait_for_more(load, CLASSIC)
            stack.start_proxy(rack)
        wait_for_more(load, DISKLESS, 200)
        tally = load.stop()
    assert_right(tally)
