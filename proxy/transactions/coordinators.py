"""The transaction coordinators: brokers that add partitions to transactions of version 2 (AddPartitionsToTxn v5).

A broker handles one request of a connection at a time, and answers this one when it is replicated. So while one is
under way, others wait, and go together in the next one, as brokers do it (`AddPartitionsToTxnManager`).
"""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable
from typing import Any, NamedTuple

from proxy.brokers.broker_metadata import Ask, Partition
from proxy.brokers.cluster import Cluster
from proxy.brokers.service import ServiceConnection
from proxy.protocol.api_keys import ADD_PARTITIONS_TO_TXN
from proxy.protocol.errors import NONE, NOT_COORDINATOR
from proxy.wire.cold import encode, nested, read_response

VERSION = 5
_TRANSACTIONS_PER_REQUEST = 100
Answers = dict[Partition, int]
"""Errors by partition; NONE for those that were added."""


class Asked(NamedTuple):
    """Partitions to add to one transaction."""

    transactional_id: str
    producer_id: int
    producer_epoch: int
    partitions: Collection[Partition]


class TransactionCoordinator:
    """One broker, as a coordinator of transactions."""

    def __init__(self, connect: Callable[[], ServiceConnection]) -> None:
        """`connect` returns a connection of the caller's own."""
        self._adding, self._asking = connect(), connect()
        self._waiting: list[tuple[Asked, asyncio.Future[Answers]]] = []
        self._task: asyncio.Task[None] | None = None

    @property
    def ask(self) -> Ask:
        """Ask it something else, without waiting for additions."""
        return self._asking.ask

    async def add(self, asked: Asked) -> Answers:
        """Return its answers. Raises BrokerUnreachable and ProtocolError."""
        answered: asyncio.Future[Answers] = asyncio.get_running_loop().create_future()
        self._waiting.append((asked, answered))
        if self._task is None:
            self._task = asyncio.ensure_future(self._add_all())
        return await answered

    def close(self) -> None:
        """Close the connections."""
        if self._task is not None:
            self._task.cancel()
        self._adding.close()
        self._asking.close()

    async def _add_all(self) -> None:
        try:
            while self._waiting:
                together = self._next()
                try:
                    answers = await self._send([asked for asked, _ in together.values()])
                except Exception as error:  # whatever it is, those who wait get it
                    for _, answered in together.values():
                        if not answered.done():
                            answered.set_exception(error)
                    continue
                for transactional_id, (asked, answered) in together.items():
                    of = answers.get(transactional_id, {})
                    if not answered.done():
                        answered.set_result({one: of.get(one, NOT_COORDINATOR) for one in asked.partitions})
        finally:
            self._task = None

    def _next(self) -> dict[str, tuple[Asked, asyncio.Future[Answers]]]:
        """Take what goes together: a request may have a transactional ID once."""
        together: dict[str, tuple[Asked, asyncio.Future[Answers]]] = {}
        left = []
        for asked, answered in self._waiting:
            if answered.done():  # nobody waits any more
                continue
            if asked.transactional_id in together or len(together) == _TRANSACTIONS_PER_REQUEST:
                left.append((asked, answered))
            else:
                together[asked.transactional_id] = asked, answered
        self._waiting = left
        return together

    async def _send(self, transactions: Collection[Asked]) -> dict[str, Answers]:
        """Return the answers by transactional ID. Raises BrokerUnreachable and ProtocolError."""
        if not transactions:
            return {}
        body = await self._adding.ask(ADD_PARTITIONS_TO_TXN, VERSION, request_of(transactions))
        answer: Any = read_response(ADD_PARTITIONS_TO_TXN, VERSION, body)
        if answer.error_code.value != NONE:
            error_code = int(answer.error_code.value)
            return {asked.transactional_id: dict.fromkeys(asked.partitions, error_code) for asked in transactions}
        return {
            str(result.transactional_id): {
                (str(topic.name), int(one.partition_index)): int(one.partition_error_code.value)
                for topic in result.topic_results
                for one in topic.results_by_partition
            }
            for result in answer.results_by_transaction
        }


class TransactionCoordinators:
    """The brokers that coordinate transactions, each with its connections."""

    def __init__(self, cluster: Cluster, connect: Callable[[int], ServiceConnection]) -> None:
        """`connect` returns a connection of the caller's own to a broker."""
        self._cluster = cluster
        self._connect = connect
        self._known: dict[int, TransactionCoordinator] = {}

    def at(self, node_id: int) -> TransactionCoordinator:
        """Return the coordinator that is this broker."""
        for gone in self._known.keys() - self._cluster.view.brokers.keys():
            self._known.pop(gone).close()
        known = self._known.get(node_id)
        if known is None:
            known = self._known[node_id] = TransactionCoordinator(lambda: self._connect(node_id))
        return known

    def close(self) -> None:
        """Close all connections."""
        for known in self._known.values():
            known.close()


def request_of(transactions: Iterable[Asked], *, verify: bool = False) -> bytes:
    """Return the body of AddPartitionsToTxn v5, as brokers send it. `verify`: nothing is added."""
    from kio.schema.add_partitions_to_txn.v5.request import AddPartitionsToTxnRequest

    request: Any = AddPartitionsToTxnRequest
    transaction_type = nested(request, "transactions")
    topic_type = nested(transaction_type, "topics")
    entities = []
    for asked in transactions:
        by_topic: defaultdict[str, list[int]] = defaultdict(list)
        for name, index in asked.partitions:
            by_topic[name].append(index)
        entities.append(
            transaction_type(
                transactional_id=asked.transactional_id,
                producer_id=asked.producer_id,
                producer_epoch=asked.producer_epoch,
                verify_only=verify,
                topics=tuple(topic_type(name=name, partitions=tuple(some)) for name, some in by_topic.items()),
            )
        )
    return encode(request(transactions=tuple(entities)))
