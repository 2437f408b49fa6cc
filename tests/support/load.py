"""The demo's load, at the size that tests run while they break things."""

from __future__ import annotations

import time
from dataclasses import replace

from proxy.demo.load import Load, LoadOptions
from proxy.demo.stack import Stack
from proxy.demo.tally import Tally
from tests.support.topics import replica_count

OPTIONS = LoadOptions(
    partitions=3,
    producers_per_rack=1,
    records_per_second=100,
    delivery_timeout_seconds=90,
    settle_seconds=90,
    producers_nice=10,
)


def load_of(stack: Stack, options: LoadOptions = OPTIONS) -> Load:
    """Create idempotent producers and checking consumers in every rack, on a classic and a diskless topic."""
    options = replace(options, replication_factor=replica_count(stack))
    return Load({rack: stack.bootstrap(rack) for rack in stack.options.racks}, options)


def acknowledged(load: Load, kind: str) -> int:
    """Return how many records of one kind are acknowledged so far."""
    return load.tally().topics[kind].produced


def wait_for_more(load: Load, kind: str, more: int = 30, timeout_seconds: float = 60.0) -> int:
    """Wait until `count` more records are acknowledged; return the new total."""
    goal = acknowledged(load, kind) + more
    deadline = time.monotonic() + timeout_seconds
    while (now := acknowledged(load, kind)) < goal:
        load.check()
        assert time.monotonic() < deadline, f"{kind}: {goal - now} of {more} more records were not acknowledged in time"
        time.sleep(0.05)
    return now


def assert_right(tally: Tally) -> None:
    """Require every acknowledged record exactly once in every rack, and no error that a producer cannot recover
    from."""
    assert tally.right, tally.findings
    assert {kind: topic.failed for kind, topic in tally.topics.items()} == dict.fromkeys(tally.topics, 0)
