"""What a diskless topic answers otherwise than a classic one, on purpose or for now; docs/differences.md says why.

Everything else that a client observes of a diskless topic has to be what it observes of a classic one at the brokers.
"""

from __future__ import annotations

from copy import deepcopy

from tests.conformance.scenario import Observation

OWN_REPLICAS = "The leader of a diskless partition is a broker of the client's rack"
"""The words that docs/differences.md begins it with; so for the others."""
TRANSACTIONS = "Transactions on a diskless topic"
"""The scenarios with transactions are for classic topics only."""
DOCUMENTED = (OWN_REPLICAS, TRANSACTIONS)

DESCRIPTIONS = ("described", "described 1", "described 3")


def without_differences(observed: Observation) -> Observation:
    """What has to be the same of a classic topic at the brokers and of a diskless one."""
    same = deepcopy(observed)
    for name in DESCRIPTIONS:
        for partition in same.get(name, []):
            del partition["replicas"]
    return same
