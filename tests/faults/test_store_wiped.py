"""The coordinator's store loses everything under load: with a journal, nothing that was acknowledged is lost.

The load's ledger knows every acknowledged record and its offset. No operator does anything.
"""

from __future__ import annotations

import shutil

import redis

from proxy.demo.stack import Stack
from tests.support.load import assert_right, load_of, wait_for_more
from tests.support.topics import CLASSIC, DISKLESS

WIPES = 3


def test_the_store_is_emptied_under_load(stack: Stack) -> None:
    with load_of(stack) as load, redis.Redis.from_url(stack.redis.url) as client:
        wait_for_more(load, DISKLESS)
        for _ in range(WIPES):
            client.flushall()
            wait_for_more(load, DISKLESS, 200)
            wait_for_more(load, CLASSIC)
        tally = load.stop()
    assert_right(tally)


def test_the_store_loses_its_process_and_directory_under_load(stack: Stack) -> None:
    with load_of(stack) as load:
        wait_for_more(load, DISKLESS)
        stack.kill_redis()
        shutil.rmtree(stack.directory / "data" / "redis")
        stack.redis.prepare()
        stack.start_redis()
        wait_for_more(load, DISKLESS, 200)
        tally = load.stop()
    assert_right(tally)
