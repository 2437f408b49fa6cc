"""Transactions that are open for longer than brokers allow: their markers may be lost.

Once a minute, for each such transaction in the shards of this proxy: (1) no broker knows the producer with a
transaction that is under way in this partition; (2) the shadow is read up to its end; (3) the transaction is still
open. Then its marker is lost: the shadow's beginning was deleted, or an unclean election has removed its end. If the
brokers still say how this very transaction ended, it is ended like that. Otherwise nothing here guesses, and an
operator decides. As at brokers, the marker of a later transaction of the same producer ends it, too.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import Any

import structlog

from proxy.brokers.broker_defaults import DefaultsRefused, broker_configs
from proxy.brokers.cluster import Cluster
from proxy.brokers.upstream import BrokerUnreachable
from proxy.coordinator.interface import CoordinatorUnavailable
from proxy.coordinator.interface_transactions import (
    NO_EPOCH,
    Marker,
    MarkersRead,
    OpenTransaction,
    ShadowPosition,
    TransactionCoordinator,
)
from proxy.markers.leaders import Log, ShadowLeaders
from proxy.markers.stats import MarkerStats
from proxy.protocol.api_keys import DESCRIBE_TRANSACTIONS, LIST_TRANSACTIONS
from proxy.protocol.errors import NONE
from proxy.wire.cold import encode, read_response
from proxy.wire.errors import ProtocolError
from proxy.wire.transaction_state import (
    VERSION,
    TransactionState,
    build_describe_transaction,
    read_transaction_states,
)

log = structlog.get_logger()

INTERVAL_S = 60.0
_MAX_TIMEOUT = "transaction.max.timeout.ms"
_DEFAULT_MAX_TIMEOUT_MS = 900_000
_LIST_VERSION = 0
_UNDER_WAY = frozenset({"Ongoing", "PrepareCommit", "PrepareAbort", "PrepareEpochFence"})
_ENDED = {"CompleteCommit": True, "CompleteAbort": False}
"""States of a transaction that has ended; true if it was committed."""


class Reconciler:
    """Ends transactions whose markers are lost, if brokers say how."""

    def __init__(
        self,
        transactions: TransactionCoordinator,
        look: Callable[[], Awaitable[list[OpenTransaction]]],
        catch_up: Callable[[Iterable[Log]], Awaitable[None]],
        leaders: ShadowLeaders,
        cluster: Cluster,
        stats: MarkerStats,
        now_ms: Callable[[], int],
    ) -> None:
        """`look` returns the open transactions of this proxy's shards; `now_ms` is the time of the store."""
        self._transactions = transactions
        self._look = look
        self._catch_up = catch_up
        self._leaders = leaders
        self._cluster = cluster
        self._stats = stats
        self._now_ms = now_ms
        self._reported: set[OpenTransaction] = set()

    async def keep_reconciling(self) -> None:
        """Reconcile every minute, forever. What fails is tried again the next time."""
        while True:
            await asyncio.sleep(INTERVAL_S)
            try:
                await self.reconcile()
            except (CoordinatorUnavailable, BrokerUnreachable, ProtocolError) as error:
                log.warning("transactions_not_reconciled", reason=str(error), remedy="none; it is retried")

    async def reconcile(self) -> None:
        """Look once. Raises CoordinatorUnavailable, BrokerUnreachable and ProtocolError."""
        suspects = await self._suspects()
        self._reported.intersection_update(suspects)
        if not suspects:
            return
        known = await self._states({one.producer_id for one in suspects})
        left = [one for one in suspects if not self._is_under_way(one, known)]
        logs = list(dict.fromkeys((one.topic_id, one.partition) for one in left))
        await self._catch_up(logs)
        still_open = {one[:-1] for one in await self._look()}
        positions = dict(zip(logs, await self._transactions.positions(logs), strict=True))
        for one in left:
            position = positions[one.topic_id, one.partition]
            if one[:-1] in still_open and position is not None:
                await self._settle(one, position, known)

    async def _suspects(self) -> list[OpenTransaction]:
        found = await self._look()
        if not found:
            return []
        try:
            configs = await broker_configs(self._cluster, (_MAX_TIMEOUT,))
        except DefaultsRefused:
            configs = {}
        longest_ms = int(configs.get(_MAX_TIMEOUT) or _DEFAULT_MAX_TIMEOUT_MS)
        await self._leaders.know((one.topic_id, one.partition) for one in found)
        before_ms = self._now_ms() - longest_ms
        return [one for one in found if one.since_ms < before_ms]

    async def _states(self, producer_ids: Iterable[int]) -> list[TransactionState]:
        """Return the brokers' transactions of some producers. Every live broker must answer."""
        states: list[TransactionState] = []
        for node_id in sorted(self._cluster.view.brokers):
            connection = self._cluster.connection_to(node_id)
            try:
                body = await connection.ask(LIST_TRANSACTIONS, _LIST_VERSION, _list_request(producer_ids))
                for transactional_id in _listed(body):
                    body = await connection.ask(
                        DESCRIBE_TRANSACTIONS, VERSION, build_describe_transaction(transactional_id)
                    )
                    states += [one for one in read_transaction_states(body) if one.error_code == NONE]
            finally:
                connection.close()
        return states

    def _is_under_way(self, one: OpenTransaction, known: Sequence[TransactionState]) -> bool:
        """Return whether brokers have a transaction under way that may be this one; true if the topic's name is not
        known."""
        leader = self._leaders.of((one.topic_id, one.partition))
        return leader is None or any(
            state.producer_id == one.producer_id
            and state.state in _UNDER_WAY
            and one.partition in state.partitions.get(leader.topic, ())
            for state in known
        )

    async def _settle(self, one: OpenTransaction, position: ShadowPosition, known: Sequence[TransactionState]) -> None:
        ended = [state for state in known if is_end_of(one, state)]
        if len(ended) == 1 and position.next_offset > one.markers_from:
            await self._end(one, position, ended[0])
        elif one not in self._reported:
            self._reported.add(one)
            log.error(
                "transaction_without_end",
                topic_id=one.topic_id.hex(),
                partition=one.partition,
                producer_id=one.producer_id,
                producer_epoch=one.producer_epoch,
                first_offset=one.first_offset,
                reason="brokers do not know the transaction any more, and its marker is not in the placeholder topic",
                effect="consumers with read_committed get no later record of the partition",
                remedy="find out whether the application committed it; end it by `kafka-transactions abort` with "
                "this topic, partition and first offset as --start-offset",
            )

    async def _end(self, one: OpenTransaction, position: ShadowPosition, state: TransactionState) -> None:
        """End a transaction by the marker that is lost. It does nothing if another marker was applied meanwhile."""
        marker = Marker(
            position.next_offset - 1,
            one.producer_id,
            state.producer_epoch,
            NO_EPOCH,
            _ENDED[state.state],
            self._now_ms(),
        )
        part = MarkersRead(
            one.topic_id, one.partition, position.next_offset, position.next_offset, position.leader_epoch, (marker,)
        )
        (answer,) = await self._transactions.apply_markers([part])
        if answer.ended:
            self._stats.reconciled += answer.ended
            self._stats.count_ended(answer.ended, answer.aborted)
            log.warning(
                "transaction_reconciled",
                topic_id=one.topic_id.hex(),
                partition=one.partition,
                transactional_id=state.transactional_id,
                result=state.state,
                reason="its marker is lost, and brokers still know how it ended",
            )


def is_end_of(one: OpenTransaction, state: TransactionState) -> bool:
    """Return whether brokers describe the end of this very transaction, and not of a later one of its producer.

    The marker of a transaction of version 2, or of a fenced producer, has the next epoch.
    """
    return (
        state.producer_id == one.producer_id
        and state.producer_epoch in (one.producer_epoch, one.producer_epoch + 1)
        and state.state in _ENDED
        and 0 < state.start_ms <= one.since_ms
    )


def _list_request(producer_ids: Iterable[int]) -> bytes:
    from kio.schema.list_transactions.v0.request import ListTransactionsRequest

    request: Any = ListTransactionsRequest
    return encode(request(state_filters=(), producer_id_filters=tuple(sorted(producer_ids))))


def _listed(body: memoryview) -> list[str]:
    """Return the transactional IDs in a response. Raises ProtocolError, also if the broker can't answer now."""
    response: Any = read_response(LIST_TRANSACTIONS, _LIST_VERSION, body)
    if response.error_code.value != NONE:
        raise ProtocolError(f"ListTransactions answers error {response.error_code.value}")
    return [str(one.transactional_id) for one in response.transaction_states]
