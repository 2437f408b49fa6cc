"""The open transactions of the shards that fall to this proxy, looked at from time to time."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection

from proxy.coordinator.interface import CoordinatorUnavailable
from proxy.coordinator.interface_transactions import OpenTransaction, TransactionCoordinator

LOOK_S = 15.0


class OpenTransactions:
    """Keeps the number of open transactions, and the age of the oldest one, as of the last look."""

    def __init__(
        self,
        transactions: TransactionCoordinator,
        shards: Callable[[], Collection[int]],
        followed: Callable[[], int],
        now_ms: Callable[[], int],
    ) -> None:
        """`shards` returns those of this proxy, `followed` its number of followed shadows, without which no
        transaction is open, and `now_ms` the time of the coordinator's store."""
        self._transactions = transactions
        self._shards = shards
        self._followed = followed
        self._now_ms = now_ms
        self._oldest_ms: int | None = None
        self.count = 0

    @property
    def oldest_seconds(self) -> float:
        """Age of the oldest open transaction; 0 without one."""
        return 0.0 if self._oldest_ms is None else max(0, self._now_ms() - self._oldest_ms) / 1000

    async def keep_looking(self) -> None:
        """Look, forever."""
        while True:
            try:
                await self.look()
            except CoordinatorUnavailable:
                pass  # the fleet's heartbeats say it in the log
            await asyncio.sleep(LOOK_S)

    async def look(self) -> list[OpenTransaction]:
        """Return the open transactions. Raises CoordinatorUnavailable."""
        found: list[OpenTransaction] = []
        if self._followed():
            found = await self._transactions.open_transactions(sorted(self._shards()))
        self.count = len(found)
        self._oldest_ms = min((one.since_ms for one in found), default=None)
        return found
