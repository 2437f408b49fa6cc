"""Adds diskless partitions to transactions of version 2 (KIP-890), as brokers add the partitions of a Produce.

1. The transaction coordinator adds them to the transaction (AddPartitionsToTxn v5). Only brokers may ask for that, so
   the proxy's principal needs `ClusterAction`. It adds none before the markers of the producer's last transaction are
   written. Until then its answer is CONCURRENT_TRANSACTIONS, and it is asked again, as brokers do.
2. The ends of the shadows' logs are read (`shadow_ends.py`). The transaction's own marker will be there or after them.

Version 1 asks then whether the transaction is still ongoing. Here that is not needed: a transaction's marker has a
higher epoch than its batches, so a batch that comes after its marker is rejected for its epoch.

The ends are kept by producer, epoch and partition, and every transaction has an epoch of its own. So a transaction asks
once for each of its partitions.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict, defaultdict
from collections.abc import Callable, Collection, Mapping
from functools import partial
from typing import Any

from proxy.brokers.broker_metadata import Partition
from proxy.brokers.cluster import Cluster
from proxy.brokers.service import ServiceConnection
from proxy.brokers.upstream import BrokerUnreachable
from proxy.client.client import Client
from proxy.client.request import Request
from proxy.protocol.api_keys import ADD_PARTITIONS_TO_TXN, FIND_COORDINATOR
from proxy.protocol.errors import (
    CLUSTER_AUTHORIZATION_FAILED,
    CONCURRENT_TRANSACTIONS,
    COORDINATOR_LOAD_IN_PROGRESS,
    COORDINATOR_NOT_AVAILABLE,
    INVALID_PRODUCER_EPOCH,
    INVALID_TXN_STATE,
    NONE,
    NOT_COORDINATOR,
    NOT_ENOUGH_REPLICAS,
    OPERATION_NOT_ATTEMPTED,
    PRODUCER_FENCED,
    UNKNOWN_TOPIC_OR_PARTITION,
)
from proxy.telemetry.throttled_log import NAMES_SHOWN, ThrottledLog
from proxy.transactions.enlistments import AddedPartitions, Log
from proxy.transactions.shadow_ends import ShadowEnds
from proxy.wire.cold import encode, nested, read_response
from proxy.wire.errors import ProtocolError

ADD_VERSION = 5
_FIND_VERSION = 4
_TRANSACTION = 1
"""Key type of FindCoordinator."""
_PAUSE_S = 0.02
_CONCURRENT_S = 1.0
"""How long the markers of the producer's last transaction are waited for."""
_ELSEWHERE = frozenset({NOT_COORDINATOR, COORDINATOR_NOT_AVAILABLE, COORDINATOR_LOAD_IN_PROGRESS})
_RETRIED = _ELSEWHERE | {CONCURRENT_TRANSACTIONS}
_RETRIABLE = _ELSEWHERE | {UNKNOWN_TOPIC_OR_PARTITION, OPERATION_NOT_ATTEMPTED}
"""Also a coordinator that does not know a new placeholder topic yet; then it adds none of the request's partitions."""
_AS_PRODUCED = {PRODUCER_FENCED: INVALID_PRODUCER_EPOCH, **dict.fromkeys(_RETRIABLE, NOT_ENOUGH_REPLICAS)}
"""Errors that a Produce is answered in another way."""
_MAX_KNOWN = 100_000
_Answers = dict[Partition, int]
"""Errors by partition; NONE for those that were added."""


