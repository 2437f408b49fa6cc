"""The file of a history: JSON lines, as `operations.py` describes them."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from threading import Lock

from pydantic import ValidationError

from proxy.judge.operations import OPERATION, Ack, Ended, Fail, Operation, Outcome, Poll, Run, Send

MAX_LINE_BYTES = 16 << 20
FLUSH_US = 1_000_000
"""Longest time for which lines stay in the buffer while others are written."""


class HistoryError(Exception):
    """A history that cannot be read; the text names the file, the line and the cause."""


class History:
    """A history on disk. Every iteration reads the file from its beginning."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __iter__(self) -> Iterator[Operation]:
        """Yield the operations. Raises HistoryError. A last line that was cut off is left out."""
        number = 0
        try:
            with self.path.open("rb") as file:
                while line := file.readline(MAX_LINE_BYTES):
                    number += 1
                    if not line.endswith(b"\n"):
                        if len(line) == MAX_LINE_BYTES:
                            raise HistoryError(f"{self.path}:{number}: the line is longer than {MAX_LINE_BYTES} bytes")
                        return
                    yield self._parse(number, line)
        except OSError as error:
            raise HistoryError(f"cannot read {self.path}: {error.strerror or error}") from error

    def _parse(self, number: int, line: bytes) -> Operation:
        try:
            operation = OPERATION.validate_json(line)
        except ValidationError as error:
            first = error.errors(include_url=False)[0]
            where = ".".join(str(part) for part in first["loc"])
            raise HistoryError(f"{self.path}:{number}: no operation of a history: {where}: {first['msg']}") from error
        if isinstance(operation, Run) != (number == 1):
            raise HistoryError(f"{self.path}:{number}: the first line, and no other, is the operation `run`")
        return operation


class HistoryWriter:
    """Writes a history, from any thread, and counts what passes."""

    def __init__(self, path: Path) -> None:
        """Create the file, or empty it. Raises OSError."""
        self.path = path
        self._file = path.open("wb")
        self._lock = Lock()
        self._began_ns = time.monotonic_ns()
        self._flushed_us = 0
        self.sent = self.acknowledged = self.failed = 0
        """Records so far."""
        self.committed = 0
        """Transactions so far."""
        self.read: Counter[int] = Counter()
        """Records that each consumer got, by client number."""

    def write(self, operation: Operation) -> None:
        """Write an operation with the present time. Raises OSError."""
        with self._lock:
            now_us = operation.at_us = (time.monotonic_ns() - self._began_ns) // 1000
            self._file.write(operation.model_dump_json().encode() + b"\n")
            self._count(operation)
            if now_us - self._flushed_us > FLUSH_US:
                self._flushed_us = now_us
                self._file.flush()

    def _count(self, operation: Operation) -> None:
        match operation:
            case Send():
                self.sent += operation.count
            case Ack():
                self.acknowledged += len(operation.records)
            case Fail():
                self.failed += len(operation.numbers)
            case Ended():
                self.committed += operation.outcome is Outcome.COMMITTED
            case Poll():
                self.read[operation.client] += len(operation.records)

    def close(self) -> None:
        """Write what is in the buffer, and close the file. Repeatable."""
        with self._lock:
            self._file.close()
