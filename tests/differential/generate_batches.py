"""Generate batches at random: good ones, idempotent ones in and out of order, and ones that are rejected."""

from __future__ import annotations

import random
from dataclasses import replace

from tests.differential.model import Model, Producer
from tests.differential.shapes import DAMAGES, MOST_SEQUENCES, Given, Shape

PRODUCER_IDS = (4_000, 4_001, 2**40 + 5)
SECOND_MS, HOUR_MS = 1_000, 3_600_000


class BatchMaker:
    """Builds no batch after which the two logs differ for a documented reason:

    - a first sequence above 0 in a log that never held a record;
    - damage that shows only if compressed records are read;
    - records that are null: a broker never answers them.
    """

    def __init__(self, chance: random.Random) -> None:
        self._chance = chance

    def any(self, model: Model, partition: int) -> Shape:
        """Build a batch that is usually appended."""
        lot = self._chance.random()
        if partition >= len(model.logs):
            return self._plain()
        if lot < 0.10:
            return replace(self._plain(), codec=0, damage=self._chance.choice(DAMAGES))
        if lot < 0.16:
            return self._times_refused()
        if lot < 0.20:
            return replace(self._plain(), records=(Given(self._chance.choice((1_900, 2_500)), -60_000),), codec=0)
        if lot < 0.55:
            return self._plain()
        return self._idempotent(model, partition)

    def good(self, model: Model, partition: int) -> Shape:
        """Build a batch that is appended, unless a config prevents it."""
        return self._plain()

    def _plain(self) -> Shape:
        count = self._chance.choice((1, 1, 2, 3, 7, 20))
        sizes = self._chance.choice(((0, 3), (10, 90), (100, 300)))
        time_ms = -self._chance.randint(20, 3_000) * SECOND_MS
        records = []
        for _ in range(count):
            given = None if self._chance.random() < 0.01 else time_ms
            size = -1 if self._chance.random() < 0.05 else self._chance.randint(*sizes)
            records.append(Given(size, given))
            time_ms += self._chance.choice((0, 1, 1, 5, -3, 900, -700))
        return Shape(tuple(records), self._chance.choice((0, 0, 1, 2, 3, 4)))

    def _times_refused(self) -> Shape:
        """Choose times that configs reject, at least sometimes, or times just at the border."""
        shape = self._plain()
        late = self._chance.choice((2 * HOUR_MS, 15 * 60 * SECOND_MS, -30 * 24 * HOUR_MS, -2 * HOUR_MS))
        chosen = self._chance.randrange(len(shape.records))
        records = [
            replace_time(one, late) if place == chosen or self._chance.random() < 0.3 else one
            for place, one in enumerate(shape.records)
        ]
        return replace(shape, records=tuple(records))

    def _idempotent(self, model: Model, partition: int) -> Shape:
        chance, producer_id = self._chance, self._chance.choice(PRODUCER_IDS)
        shape = self._plain()
        known = model.producers.get((partition, producer_id))
        if known is None:
            empty = model.logs[partition].end == 0
            first = 0 if empty else chance.choice((0, 0, 5, MOST_SEQUENCES - 1, MOST_SEQUENCES - len(shape.records)))
            return replace(shape, producer_id=producer_id, producer_epoch=chance.choice((0, 0, 3)), base_sequence=first)
        if chance.random() < 0.30:
            return chance.choice(known.sent)
        return replace(shape, producer_id=producer_id, **self._numbers(known))

    def _numbers(self, known: Producer) -> dict[str, int]:
        chance, epoch, sequence = self._chance, known.epoch, known.next_sequence
        lot = chance.random()
        if lot < 0.10:
            sequence = (sequence + chance.choice((1, 2, 40))) % MOST_SEQUENCES
        elif lot < 0.15:
            sequence = max(0, sequence - 1)
        elif lot < 0.22:
            epoch, sequence = epoch + 1, chance.choice((0, 0, 0, 4, sequence))
        elif lot < 0.26:
            epoch, sequence = max(0, epoch - 1), chance.choice((0, sequence))
        return {"producer_epoch": epoch, "base_sequence": sequence}


def replace_time(record: Given, time_ms: int) -> Given:
    return record._replace(time_ms=time_ms)
