"""The state of the logs, learnt from the classic side's answers, so that the next requests are interesting."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from tests.differential.operations import (
    AddPartitions,
    AlterConfig,
    DeleteRecords,
    LongPoll,
    Operation,
    Produce,
    Recreate,
)
from tests.differential.shapes import Shape

REMEMBERED = 12
"""Batches per producer that may be sent once more; brokers keep five."""


@dataclass(slots=True)
class Appended:
    """One batch of a log."""

    base_offset: int
    length: int
    shape: Shape

    @property
    def last_offset(self) -> int:
        return self.base_offset + len(self.shape.records) - 1


@dataclass(slots=True)
class Log:
    """One partition."""

    start: int = 0
    end: int = 0
    batches: list[Appended] = field(default_factory=list)

    def live(self) -> list[Appended]:
        return [batch for batch in self.batches if batch.last_offset >= self.start]


@dataclass(slots=True)
class Producer:
    """One producer's view of one partition."""

    epoch: int
    next_sequence: int
    sent: list[Shape] = field(default_factory=list)


@dataclass(slots=True)
class Model:
    """The current state of the topic."""

    logs: list[Log]
    configs: dict[str, str]
    producers: dict[tuple[int, int], Producer] = field(default_factory=dict)
    """Producers by partition and producer ID."""
    was_recreated: bool = False
    rewritten: bool = False
    """True if the broker may have recompressed batches, so that bytes and sizes are its own."""

    def learn(self, operation: Operation, answer: Any) -> None:
        """Update the model with the result of an operation."""
        if isinstance(operation, LongPoll):
            self.learn(operation.produce, answer["produced"])
        elif isinstance(answer, str):
            return
        elif isinstance(operation, Produce):
            self._learn_produce(operation, answer)
        elif isinstance(operation, DeleteRecords):
            for topic in answer["topics"]:
                for partition in topic["partitions"]:
                    if partition["error_code"] == 0:
                        self.logs[partition["partition_index"]].start = partition["low_watermark"]
        elif isinstance(operation, AlterConfig) and "described" in answer:
            self.configs[operation.name] = operation.value or ""
            self.rewritten |= operation.rewrites
        elif isinstance(operation, AddPartitions) and answer["results"][0]["error_code"] == 0:
            self.logs += [Log() for _ in range(operation.count - len(self.logs))]
        elif isinstance(operation, Recreate) and answer["created"] == 0:
            self.logs = [Log() for _ in range(operation.partitions)]
            self.configs = dict(operation.configs)
            self.producers.clear()
            self.was_recreated = True
            self.rewritten = False

    def _learn_produce(self, operation: Produce, answer: dict[str, Any]) -> None:
        if operation.acks == 0:
            there = sorted({index for index, _ in operation.batches if index < len(self.logs)})
            ends = dict(zip(there, answer["ends"], strict=True))
            for index, shape in operation.batches:
                if index in ends and ends[index] > self.logs[index].end:
                    self._append(index, shape)
            return
        for topic in answer["responses"]:
            for partition in topic["partition_responses"]:
                for index, shape in operation.batches:
                    appended = partition["index"] == index and partition["error_code"] == 0
                    if appended and partition["base_offset"] == self.logs[index].end:
                        self._append(index, shape)

    def _append(self, index: int, shape: Shape) -> None:
        log = self.logs[index]
        log.batches.append(Appended(log.end, len(shape.build(0)), shape))
        log.end += len(shape.records)
        if shape.producer_id >= 0:
            known = self.producers.get((index, shape.producer_id))
            sent = known.sent if known is not None and known.epoch == shape.producer_epoch else []
            self.producers[index, shape.producer_id] = Producer(
                shape.producer_epoch, shape.next_sequence, [*sent[-REMEMBERED + 1 :], shape]
            )
