"""The stack of this folder, and the states that its tests wait for."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import redis

from proxy.coordinator.shards import FLEET_PREFIX
from proxy.creation.replication.keeper import LEASE
from proxy.demo.stack import Stack
from tests.conftest import QUICK_HOUSEKEEPING
from tests.support.stacks import short_lived

WAIT_SECONDS = 60.0
AT_ONCE = 2
"""Partitions that get replicas at the same time."""
LATE_NODE = 3
"""Broker of the third rack, which has never run when the first test begins."""


@pytest.fixture(scope="package")
def two_of_three() -> Iterator[Stack]:
    often = {"replication": {"check_interval_ms": 300, "partitions_at_once": AT_ONCE}}
    # Brokers create no journal of three replicas before three of them have joined.
    with Stack(short_lived(journal=False, brokers_started=2, overrides=QUICK_HOUSEKEEPING | often)) as stack:
        yield stack


def hold_lease(stack: Stack, milliseconds: int) -> None:
    """Hold the lease, so that no proxy of the stack completes anything for this long."""
    with redis.Redis.from_url(stack.redis.url) as store:
        store.set(f"{FLEET_PREFIX}lease:{LEASE}", "the test", px=milliseconds)
