"""Choose the next operation of a case at random, near the borders of the logs."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import replace

from tests.differential.generate_batches import BatchMaker
from tests.differential.model import Log, Model
from tests.differential.operations import (
    AddPartitions,
    AlterConfig,
    Asked,
    DeleteRecords,
    DescribeConfigs,
    Fetch,
    ListOffsets,
    LongPoll,
    OffsetForLeaderEpoch,
    Operation,
    Pass,
    Produce,
    Recreate,
)
from tests.differential.shapes import FAIL_ALL, ZSTD

MOST_PARTITIONS = 6
HOUR_MS = 3_600_000
SIZE, SMALL = "max.message.bytes", ("300", "2000")
ALTERED: dict[str, tuple[str | None, ...]] = {
    SIZE: (*SMALL, "1048588", None, "many", "-1"),
    "message.timestamp.after.max.ms": ("700000", "3600000", None, "x"),
    "message.timestamp.before.max.ms": ("60000", "86400000", None),
    "message.timestamp.type": ("LogAppendTime", "CreateTime", None, "AppendTime"),
    "compression.type": ("uncompressed", "gzip", "snappy", "lz4", "zstd", "zstd", "producer", None, "brotli"),
    "retention.bytes": ("1000000000", None),
    "retention.ms": ("-1", "forever"),
    # Not `compact`: every second batch has a record without a key, and would be rejected from then on.
    "cleanup.policy": ("delete", "", " delete,delete", None, "never"),
    "delete.retention.ms": ("0", "86400000", None, "-1"),
    "min.cleanable.dirty.ratio": ("0", "0.25", "1e-4", None, "1.01"),
    "min.compaction.lag.ms": ("0", "5", None, "-1"),
    "max.compaction.lag.ms": ("9", "3", None, "0"),
    "min.insync.replicas": ("1", "0"),
    "no.such.config": ("1",),
}
SPECIAL_TIMESTAMPS = (-1, -2, -3, -4, -5, -6, -7)
FIRST_VERSION_OF = {-3: 7, -4: 8, -5: 9, -6: 11}
"""First ListOffsets version that knows each special timestamp."""


class Generator:
    """Generates operations; `chance` and the model that it gets decide them."""

    def __init__(self, chance: random.Random) -> None:
        self._chance = chance
        self._batches = BatchMaker(chance)
        self._makers: dict[Callable[[Model], Operation], float] = {
            self._produce: 38,
            self._fetch: 25,
            self._list_offsets: 15,
            self._delete_records: 5,
            self._epochs: 4,
            self._long_poll: 3,
            self._pass: 2,
            self._alter: 1.5,
            self._describe: 1,
            self._add_partitions: 0.7,
            self._recreate: 0.5,
        }

    def partitions(self) -> int:
        """Choose the initial number of partitions."""
        return self._chance.choice((1, 1, 2, 3))

    def configs(self) -> dict[str, str]:
        """Choose the topic's configs: one segment only on the broker, whatever the records' times."""
        return {"segment.ms": str(2**53)}

    def next(self, model: Model) -> Operation:
        (maker,) = self._chance.choices(list(self._makers), list(self._makers.values()))
        return maker(model)

    def _at(self) -> int:
        return self._chance.randrange(6)

    def _partition(self, model: Model) -> int:
        """Choose a partition, nearly always an existing one."""
        return len(model.logs) if self._chance.random() < 0.02 else self._chance.randrange(len(model.logs))

    def _several(self, model: Model) -> list[int]:
        """Choose different partitions."""
        count = self._chance.choice((1, 1, 2, len(model.logs)))
        return list(dict.fromkeys(self._partition(model) for _ in range(count)))

    def _log(self, model: Model, partition: int) -> Log:
        return model.logs[partition] if partition < len(model.logs) else Log()

    def _former(self, model: Model) -> bool:
        return model.was_recreated and self._chance.random() < 0.1

    def _produce(self, model: Model) -> Operation:
        batches = tuple((index, self._batches.any(model, index)) for index in self._several(model))
        batches = next(((one,) for one in batches if one[1].damage in FAIL_ALL), batches)
        acks = self._chance.choice((1, -1, -1, -1, -1, 0, 2)) if self._chance.random() < 0.5 else -1
        if acks == 0 and any(index >= len(model.logs) for index, _ in batches):
            acks = -1
        if acks == 2 and any(shape.damage or shape.codec == ZSTD for _, shape in batches):
            acks = 1
        former = self._former(model) and not any(shape.damage for _, shape in batches)
        return Produce(self._at(), self._chance.randint(3, 13), acks, batches, former)

    def _offset(self, log: Log) -> int:
        near = [-1, 0, 1]
        borders = [log.start, log.end]
        for batch in self._chance.sample(log.batches, min(3, len(log.batches))):
            borders += [batch.base_offset, batch.last_offset]
        offset = self._chance.choice(borders) + self._chance.choice(near)
        if self._chance.random() < 0.2:
            offset = self._chance.choice((-2, log.end + 100, 2**40, 0))
        return offset

    def _bytes(self, log: Log, offset: int) -> int:
        """Choose about the size of some batches from the offset on, or a size that does not limit."""
        if self._chance.random() < 0.4:
            return self._chance.choice((1_048_576, 0, 1, 60))
        lengths = [batch.length for batch in log.batches if batch.last_offset >= offset]
        count = self._chance.randint(0, min(len(lengths), 5))
        return max(0, sum(lengths[:count]) + self._chance.choice((-1, 0, 0, 1)))

    def _fetch(self, model: Model) -> Operation:
        asked = []
        for index in self._several(model):
            log = self._log(model, index)
            offset = self._offset(log)
            if self._chance.random() < 0.6:
                offset = self._chance.randint(log.start, log.end)
            max_bytes = 1_048_576 if model.rewritten else self._bytes(log, offset)
            asked.append(Asked(index, offset, max_bytes))
        max_bytes = 52_428_800
        if not model.rewritten and self._chance.random() < 0.4:
            max_bytes = self._bytes(self._log(model, asked[0].partition), asked[0].offset)
        return Fetch(
            self._at(),
            self._chance.randint(4, 18),
            tuple(asked),
            max_bytes,
            self._chance.choice((0, 1, 1, 500, 1_000_000)),
            self._chance.choice((0, 5, 20)),
            self._chance.choice((0, 1)),
            self._former(model),
        )

    def _long_poll(self, model: Model) -> Operation:
        index = self._chance.randrange(len(model.logs))
        fetch = Fetch(
            self._at(),
            self._chance.randint(4, 18),
            (Asked(index, model.logs[index].end),),
            min_bytes=1,
            max_wait_ms=2_000,
        )
        shape = self._batches.good(model, index)
        return LongPoll(fetch, Produce(self._at(), self._chance.randint(7, 13), -1, ((index, shape),)))

    def _list_offsets(self, model: Model) -> Operation:
        asked = []
        version = self._chance.randint(1, 11)
        for index in self._several(model):
            known = [timestamp for timestamp in SPECIAL_TIMESTAMPS if FIRST_VERSION_OF.get(timestamp, 1) <= version]
            timestamp = self._chance.choice(known)
            if self._chance.random() < 0.6:
                timestamp = self._time(self._log(model, index))
            asked.append((index, timestamp))
        return ListOffsets(self._at(), version, tuple(asked), self._chance.choice((0, 1)))

    def _time(self, log: Log) -> int:
        """Choose a time near a record's, or far from all."""
        given = [one.time_ms for batch in log.batches for one in batch.shape.records if one.time_ms is not None]
        if not given or self._chance.random() < 0.1:
            return self._chance.choice((-50 * HOUR_MS, 2 * HOUR_MS, -20_000))
        return self._chance.choice(given) + self._chance.choice((-1, 0, 0, 1))

    def _delete_records(self, model: Model) -> Operation:
        asked = []
        for index in self._several(model):
            log = self._log(model, index)
            before = self._chance.choice(
                (self._offset(log), log.start + 1, log.end + 1, self._chance.randint(0, log.end))
            )
            if self._chance.random() < 0.05:
                before = self._chance.choice((-1, log.end))
            asked.append((index, before))
        return DeleteRecords(self._at(), self._chance.randint(0, 2), tuple(asked))

    def _epochs(self, model: Model) -> Operation:
        asked = tuple((index, self._chance.choice((0, 0, 0, -1, 1, 7))) for index in self._several(model))
        return OffsetForLeaderEpoch(self._at(), self._chance.randint(2, 4), asked)

    def _pass(self, model: Model) -> Operation:
        return Pass(self._chance.choice((1, 7, 30)))

    def _alter(self, model: Model) -> Operation:
        name = self._chance.choice(list(ALTERED))
        value = self._chance.choice(ALTERED[name])
        if (name == "compression.type" and model.configs.get(SIZE) in SMALL) or (name == SIZE and model.rewritten):
            # How well the two sides compress would decide which batch is too large.
            name, value = SIZE, "1048588"
        return AlterConfig(self._at(), self._chance.randint(0, 1), name, value)

    def _describe(self, model: Model) -> Operation:
        return DescribeConfigs(self._at(), self._chance.randint(1, 4), self._chance.random() < 0.5)

    def _add_partitions(self, model: Model) -> Operation:
        count = len(model.logs) + self._chance.choice((1, 1, 2, 0, -1))
        return AddPartitions(self._at(), self._chance.randint(0, 3), min(count, MOST_PARTITIONS))

    def _recreate(self, model: Model) -> Operation:
        asked = (self._fetch, self._produce, self._list_offsets, self._delete_records, self._epochs)
        meanwhile = [maker(model) for maker in self._chance.sample(asked, 2)]
        known = [replace(one, acks=-1) if isinstance(one, Produce) else one for one in meanwhile]
        return Recreate(self.partitions(), tuple(self.configs().items()), tuple(known))
