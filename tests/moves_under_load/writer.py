"""Idempotent producers, each for some partitions, directly or through a proxy."""

from __future__ import annotations

from tests.retention_under_load.clients import Sender


class Writer(Sender):
    """Enters acknowledgements and errors in the books, for the checker."""

    def _acknowledge(self, partition: int, sequence: int, offset: int | None) -> None:
        self.life.partitions[partition].acknowledge(sequence, offset)

    def _fail(self, partition: int, offset: int, error: str) -> None:
        if partition >= 0 and not self.life.ending.is_set():
            self.life.partitions[partition].failed += 1
