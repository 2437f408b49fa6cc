"""The coordinator's store hangs or dies under load: diskless produces wait, classic topics are not affected."""

from __future__ import annotations

import time

from proxy.config import load_settings
from proxy.demo.stack import Stack
from tests.support.load import acknowledged, assert_right, load_of, wait_for_more
from tests.support.readiness import readiness, wait_not_ready
from tests.support.topics import CLASSIC, DISKLESS


def test_the_store_hangs_for_longer_than_a_lease(stack: Stack) -> None:
    lease_s = load_settings(stack.config_path("rack-a")).fleet.lease_ms / 1000
    with load_of(stack) as load:
        wait_for_more(load, DISKLESS)
        stack.pause("redis")
        until = time.monotonic() + lease_s + 2
        while time.monotonic() < until:
            wait_for_more(load, CLASSIC)
        wait_not_ready(stack.admin_url("rack-b"), "coordinator:")
        assert readiness(stack.admin_url("rack-b"), "servez") == (200, "serving"), "clients are still sent there"
        held = acknowledged(load, DISKLESS)
        wait_for_more(load, CLASSIC)
        assert acknowledged(load, DISKLESS) == held
        stack.resume("redis")
        wait_for_more(load, DISKLESS, 200)
        tally = load.stop()
    assert_right(tally)


def test_the_store_is_killed_and_restarted(stack: Stack) -> None:
    with load_of(stack) as load:
        wait_for_more(load, DISKLESS)
        stack.kill_redis()
        wait_for_more(load, CLASSIC)
        stack.start_redis()
        wait_for_more(load, DISKLESS, 200)
        tally = load.stop()
    assert_right(tally)
