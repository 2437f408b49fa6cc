"""Adds diskless partitions to transactions of version 2 (KIP-890), as brokers add the partitions of a Produce.

1. The transaction coordinator adds them to the transaction (`coordinators.py`). Only brokers may ask for that, so the
   proxy's principal needs `ClusterAction`. It adds none before the markers of the producer's last transaction are
   written. Until then its answer is CONCURRENT_TRANSACTIONS, and it is asked again, as brokers do.
2. The ends of the shadows' logs are read (`shadow_ends.py`). The transaction's own marker will be there or after them.

Version 1 asks then whether the transaction is still ongoing. Here that is not needed: a transaction's marker has a
higher epoch than its batches, so a batch that comes after its marker is rejected for its epoch.

The ends are kept by transactional ID, producer, epoch and partition, and every transaction has an epoch of its own. So
a transaction asks once for each of its partitions.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from functools import partial
from typing import Any, NamedTuple

from proxy.brokers.broker_metadata import Partition
from proxy.brokers.upstream import BrokerUnreachable
from proxy.client.client import Client
from proxy.client.request import Request
from proxy.coordinator.interface import CoordinatorUnavailable
from proxy.coordinator.interface_transactions import NO_MARKERS
from proxy.process.newest import Newest
from proxy.protocol.api_keys import FIND_COORDINATOR
from proxy.protocol.errors import (
    CLUSTER_AUTHORIZATION_FAILED,
    CONCURRENT_TRANSACTIONS,
    COORDINATOR_LOAD_IN_PROGRESS,
    COORDINATOR_NOT_AVAILABLE,
    INVALID_PRODUCER_EPOCH,
    NONE,
    NOT_COORDINATOR,
    NOT_ENOUGH_REPLICAS,
    OPERATION_NOT_ATTEMPTED,
    PRODUCER_FENCED,
    UNKNOWN_TOPIC_OR_PARTITION,
)
from proxy.telemetry.throttled_log import NAMES_SHOWN, ThrottledLog
from proxy.transactions.coordinators import Answers, Asked, TransactionCoordinator, TransactionCoordinators
from proxy.transactions.enlistments import AddedPartitions, CatchUp, Log
from proxy.transactions.shadow_ends import ShadowEnds
from proxy.wire.cold import encode, read_response
from proxy.wire.errors import ProtocolError

RETRIED_BY_CLIENTS = frozenset({CONCURRENT_TRANSACTIONS, NOT_ENOUGH_REPLICAS})
_FIND_VERSION = 4
_TRANSACTION = 1
"""Key type of FindCoordinator."""
_FIRST_PAUSE_S, _LONGEST_PAUSE_S = 0.02, 0.1
_CONCURRENT_S = 1.0
"""How long the markers of the producer's last transaction are waited for."""
_ELSEWHERE = frozenset({NOT_COORDINATOR, COORDINATOR_NOT_AVAILABLE, COORDINATOR_LOAD_IN_PROGRESS})
_RETRIED = _ELSEWHERE | {CONCURRENT_TRANSACTIONS}
_RETRIABLE = _ELSEWHERE | {UNKNOWN_TOPIC_OR_PARTITION, OPERATION_NOT_ATTEMPTED}
"""Also a coordinator that does not know a new placeholder topic yet; then it adds none of the request's partitions."""
_AS_PRODUCED = {PRODUCER_FENCED: INVALID_PRODUCER_EPOCH, **dict.fromkeys(_RETRIABLE, NOT_ENOUGH_REPLICAS)}
"""Errors that a Produce is answered in another way."""
_MAX_KNOWN = 100_000


class ProducerIn(NamedTuple):
    """A producer in its session."""

    transactional_id: str
    producer_id: int
    epoch: int


