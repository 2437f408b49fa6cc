"""The checks of one partition's batch before it goes to the WAL buffer."""

from __future__ import annotations

from typing import NamedTuple

from proxy.coordinator.interface_registry import DisklessTopic
from proxy.coordinator.interface_transactions import NO_MARKERS
from proxy.diskless.index_watch import FULL_MESSAGE, FULL_THROTTLE_MS
from proxy.diskless.produce_checks import check_produced
from proxy.diskless.produce_rules import ProduceRules
from proxy.producing.parts import DisklessProduce
from proxy.producing.rights import ProducerRights
from proxy.producing.transaction import Added, ProducerTransaction
from proxy.protocol.errors import KAFKA_STORAGE_ERROR, NONE
from proxy.records.batches import BatchHeader, RecordsError, producer_id_of
from proxy.transactions.additions import RETRIED_BY_CLIENTS
from proxy.wire.produce import PartitionProduce, PartitionProduced, ProduceRequest


class Admitted(NamedTuple):
    """A batch that may be appended."""

    records: memoryview
    header: BatchHeader
    rules: ProduceRules
    markers_from: int = NO_MARKERS
    """See `ProposedBatch`."""
    added: Added | None = None
    """Set if the request has added the partition to its transaction."""


class Refused(NamedTuple):
    """A batch that may not."""

    answer: PartitionProduced
    throttle_ms: int = 0
    """Time for which the client is to be throttled."""


def admit(
    of: DisklessProduce,
    entry: DisklessTopic,
    partition: PartitionProduce,
    request: ProduceRequest,
    rights: ProducerRights,
    transaction: ProducerTransaction | None,
) -> Admitted | Refused:
    """Check a batch for a topic to which the client may write. `transaction`: of the request, if it adds partitions.

    A refused batch is noted, so that later ones of its producer don't wait for it, or don't pass before it comes again.
    """
    rules = of.topic_defaults.rules(entry)
    if rules.compacted:
        rules = rules._replace(partition=f"{entry.name}-{partition.index}")
    try:
        records, header = check_produced(
            entry,
            partition,
            rules,
            acks=request.acks,
            version=request.version,
            transactional_error=rights.transactional_error,
        )
    except RecordsError as error:
        of.intake.refused(entry.topic_id, partition.index, producer_id_of(partition.records))
        return Refused(PartitionProduced(partition.index, error.error_code, error_message=str(error)))
    log = entry.topic_id, partition.index
    producer = header.producer_id, header.producer_epoch, header.base_sequence
    admitted = Admitted(records, header, rules)
    if transaction is not None and header.is_transactional:
        error_code, markers_from = transaction.judge(log, header)
        if error_code in RETRIED_BY_CLIENTS:
            of.intake.not_stored(*log, *producer)
        elif error_code != NONE:
            of.intake.refused(*log, header.producer_id)
        if error_code != NONE:
            return Refused(PartitionProduced(partition.index, error_code))
        added = Added(of.additions, log, header.producer_id) if markers_from != NO_MARKERS else None
        admitted = Admitted(records, header, rules, markers_from, added)
    if of.index_watch.is_full(*log):
        of.stats.index_full_batches += 1
        of.intake.not_stored(*log, *producer)
        full = PartitionProduced(partition.index, KAFKA_STORAGE_ERROR, error_message=FULL_MESSAGE)
        return Refused(full, FULL_THROTTLE_MS)
    return admitted
