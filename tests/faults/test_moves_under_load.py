"""Read classic topics through the proxies and directly, while leaders and replicas move, brokers hang, proxies die.

`python -m tests.moves_under_load` does more of it, for longer.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest

from proxy.demo.stack import Stack
from tests.moves_under_load.run import BROKER_PROPERTIES, RunOptions, moves_under_load

MOVES = ("elect", "freeze out of the ISR", "grow", "kill proxy", "reassign", "renew")
"""Moves, once each. Deaths of brokers, which take long to return, are in `test_leader_frozen.py` and in the long
run."""


@pytest.mark.timeout(300)
def test_reads_continue_and_equal_those_of_a_direct_client(new_stack: Callable[..., Stack]) -> None:
    stack = new_stack(
        racks=("rack-a", "rack-b"), brokers_per_rack=2, broker_properties=BROKER_PROPERTIES, start_timeout_seconds=180.0
    )
    kinds = ("aiokafka", "fetch-v4")
    report = moves_under_load(stack, RunOptions(0.0, seed=7, kinds=kinds, moves=MOVES))
    assert report.problems == []
    assert report.moves == dict.fromkeys(MOVES, 1)
    assert min(report.read.values()) > 0
    assert report.fetched_bytes["near"] > report.fetched_bytes["far"], report.leader_reads
