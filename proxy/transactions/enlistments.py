"""Enlists diskless partitions in transactions of version 1, after the brokers have added them (AddPartitionsToTxn).

1. The ends of the shadows' logs are read (`shadow_ends.py`). Brokers add no partition before the markers of the
   producer's last transaction are written, so these markers are before the ends.
2. The transaction must still be ongoing, with the same producer and the partitions. So its own markers will be at the
   ends or after them.
3. The coordinator stores the ends (`TransactionCoordinator.enlist`). It waits for the markers before them.

A client that retries is enlisted with the ends of its retry. So no retry has to wait for a marker that its own
transaction will write.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping
from functools import partial
from typing import NamedTuple

from proxy.brokers.broker_metadata import Partition
from proxy.brokers.upstream import BrokerUnreachable
from proxy.client.client import Client
from proxy.client.request import Request
from proxy.coordinator.interface import CoordinatorUnavailable
from proxy.coordinator.interface_transactions import EnlistAnswer, Enlistment, TransactionCoordinator
from proxy.protocol.api_keys import DESCRIBE_TRANSACTIONS
from proxy.protocol.errors import NONE
from proxy.telemetry.throttled_log import NAMES_SHOWN, ThrottledLog
from proxy.transactions.shadow_ends import Logs, ShadowEnds
from proxy.wire.errors import ProtocolError
from proxy.wire.transaction_state import ONGOING, VERSION, build_describe_transaction, read_transaction_states

Log = tuple[bytes, int]
"""Topic ID and partition."""
CatchUp = Callable[[Iterable[Log]], Awaitable[None]]
"""Reads and applies the markers of shadows now. Raises BrokerUnreachable and CoordinatorUnavailable."""

_FIRST_PAUSE_S = 0.005
_LONGEST_PAUSE_S = 0.1
_TAIL_S = 0.1
"""Time in which the markers that are already written are applied by the proxy that follows the shadow. Later, this
proxy reads them itself."""


class AddedPartitions(NamedTuple):
    """Diskless partitions that the brokers have added to a transaction."""

    transactional_id: str
    producer_id: int
    producer_epoch: int
    logs: Logs


class Enlistments:
    """Enlists the partitions of clients' requests."""

    def __init__(
        self,
        transactions: TransactionCoordinator,
        ends: ShadowEnds,
        catch_up: CatchUp,
        throttled_log: ThrottledLog,
        *,
        timeout_s: float,
    ) -> None:
        """`timeout_s`: longest time for one request (`transactions.enlist_timeout_ms`)."""
        self._transactions = transactions
        self._ends = ends
        self._catch_up = catch_up
        self._throttled_log = throttled_log
        self.timeout_s = timeout_s

    async def enlist(self, client: Client, request: Request, added: AddedPartitions) -> bool:
        """Return whether all partitions are enlisted. If not, the client has to send its request again."""
        reason = "the transaction has ended, or has other partitions"
        try:
            async with asyncio.timeout(self.timeout_s):
                ends: dict[Partition, int] = {}
                await self._ends.read(partial(client.ask, request), added.logs, ends)
                if await self._is_ongoing(client, request, added) and await self._enlist_from(added, ends):
                    return True
        except TimeoutError:
            reason = f"brokers, Redis or the markers of earlier transactions took more than {self.timeout_s:g} s"
        except (BrokerUnreachable, CoordinatorUnavailable, ProtocolError) as error:
            reason = str(error)
        self._throttled_log.warning(
            "partitions_not_enlisted",
            transactional_id=added.transactional_id,
            topics=sorted({name for name, _ in added.logs})[:NAMES_SHOWN],
            reason=reason,
            effect="the client gets CONCURRENT_TRANSACTIONS and retries",
        )
        return False

    async def _is_ongoing(self, client: Client, request: Request, added: AddedPartitions) -> bool:
        """Return whether the transaction is ongoing with these partitions. Raises BrokerUnreachable and
        ProtocolError."""
        body = build_describe_transaction(added.transactional_id)
        answer = await client.ask(request, DESCRIBE_TRANSACTIONS, VERSION, body)
        for one in read_transaction_states(answer):
            if one.transactional_id == added.transactional_id:
                is_same = (one.error_code, one.state, one.producer_id, one.producer_epoch) == (
                    NONE,
                    ONGOING,
                    added.producer_id,
                    added.producer_epoch,
                )
                return is_same and all(index in one.partitions.get(name, ()) for name, index in added.logs)
        return False

    async def _enlist_from(self, added: AddedPartitions, ends: Mapping[Partition, int]) -> bool:
        """Return whether all partitions are enlisted from these ends on. Raises BrokerUnreachable and
        CoordinatorUnavailable."""
        left = [
            Enlistment(topic_id, partition[1], added.producer_id, added.producer_epoch, ends[partition])
            for partition, topic_id in added.logs.items()
        ]
        pause_s = _FIRST_PAUSE_S
        while True:
            answers = await self._transactions.enlist(left)
            if not {*answers} <= {EnlistAnswer.ENLISTED, EnlistAnswer.WAIT}:
                return False
            left = [one for one, answer in zip(left, answers, strict=True) if answer is EnlistAnswer.WAIT]
            if not left:
                return True
            if await self._are_applied(left):
                # An older transaction of the producer is open, although the markers before the end were applied.
                await asyncio.sleep(pause_s)
                pause_s = min(2 * pause_s, _LONGEST_PAUSE_S)

    async def _are_applied(self, waiting: list[Enlistment]) -> bool:
        """Wait until the markers before the ends are applied; return whether they already were.

        Raises BrokerUnreachable and CoordinatorUnavailable.
        """
        loop = asyncio.get_running_loop()
        own_turn_s, pause_s, first = loop.time() + _TAIL_S, _FIRST_PAUSE_S, True
        while behind := await self._behind(waiting):
            first = False
            if loop.time() >= own_turn_s:
                await self._catch_up(behind)
            else:
                await asyncio.sleep(pause_s)
                pause_s = min(2 * pause_s, _LONGEST_PAUSE_S)
        return first

    async def _behind(self, waiting: list[Enlistment]) -> list[Log]:
        """Return the logs of which markers are to be applied."""
        logs = [(one.topic_id, one.partition) for one in waiting]
        positions = await self._transactions.positions(logs)
        return [
            log
            for log, one, position in zip(logs, waiting, positions, strict=True)
            if position is not None and position.next_offset < one.markers_from
        ]
