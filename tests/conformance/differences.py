"""Differences between a diskless and a classic topic, intended or temporary; docs/differences.md gives the reasons.

In everything else, a client must observe the same of a diskless topic as of a classic one at the brokers.
"""

from __future__ import annotations

from copy import deepcopy

from tests.conformance.scenario import Observation

OWN_REPLICAS = "The leader of a diskless partition is a broker of the client's rack"
"""First words of the entry in docs/differences.md."""
DOCUMENTED = (OWN_REPLICAS,)

DESCRIPTIONS = ("described", "described 1", "described 3")


def without_differences(observed: Observation) -> Observation:
    """Return the observations that must be the same for a classic topic at the brokers and for a diskless one."""
    same = deepcopy(observed)
    for name in DESCRIPTIONS:
        for partition in same.get(name, []):
            del partition["replicas"]
    return same
