"""The bytes of a record: everything in them follows from run, client and number, so a reader can check all of it."""

from __future__ import annotations

import hashlib
import re

from proxy.judge.findings import Value
from proxy.judge.operations import DAMAGED_CLIENT, FOREIGN_CLIENT

MIN_RECORD_BYTES = 64
FOREIGN, DAMAGED = Value(FOREIGN_CLIENT, 0), Value(DAMAGED_CLIENT, 0)
_HEAD = re.compile(rb"(\w+) (\d{1,7}) (\d{1,12}) ")


def record(run: str, value: Value, record_bytes: int) -> tuple[bytes, bytes]:
    """Return key and value of a record. `run` consists of letters and digits."""
    head = f"{run} {value.client} {value.number} ".encode()
    filling = hashlib.shake_128(head).hexdigest(record_bytes // 2 + 1).encode()
    return f"{value.client}-{value.number}".encode(), (head + filling)[:record_bytes]


def read(run: str, key: bytes | None, content: bytes | None) -> Value:
    """Return which record this is: FOREIGN if it is not of this run, DAMAGED if it is not as it was sent."""
    head = _HEAD.match(content or b"")
    if content is None or head is None or head[1] != run.encode():
        return FOREIGN
    found = Value(int(head[2]), int(head[3]))
    return found if record(run, found, len(content)) == (key, content) else DAMAGED