class Additions:
    """Adds the partitions of clients' Produce requests, and knows from which offset on a marker may end their
    transactions."""

    def __init__(
        self,
        cluster: Cluster,
        ends: ShadowEnds,
        connect: Callable[[int], ServiceConnection],
        throttled_log: ThrottledLog,
        *,
        timeout_s: float,
    ) -> None:
        """`connect` returns a connection of the caller's own to a broker. `timeout_s`: longest time for one request
        (`transactions.enlist_timeout_ms`)."""
        self._cluster = cluster
        self._ends = ends
        self._connect = connect
        self._throttled_log = throttled_log
        self.timeout_s = timeout_s
        self._connections: dict[int, ServiceConnection] = {}
        self._known: OrderedDict[tuple[Log, int], tuple[int, int]] = OrderedDict()
        """Epoch and end, by log and producer ID."""

    def markers_from(self, log: Log, producer_id: int, epoch: int) -> int | None:
        """Return the offset in the shadow's log from which on a marker may end the producer's transaction; None if this
        proxy has not added the log to it."""
        known_epoch, end = self._known.get((log, producer_id), (epoch, None))
        return end if known_epoch == epoch else None

    def forget(self, log: Log, producer_id: int) -> None:
        """Ask again when the producer's next batch comes: its transaction was ended from outside, in its own epoch."""
        self._known.pop((log, producer_id), None)

    async def add(self, client: Client, request: Request, asked: AddedPartitions) -> Mapping[Partition, int]:
        """Add partitions to the transaction, and note the ends of their logs.

        The client may write to its transactional ID and to the partitions. Returns the error, as it answers a Produce,
        of each partition that was not added. CONCURRENT_TRANSACTIONS and NOT_ENOUGH_REPLICAS are for the client to
        retry.
        """
        errors: _Answers = {}
        reason = f"brokers, or the markers of earlier transactions, took more than {self.timeout_s:g} s"
        try:
            async with asyncio.timeout(self.timeout_s):
                coordinator, answers = await self._add(client, request, asked)
                errors = {one: _AS_PRODUCED.get(error, error) for one, error in answers.items() if error != NONE}
                added = {one: topic_id for one, topic_id in asked.logs.items() if one not in errors}
                if added:
                    ends = await self._ends.read(coordinator.ask, added)
                    self._note(asked, ends)
                return errors
        except TimeoutError:
            pass
        except (BrokerUnreachable, ProtocolError) as error:
            reason = str(error)
        self._throttled_log.warning(
            "partitions_not_added",
            transactional_id=asked.transactional_id,
            topics=sorted({name for name, _ in asked.logs})[:NAMES_SHOWN],
            reason=reason,
            effect="the client gets NOT_ENOUGH_REPLICAS and retries",
        )
        return {**dict.fromkeys(asked.logs, NOT_ENOUGH_REPLICAS), **errors}

    def close(self) -> None:
        """Close all connections."""
        for connection in self._connections.values():
            connection.close()

    def _note(self, asked: AddedPartitions, ends: Mapping[Partition, int]) -> None:
        for partition, end in ends.items():
            key = (asked.logs[partition], partition[1]), asked.producer_id
            self._known[key] = asked.producer_epoch, end
            self._known.move_to_end(key)
        while len(self._known) > _MAX_KNOWN:
            self._known.popitem(last=False)

    async def _add(
        self, client: Client, request: Request, asked: AddedPartitions
    ) -> tuple[ServiceConnection, _Answers]:
        """Ask the transaction coordinator until it has decided. Returns its connection, and its answers.

        Raises BrokerUnreachable and ProtocolError.
        """
        loop = asyncio.get_running_loop()
        until_s = loop.time() + _CONCURRENT_S
        answers: _Answers = dict.fromkeys(asked.logs, NOT_COORDINATOR)
        while True:
            coordinator = await self._coordinator(client, request, asked.transactional_id)
            left = [one for one, error in answers.items() if error in _RETRIED]
            answers |= await _ask(coordinator, asked, left)
            left_errors = _RETRIED.intersection(answers.values())
            if not left_errors or (left_errors == {CONCURRENT_TRANSACTIONS} and loop.time() > until_s):
                break
            await asyncio.sleep(_PAUSE_S)
        if CLUSTER_AUTHORIZATION_FAILED in answers.values():
            self._throttled_log.warning(
                "partitions_not_added",
                transactional_id=asked.transactional_id,
                topics=sorted({name for name, _ in asked.logs})[:NAMES_SHOWN],
                reason="the proxy's principal lacks the right ClusterAction",
                effect="the client gets INVALID_TXN_STATE, and aborts its transaction",
                remedy="allow the proxy's principal ClusterAction on the cluster, or set transactions.client_version "
                "to 1 and start the clients again: docs/transactions.md",
            )
            answers = dict.fromkeys(answers, INVALID_TXN_STATE)
        return coordinator, answers

    async def _coordinator(self, client: Client, request: Request, transactional_id: str) -> ServiceConnection:
        """Return a connection to the transaction coordinator, which the client's own broker names: the client may see
        its transactional ID, and the proxy need not. Raises BrokerUnreachable and ProtocolError."""
        from kio.schema.find_coordinator.v4.request import FindCoordinatorRequest

        find: Any = FindCoordinatorRequest
        body = encode(find(key_type=_TRANSACTION, coordinator_keys=(transactional_id,)))
        ask = partial(client.ask, request)
        while True:
            answer: Any = read_response(
                FIND_COORDINATOR, _FIND_VERSION, await ask(FIND_COORDINATOR, _FIND_VERSION, body)
            )
            (found,) = answer.coordinators
            error_code = int(found.error_code.value)
            if error_code == NONE:
                return self._connection_to(int(found.node_id))
            if error_code not in _ELSEWHERE:
                raise ProtocolError(f"FindCoordinator answers error {error_code}")
            await asyncio.sleep(_PAUSE_S)

    def _connection_to(self, node_id: int) -> ServiceConnection:
        for gone in self._connections.keys() - self._cluster.view.brokers.keys():
            self._connections.pop(gone).close()
        connection = self._connections.get(node_id)
        if connection is None:
            connection = self._connections[node_id] = self._connect(node_id)
        return connection