class Additions:
    """Adds the partitions of clients' Produce requests, and knows from which offset on a marker may end their
    transactions."""

    def __init__(
        self,
        coordinators: TransactionCoordinators,
        ends: ShadowEnds,
        catch_up: CatchUp,
        throttled_log: ThrottledLog,
        *,
        timeout_s: float,
    ) -> None:
        """`catch_up` applies the markers of shadows now. `timeout_s`: longest time for one request
        (`transactions.enlist_timeout_ms`)."""
        self._coordinators = coordinators
        self._ends = ends
        self._catch_up = catch_up
        self._throttled_log = throttled_log
        self.timeout_s = timeout_s
        self._known: Newest[tuple[Log, int], tuple[ProducerIn, int]] = Newest(_MAX_KNOWN)
        """Producer and end, by log and producer ID."""
        self._places: Newest[str, int] = Newest(_MAX_KNOWN)
        """Transaction coordinators that have added something, by transactional ID."""
        self._doubtful: set[Log] = set()
        """Logs whose last end was of no use."""

    def markers_from(self, log: Log, producer: ProducerIn) -> int | None:
        """Return the offset in the shadow's log from which on a marker may end the producer's transaction; None if this
        proxy has not added the log to it, and NO_MARKERS if it may not."""
        known, end = self._known.get((log, producer.producer_id), (producer, None))
        return end if known == producer else None

    def forget(self, log: Log, producer_id: int) -> None:
        """Ask again when the producer's next batch comes: an operator has ended its transaction, or the shadow's log
        was truncated (unclean election), which the markers show."""
        self._known.pop((log, producer_id), None)
        if len(self._doubtful) < _MAX_KNOWN:
            self._doubtful.add(log)

    async def add(self, client: Client, request: Request, asked: AddedPartitions) -> Mapping[Partition, int]:
        """Add partitions to the transaction, and note the ends of their logs.

        The client may write to its transactional ID and to the partitions. Returns the error, as it answers a Produce,
        of each partition that was not added. RETRIED_BY_CLIENTS are for the client to retry.
        """
        errors: Answers = {}
        ends: dict[Partition, int] = {}
        reason = f"brokers, or the markers of earlier transactions, took more than {self.timeout_s:g} s"
        try:
            async with asyncio.timeout(self.timeout_s):
                await self._settle_doubts(asked)
                coordinator, answers = await self._add(client, request, asked)
                if CLUSTER_AUTHORIZATION_FAILED in answers.values():
                    self._report_denial(asked)
                    answers, ends = dict.fromkeys(asked.logs, NONE), dict.fromkeys(asked.logs, NO_MARKERS)
                errors = {one: _AS_PRODUCED.get(error, error) for one, error in answers.items() if error != NONE}
                added = {one: id_ for one, id_ in asked.logs.items() if one not in errors and one not in ends}
                if added:
                    await self._ends.read(coordinator.ask, added, ends)
        except TimeoutError:
            pass
        except (BrokerUnreachable, CoordinatorUnavailable, ProtocolError) as error:
            reason = str(error)
        self._note(asked, ends)
        missing = asked.logs.keys() - ends.keys() - errors.keys()
        if missing:
            self._throttled_log.warning(
                "partitions_not_added",
                transactional_id=asked.transactional_id,
                topics=sorted({name for name, _ in missing})[:NAMES_SHOWN],
                reason=reason,
                effect="the client gets NOT_ENOUGH_REPLICAS and retries",
            )
        return {**dict.fromkeys(missing, NOT_ENOUGH_REPLICAS), **errors}

    def close(self) -> None:
        """Close all connections."""
        self._coordinators.close()

    async def _settle_doubts(self, asked: AddedPartitions) -> None:
        """Apply the markers of logs whose last end was of no use.

        Raises BrokerUnreachable and CoordinatorUnavailable.
        """
        logs = {(topic_id, index) for (_, index), topic_id in asked.logs.items()}
        if doubtful := logs & self._doubtful:
            await self._catch_up(doubtful)
            self._doubtful -= doubtful

    def _note(self, asked: AddedPartitions, ends: Mapping[Partition, int]) -> None:
        producer = ProducerIn(asked.transactional_id, asked.producer_id, asked.producer_epoch)
        for partition, end in ends.items():
            self._known.note(((asked.logs[partition], partition[1]), asked.producer_id), (producer, end))

    async def _add(
        self, client: Client, request: Request, asked: AddedPartitions
    ) -> tuple[TransactionCoordinator, Answers]:
        """Ask the transaction coordinator until it has decided. Returns it, and its answers.

        Raises BrokerUnreachable and ProtocolError.
        """
        loop = asyncio.get_running_loop()
        until_s, pause_s = loop.time() + _CONCURRENT_S, _FIRST_PAUSE_S
        answers: Answers = dict.fromkeys(asked.logs, NOT_COORDINATOR)
        node_id = self._places.pop(asked.transactional_id, None)  # it is noted again unless this fails
        while True:
            if node_id is None:
                node_id = await self._find(client, request, asked.transactional_id)
            coordinator = self._coordinators.at(node_id)
            left = [one for one, error in answers.items() if error in _RETRIED]
            answers |= await coordinator.add(Asked(*asked[:3], left))
            left_errors = _RETRIED.intersection(answers.values())
            if not left_errors or (left_errors == {CONCURRENT_TRANSACTIONS} and loop.time() > until_s):
                break
            if left_errors & _ELSEWHERE:
                node_id = None
            await asyncio.sleep(pause_s)
            pause_s = min(2 * pause_s, _LONGEST_PAUSE_S)
        self._places.note(asked.transactional_id, node_id)
        return coordinator, answers

    def _report_denial(self, asked: AddedPartitions) -> None:
        """Report that nothing may be added. A client that has added its partitions itself (version 1) may go on."""
        self._throttled_log.warning(
            "partitions_not_added",
            transactional_id=asked.transactional_id,
            topics=sorted({name for name, _ in asked.logs})[:NAMES_SHOWN],
            reason="the proxy's principal lacks the right ClusterAction",
            effect="a client of transaction version 2 gets INVALID_TXN_STATE, and aborts its transaction",
            remedy="allow the proxy's principal ClusterAction on the cluster, or set transactions.client_version "
            "to 1 and start the clients again: docs/transactions.md",
        )

    async def _find(self, client: Client, request: Request, transactional_id: str) -> int:
        """Return the node ID of the transaction coordinator, which the client's own broker names: the client may see
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
                return int(found.node_id)
            if error_code not in _ELSEWHERE:
                raise ProtocolError(f"FindCoordinator answers error {error_code}")
            await asyncio.sleep(_FIRST_PAUSE_S)
