"""The transaction of version 2 to which one Produce adds its diskless partitions (KIP-890)."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from proxy.brokers.broker_metadata import Partition
from proxy.client.client import Client
from proxy.client.request import Request
from proxy.coordinator.interface_transactions import NO_MARKERS
from proxy.producing.rights import ProducerRights
from proxy.producing.split import DisklessPart
from proxy.protocol.errors import CONCURRENT_TRANSACTIONS, INVALID_TXN_STATE, NONE
from proxy.records.batches import BatchHeader, transactional_producer_of
from proxy.transactions.additions import Additions, ProducerIn
from proxy.transactions.enlistments import AddedPartitions, Log
from proxy.wire.produce import ProduceRequest
from proxy.wire.steps import Steps, in_slices

_FIRST_VERSION = 12
"""The first version of Produce that adds partitions to transactions."""
_PARTITIONS_PER_REQUEST = 500
_Producer = tuple[int, int]
"""Producer ID and epoch."""


class Added(NamedTuple):
    """A partition that was added to a transaction."""

    additions: Additions
    log: Log
    producer_id: int

    def error_of(self, error_code: int) -> int:
        """Return the error for the client, if the coordinator answers this for its batch.

        A marker of the batch's own epoch, as an operator writes it, ends the transaction in this log only; and an
        unclean election makes offsets of the placeholder's log go back. Then the client sends its batch again, and the
        partition is added again.
        """
        if error_code not in (INVALID_TXN_STATE, CONCURRENT_TRANSACTIONS):
            return error_code
        self.additions.forget(self.log, self.producer_id)
        return CONCURRENT_TRANSACTIONS


class ProducerTransaction:
    """The partitions of one request, which are added before their batches are accepted."""

    __slots__ = ("_additions", "_errors", "_missing", "_transactional_id")

    def __init__(self, additions: Additions, transactional_id: str) -> None:
        self._additions = additions
        self._transactional_id = transactional_id
        self._errors: dict[tuple[Log, _Producer], int] = {}
        self._missing: dict[_Producer, dict[Partition, bytes]] = {}

    def look(self, parts: Iterable[DisklessPart], rights: ProducerRights) -> Steps[bool]:
        """Return whether nothing has to be added; if something has, `add`. Rights must be known."""
        self._missing = {}
        if rights.transactional_error != NONE:
            return True
        for part in parts:
            if part.entry is None or rights.error_of(part) != NONE:
                continue
            for some in in_slices(part.partitions):
                for partition in some:
                    producer = transactional_producer_of(partition.records)
                    log = part.entry.topic_id, partition.index
                    is_there = 0 <= partition.index < part.entry.partitions
                    if producer is not None and is_there and not self._is_known(log, producer):
                        missing = self._missing.setdefault(producer, {})
                        missing[part.entry.name, partition.index] = part.entry.topic_id
                yield
        return not self._missing

    async def add(self, client: Client, request: Request) -> None:
        """Add what is missing. A partition that can't be added has an error after that."""
        missing, self._missing = self._missing, {}
        for producer, logs in missing.items():
            partitions: Sequence[Partition] = list(logs)
            for start in range(0, len(partitions), _PARTITIONS_PER_REQUEST):
                some = {one: logs[one] for one in partitions[start : start + _PARTITIONS_PER_REQUEST]}
                errors = await self._additions.add(
                    client, request, AddedPartitions(self._transactional_id, *producer, some)
                )
                for one, error_code in errors.items():
                    self._errors[(logs[one], one[1]), producer] = error_code

    def judge(self, log: Log, header: BatchHeader) -> tuple[int, int]:
        """Return the error of a transactional batch, or NONE, and the offset of the placeholder topic's log from which
        on a marker may end its transaction."""
        producer = header.producer_id, header.producer_epoch
        error_code = self._errors.get((log, producer), NONE)
        if error_code != NONE:
            return error_code, NO_MARKERS
        end = self._additions.markers_from(log, ProducerIn(self._transactional_id, *producer))
        return (CONCURRENT_TRANSACTIONS, NO_MARKERS) if end is None else (NONE, end)

    def _is_known(self, log: Log, producer: _Producer) -> bool:
        known = ProducerIn(self._transactional_id, *producer)
        return (log, producer) in self._errors or self._additions.markers_from(log, known) is not None


def transaction_of(additions: Additions, request: ProduceRequest) -> ProducerTransaction | None:
    """Return the transaction to which a request adds its partitions; None if it adds none."""
    if request.version < _FIRST_VERSION or request.transactional_id is None:
        return None
    return ProducerTransaction(additions, request.transactional_id)