async def _ask(coordinator: ServiceConnection, asked: AddedPartitions, partitions: Collection[Partition]) -> _Answers:
    """Ask once for some of the partitions. Raises BrokerUnreachable and ProtocolError."""
    by_topic: defaultdict[str, list[int]] = defaultdict(list)
    for name, index in partitions:
        by_topic[name].append(index)
    body = add_partitions_request(asked.transactional_id, asked.producer_id, asked.producer_epoch, by_topic)
    answer: Any = read_response(
        ADD_PARTITIONS_TO_TXN, ADD_VERSION, await coordinator.ask(ADD_PARTITIONS_TO_TXN, ADD_VERSION, body)
    )
    if answer.error_code.value != NONE:
        return dict.fromkeys(partitions, int(answer.error_code.value))
    answers = {
        (str(topic.name), int(one.partition_index)): int(one.partition_error_code.value)
        for result in answer.results_by_transaction
        for topic in result.topic_results
        for one in topic.results_by_partition
    }
    return {one: answers.get(one, NOT_COORDINATOR) for one in partitions}


def add_partitions_request(
    transactional_id: str,
    producer_id: int,
    epoch: int,
    by_topic: Mapping[str, Collection[int]],
    *,
    verify: bool = False,
) -> bytes:
    """Return the body of AddPartitionsToTxn v5 as brokers send it. `verify`: nothing is added."""
    from kio.schema.add_partitions_to_txn.v5.request import AddPartitionsToTxnRequest

    request: Any = AddPartitionsToTxnRequest
    transaction_type = nested(request, "transactions")
    topic_type = nested(transaction_type, "topics")
    return encode(
        request(
            transactions=(
                transaction_type(
                    transactional_id=transactional_id,
                    producer_id=producer_id,
                    producer_epoch=epoch,
                    verify_only=verify,
                    topics=tuple(topic_type(name=name, partitions=tuple(some)) for name, some in by_topic.items()),
                ),
            )
        )
    )
