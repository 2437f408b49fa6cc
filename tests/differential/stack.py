"""The servers of a run: two proxies and one broker, so that an answer of the broker is its final state."""

from __future__ import annotations

import sys
from pathlib import Path

from proxy.demo.ports import HOST
from proxy.demo.stack import Stack, StackOptions
from tests.differential.case import Listeners
from tests.differential.planted import BUGS
from tests.differential.side import NODE
from tests.support.stacks import short_lived

RACK = "rack-a"
OVERRIDES = {
    "diskless.append.commit.interval.ms": 5,
    "out_of_order_hold_ms": 20,
    "garbage": {"interval_ms": 500, "grace_ms": 3_000, "orphan_sweep_interval_ms": 2_000},
    "log.retention.check.interval.ms": 500,
}
"""Settings with which retention and deletions run all the time besides the operations."""


def options() -> StackOptions:
    return short_lived(
        racks=(RACK,),
        proxies_per_rack=2,
        overrides=OVERRIDES,
        broker_properties={"log.retention.ms": "-1"},  # records of any age are stored
    )


def listeners(stack: Stack, proxies: int = 2) -> Listeners:
    """Return the broker's own listener, and its listeners at the first proxies."""
    at_proxies = (f"{HOST}:{stack.ports.broker_port_start(place) + NODE}" for place in range(proxies))
    return Listeners((stack.kafka.address(NODE),), tuple(at_proxies))


def plant(stack: Stack, bug: str) -> Listeners:
    """Restart the first proxy with a bug, or without one if `bug` is empty; return its address."""
    proxy = stack.proxies[RACK]
    program = ["-P", str(Path(__file__).with_name("planted.py")), bug] if bug else ["-m", "proxy"]
    assert not bug or bug in BUGS
    stack.terminate_proxy(RACK)
    proxy.process.command = [sys.executable, *program, "run", "--config", str(proxy.config_path)]
    stack.start_proxy(RACK)
    return listeners(stack, proxies=1)
