"""Choose the shadows that this proxy follows, and the brokers to read them from.

Each shard of the coordinator has one proxy that follows its shadows: the first live proxy in an order that a rendezvous
hash gives. While proxies differ about who lives, two of them may follow the same shadows. That is harmless: the
coordinator applies each marker once. A shadow that nobody follows for a moment delays readers of committed records
only, since a proxy that waits for a marker reads it itself (`catching_up.py`).

A shadow is followed while a transaction is open in its log, and for a while after the last one. An announcement of
records whose transaction is open is a hint to follow; such announcements may be lost, so the coordinator is asked every
second, too.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping

import structlog

from proxy.brokers.service import ServiceConnection
from proxy.brokers.upstream import BrokerUnreachable
from proxy.config.transactions import Transactions
from proxy.coordinator.interface import CoordinatorUnavailable, ShardFenced
from proxy.coordinator.interface_transactions import ShadowPosition, TransactionCoordinator
from proxy.coordinator.shards import partition_key, shard_of
from proxy.markers.broker_tail import BrokerTail, Failures
from proxy.markers.leaders import Log, ShadowLeaders
from proxy.markers.reader import MarkerReader
from proxy.process.waiting import wait_at_most
from proxy.routing.sticky import sticky_choice
from proxy.telemetry.outage import Outage
from proxy.wire.errors import ProtocolError

log = structlog.get_logger()

LOOK_S = 1.0
"""Time between two questions to the coordinator."""
_RETRY_S = 0.1
"""The same after a failure, for which another broker may lead."""
_POSITIONS_PER_CALL = 500


class MarkerFollower:
    """Follows the shadows of the shards that fall to this proxy."""

    def __init__(
        self,
        transactions: TransactionCoordinator,
        reader: MarkerReader,
        leaders: ShadowLeaders,
        connect: Callable[[int], ServiceConnection],
        settings: Transactions,
        *,
        shards: int,
        identity: str,
        live: Callable[[], Mapping[str, bool]],
        now: Callable[[], float],
    ) -> None:
        """`live` returns the live proxies, and whether each of them serves; `identity` is this one's, and `now` the
        loop's time."""
        self._now = now
        self._transactions = transactions
        self._reader = reader
        self._leaders = leaders
        self._connect = connect
        self._settings = settings
        self._shards = shards
        self._identity = identity
        self._live = live
        self._positions: dict[Log, ShadowPosition] = {}
        """Followed shadows."""
        self._hinted: set[Log] = set()
        self._own: frozenset[int] = frozenset()
        self._tails: dict[int, BrokerTail] = {}
        self._tasks: dict[int, asyncio.Task[None]] = {}
        self._at: dict[Log, int] = {}
        """The broker at which a shadow is followed."""
        self._failing_since_s: dict[Log, float] = {}
        self._outage = Outage()
        self._woken = asyncio.Event()

    def __len__(self) -> int:
        """Return the number of followed shadows."""
        return len(self._positions)

    @property
    def own_shards(self) -> frozenset[int]:
        """Shards whose shadows fall to this proxy."""
        return self._own

    def stalled_seconds(self) -> float:
        """Return for how long a followed shadow could not be read; the longest of them."""
        since_s = min(self._failing_since_s.values(), default=None)
        return 0.0 if since_s is None else self._now() - since_s

    def hint(self, topic_id: bytes, partition: int) -> None:
        """Follow a shadow soon, if it falls to this proxy: a transaction is open in its log."""
        one = topic_id, partition
        if one not in self._positions and self._is_own(one):
            self._hinted.add(one)
            self._woken.set()

    async def follow(self) -> None:
        """Follow forever. Cancelled, all connections are closed."""
        next_look_s = self._now()
        try:
            while True:
                try:
                    if self._now() >= next_look_s:
                        next_look_s = self._now() + LOOK_S
                        await self._look()
                    hinted, self._hinted = self._hinted, set()
                    await self._add(hinted - self._positions.keys())
                    await self._assign()
                    self._outage.ends()
                except (CoordinatorUnavailable, BrokerUnreachable, ProtocolError) as error:
                    if self._outage.begins():
                        log.warning("markers_not_followed", reason=str(error), remedy="none; it is retried")
                    await asyncio.sleep(_RETRY_S)
                await self._wait(next_look_s)
        finally:
            for task in self._tasks.values():
                task.cancel()
            await asyncio.gather(*self._tasks.values(), return_exceptions=True)

    async def _wait(self, next_look_s: float) -> None:
        """Wait until a hint comes, another leader may be needed, or it is time for the next look."""
        if self._failing_since_s:
            await asyncio.sleep(_RETRY_S)
            return
        await wait_at_most(self._woken, next_look_s - self._now())
        self._woken.clear()

    def _is_own(self, one: Log) -> bool:
        return shard_of(partition_key(*one), self._shards) in self._own

    async def _look(self) -> None:
        """Take over the shards that fall to this proxy now, and what is to be followed in them."""
        serving = self._live()
        # A proxy that ends goes on until others know; one that starts begins early.
        candidates = tuple(sorted({one for one, serves in serving.items() if serves} | {self._identity}))
        self._own = frozenset(
            shard for shard in range(self._shards) if sticky_choice(f"markers-{shard}", candidates) == self._identity
        )
        followed = await self._followed(sorted(self._own)) if self._own else set()
        for one in self._positions.keys() - followed:
            self._drop(one)
        await self._add(followed - self._positions.keys())

    async def _followed(self, shards: list[int]) -> set[Log]:
        """Return what is to be followed in these shards; of a fenced shard, what is followed now."""
        try:
            return set(await self._transactions.followed(self._settings.followed_ms, shards))
        except ShardFenced:
            if len(shards) == 1:
                return {one for one in self._positions if shard_of(partition_key(*one), self._shards) in shards}
        found: set[Log] = set()
        for shard in shards:
            found |= await self._followed([shard])
        return found

    async def _add(self, new: Iterable[Log]) -> None:
        logs = list(new)
        for start in range(0, len(logs), _POSITIONS_PER_CALL):
            some = logs[start : start + _POSITIONS_PER_CALL]
            for one, position in zip(some, await self._transactions.positions(some), strict=True):
                if position is not None:
                    self._positions[one] = position

    def _drop(self, one: Log) -> None:
        self._positions.pop(one, None)
        self._failing_since_s.pop(one, None)
        node_id = self._at.pop(one, None)
        if node_id is not None:
            self._tails[node_id].leave(one)

    async def _assign(self) -> None:
        """Follow each shadow at its leader. Raises BrokerUnreachable and ProtocolError."""
        self._end_unused()
        if not self._positions:
            return
        await self._leaders.know(self._positions)
        for one in self._positions:
            leader = self._leaders.of(one)
            node_id = None if leader is None else leader.node_id
            if node_id is None:
                self._failing_since_s.setdefault(one, self._now())
            if self._at.get(one) == node_id:
                continue
            if one in self._at:
                self._tails[self._at.pop(one)].leave(one)
            if node_id is not None:
                self._at[one] = node_id
                self._tail(node_id).join(one)

    def _tail(self, node_id: int) -> BrokerTail:
        tail = self._tails.get(node_id)
        if tail is None:
            connections = self._connect(node_id), self._connect(node_id)
            tail = self._tails[node_id] = BrokerTail(
                connections, self._reader, self._leaders, self._positions, self._report
            )
            self._tasks[node_id] = asyncio.ensure_future(tail.follow())
        return tail

    def _end_unused(self) -> None:
        """End the tails of brokers that lead no followed shadow. A tail that has failed begins again."""
        for node_id, tail in list(self._tails.items()):
            task = self._tasks[node_id]
            if task.done() and not task.cancelled():
                log.error(
                    "marker_tail_broken",
                    broker=node_id,
                    exc_info=task.exception(),
                    remedy="report it with this trace; it is retried",
                )
                for one in tail.logs:
                    self._at.pop(one, None)
            if task.done() or not tail.logs:
                del self._tails[node_id]
                self._tasks.pop(node_id).cancel()

    def _report(self, read: Iterable[Log], failed: Failures, gone: set[Log]) -> None:
        """Note an answer of a broker."""
        now_s = self._now()
        for one in read:
            self._failing_since_s.pop(one, None)
        for one in gone:
            self._drop(one)
        for one, why in failed.items():
            if one in self._positions:
                self._failing_since_s.setdefault(one, now_s)
                log.debug("markers_not_read", topic_id=one[0].hex(), partition=one[1], reason=why)
        if failed:
            self._woken.set()
