"""One proxy of the fleet at a time does what all could do: whoever holds the lease of that name."""

from __future__ import annotations

from proxy.coordinator.interface import CoordinatorUnavailable, FleetStore

LEASE_MS = 5_000
"""A lease that nobody renews goes to the next one after so long."""


async def hold_lease(store: FleetStore, name: str, holder: str) -> bool:
    """Take or renew a lease; whether `holder` has it. Nobody has while the store is away: the fleet logs it."""
    try:
        return await store.hold(name, holder, LEASE_MS)
    except CoordinatorUnavailable:
        return False
