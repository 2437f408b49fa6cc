"""Read and apply the markers of some partitions now: any proxy may do that, whichever one follows the shadows.

Callers share rounds: a broker is sent one request at a time, for all partitions that were named meanwhile. A caller is
only part of a round that begins after its call.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Callable, Iterable

from proxy.brokers.service import ServiceConnection
from proxy.brokers.upstream import BrokerUnreachable
from proxy.coordinator.interface_transactions import ShadowPosition, TransactionCoordinator
from proxy.markers.leaders import Log, ShadowLeaders
from proxy.markers.messages import FETCH_VERSION, Place, fetch_answer, fetch_request
from proxy.markers.reader import MarkerReader
from proxy.protocol.api_keys import FETCH
from proxy.protocol.errors import NONE
from proxy.wire.errors import ProtocolError

PARTITIONS_PER_REQUEST = 500
"""Maximum number of partitions in one Fetch."""
_RETRY_S = 0.05


class _Round:
    """Partitions of one broker that are read together."""

    def __init__(self) -> None:
        self.logs: set[Log] = set()
        self.at_end: set[Log] = set()
        """Partitions that were read up to their ends, or whose logs are gone."""
        self.failed: dict[Log, str] = {}
        self.done = False


class _Broker:
    """The rounds of one broker."""

    def __init__(self, connection: ServiceConnection) -> None:
        self.connection = connection
        self.next = _Round()
        self.reading = asyncio.Lock()


class CatchingUp:
    """Reads shadows up to their ends for callers that wait for a marker."""

    def __init__(
        self,
        transactions: TransactionCoordinator,
        reader: MarkerReader,
        leaders: ShadowLeaders,
        connect: Callable[[int], ServiceConnection],
        *,
        timeout_s: float,
    ) -> None:
        """Take `connect`, which returns a connection of the caller's own to a broker, and the limit of one call."""
        self._transactions = transactions
        self._reader = reader
        self._leaders = leaders
        self._connect = connect
        self.timeout_s = timeout_s
        self._brokers: dict[int, _Broker] = {}

    async def catch_up(self, partitions: Iterable[Log]) -> None:
        """Read and apply the markers of these partitions (topic ID, partition) up to the ends that their shadows have
        at the time of the call, or later. Partitions whose logs do not exist are skipped.

        Afterwards `TransactionCoordinator.positions` returns positions that are not before these ends. Raises
        BrokerUnreachable if a shadow could not be read in time, and CoordinatorUnavailable; what was read is applied.
        """
        left, why = set(partitions), "no answer"
        try:
            async with asyncio.timeout(self.timeout_s):
                while left:
                    try:
                        failed = await self._read(left)
                    except (BrokerUnreachable, ProtocolError) as error:
                        failed = dict.fromkeys(left, str(error))
                    if failed:
                        why = "; ".join(sorted(set(failed.values())))
                        await asyncio.sleep(_RETRY_S)
        except TimeoutError:
            raise BrokerUnreachable(
                f"the markers of {len(left)} placeholder topics' partitions were not read within {self.timeout_s:g} s: "
                f"{why}"
            ) from None

    def close(self) -> None:
        """Close all connections."""
        for broker in self._brokers.values():
            broker.connection.close()

    async def _read(self, left: set[Log]) -> dict[Log, str]:
        """Read each partition once, and drop those that are at their ends from `left`; return why others failed.

        Raises CoordinatorUnavailable, BrokerUnreachable and ProtocolError.
        """
        await self._leaders.know(left)
        by_broker: defaultdict[int, set[Log]] = defaultdict(set)
        without_leader = []
        for log in left:
            leader = self._leaders.of(log)
            if leader is None:
                without_leader.append(log)
            else:
                by_broker[leader.node_id].add(log)
        failed: dict[Log, str] = {}
        if without_leader:
            positions = zip(without_leader, await self._transactions.positions(without_leader), strict=True)
            exist = {log for log, position in positions if position is not None}
            left -= set(without_leader) - exist
            failed = dict.fromkeys(exist, "it has no leader")
        rounds = await asyncio.gather(
            *(self._join(node_id, logs) for node_id, logs in by_broker.items()), return_exceptions=True
        )
        for one in rounds:
            if isinstance(one, BaseException):
                raise one
            left -= one.at_end
            failed.update((log, why) for log, why in one.failed.items() if log in left)
        return failed

    async def _join(self, node_id: int, logs: set[Log]) -> _Round:
        """Let the next round of a broker read these partitions, and wait for it. Raises CoordinatorUnavailable."""
        broker = self._brokers.get(node_id)
        if broker is None:
            broker = self._brokers[node_id] = _Broker(self._connect(node_id))
        joined = broker.next
        joined.logs |= logs
        async with broker.reading:
            # The first of the waiting callers does the work. If it is cancelled, the next one does it again.
            if not joined.done:
                if broker.next is joined:
                    broker.next = _Round()
                await self._do(broker.connection, joined)
                joined.done = True
        return joined

    async def _do(self, connection: ServiceConnection, one: _Round) -> None:
        logs = list(one.logs)
        for start in range(0, len(logs), PARTITIONS_PER_REQUEST):
            some = logs[start : start + PARTITIONS_PER_REQUEST]
            found = zip(some, await self._transactions.positions(some), strict=True)
            positions = {log: position for log, position in found if position is not None}
            one.at_end.update(log for log in some if log not in positions)
            try:
                await self._fetch(connection, positions, one)
            except (BrokerUnreachable, ProtocolError) as error:
                for log in positions:
                    self._leaders.stale(log)
                    one.failed[log] = str(error)

    async def _fetch(self, connection: ServiceConnection, positions: dict[Log, ShadowPosition], one: _Round) -> None:
        compared = await self._reader.compare(connection, positions)
        one.at_end |= compared.gone
        one.failed |= compared.failed
        positions.update(compared.positions)
        places = [
            Place(log, position.next_offset, leader.epoch)
            for log, position in positions.items()
            if log not in one.at_end and log not in one.failed and (leader := self._leaders.of(log)) is not None
        ]
        if not places:
            return
        answer = fetch_answer(await connection.ask(FETCH, FETCH_VERSION, fetch_request(places, wait_ms=0)))
        if answer.error_code != NONE:
            raise ProtocolError(f"Fetch of placeholder topics answers error {answer.error_code}")
        # A broker that throttles the proxy's principal answers without partitions.
        one.failed.update(
            (place.log, "the leader left it out") for place in places if place.log not in answer.partitions
        )
        outcome = await self._reader.take(connection, answer.partitions, positions)
        one.at_end |= outcome.at_end | outcome.gone
        one.failed |= outcome.failed
