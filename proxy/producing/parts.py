"""The parts of a Produce with diskless topics that all of them share."""

from __future__ import annotations

from collections.abc import Callable

from proxy.accounting.accounting import Accounts
from proxy.client.rights import ClientRights
from proxy.client.slots import Slot
from proxy.client.transactional_ids import ClientTransactionalIds
from proxy.diskless.index_watch import IndexWatch
from proxy.diskless.wal.intake import Intake
from proxy.process.memory import MemoryBudget
from proxy.process.turns import Turns
from proxy.producing.classic import ClassicProduce
from proxy.quotas.quotas import Quotas
from proxy.routing.racks import Racks
from proxy.telemetry.stats import Stats
from proxy.topics.topic_defaults import TopicDefaults
from proxy.topics.topics import Topics
from proxy.transactions.additions import Additions
from proxy.wire.produce import ProduceRequest

_DECODED_BYTES = 800
"""Memory for each partition of a request, measured: names, the batch's header, and the outcome."""


class DisklessProduce:
    """The parts that every Produce with diskless topics needs."""

    def __init__(
        self,
        *,
        classic: ClassicProduce,
        topics: Topics,
        topic_defaults: TopicDefaults,
        rights: ClientRights,
        transactional_ids: ClientTransactionalIds,
        additions: Additions,
        quotas: Quotas,
        index_watch: IndexWatch,
        intake: Intake,
        accounts: Accounts,
        racks: Racks,
        stats: Stats,
        memory: MemoryBudget,
        turns: Turns,
        now: Callable[[], float],
        wall_clock_ms: Callable[[], int],
    ) -> None:
        """`now`: monotonic seconds."""
        self.classic = classic
        self.topics = topics
        self.topic_defaults = topic_defaults
        self.rights = rights
        self.transactional_ids = transactional_ids
        self.additions = additions
        self.quotas = quotas
        self.index_watch = index_watch
        self.intake = intake
        self.accounts = accounts
        self.racks = racks
        self.stats = stats
        self.memory = memory
        self.turns = turns
        self.now = now
        self.wall_clock_ms = wall_clock_ms

    def charge_decoded(self, slot: Slot, parsed: ProduceRequest) -> None:
        """Let the slot hold the memory of what was decoded of its request, in addition to the frame."""
        decoded_bytes = self.decoded_bytes(parsed)
        self.memory.take(decoded_bytes)
        slot.charge_bytes += decoded_bytes

    @staticmethod
    def decoded_bytes(parsed: ProduceRequest) -> int:
        """Return the memory of what was decoded of a request."""
        return _DECODED_BYTES * sum(len(topic.partitions) for topic in parsed.topics)
