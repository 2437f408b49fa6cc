"""The coordinator's store loses everything under load: with a journal, nothing that was acknowledged is lost.

The load's ledger knows every acknowledged record and its offset. No operator does anything.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable

import pytest
import redis

from proxy.demo.stack import Stack
from tests.support.load import assert_right, load_of, wait_for_more
from tests.support.topics import CLASSIC, DISKLESS

WIPES = 3
pytestmark = pytest.mark.stack


def test_nothing_is_lost_if_the_store_loses_everything_under_load(new_stack: Callable[..., Stack]) -> None:
    stack = new_stack(journal=True)
    with load_of(stack) as load, redis.Redis.from_url(stack.redis.url) as client:
        wait_for_more(load, DISKLESS)
        for _ in range(WIPES):
            assert client.dbsize() > 0
            client.flushall()
            wait_for_more(load, DISKLESS, 200)
            wait_for_more(load, CLASSIC)
        # Its process and its directory, too: an empty server takes its place.
        stack.kill_redis()
        shutil.rmtree(stack.directory / "data" / "redis")
        stack.redis.prepare()
        stack.start_redis()
        wait_for_more(load, DISKLESS, 200)
        tally = load.stop()
    assert_right(tally)
