"""Sample records to send, and received records in a form that can be compared field by field."""

from __future__ import annotations

import random
import time
from typing import NamedTuple

COMPRESSIONS = ("none", "gzip", "snappy", "lz4", "zstd")
Headers = tuple[tuple[str, bytes | None], ...]


class Sample(NamedTuple):
    """A record to send."""

    key: bytes | None
    value: bytes | None
    headers: Headers
    timestamp_ms: int


class Stored(NamedTuple):
    """A record as a consumer receives it."""

    offset: int
    key: bytes | None
    value: bytes | None
    headers: Headers
    timestamp_ms: int


def samples(count: int, label: str, max_value_bytes: int = 8_000, *, plain: bool = False) -> list[Sample]:
    """Return records with every feature: no key, no value, empty key and value, headers without a value or given twice.

    The same `label` gives the same records, except for their timestamps, which are within the last minute. `plain`
    omits what the Python clients cannot send (neither key nor value; a header without a value).
    """
    chance = random.Random(label)
    now_ms = int(time.time() * 1000) - 60_000
    made = []
    for number in range(count):
        key = (None, b"", f"key-{number % 7}".encode())[number % 3]
        text = f"{label}-{number}-".encode()
        value = (text * (chance.randrange(max_value_bytes) // len(text) + 1), text, b"", None)[number % 4]
        headers: Headers = (("trace", text), ("trace", b""), ("none", None)) if number % 5 == 0 else ()
        if plain:
            headers = headers[:2]
            value = text if key is None else value
        made.append(Sample(key, value, headers, now_ms + 7 * number))
    return made


def stored(sent: list[Sample], first_offset: int = 0) -> list[Stored]:
    """Return `sent` as a reader must see it."""
    return [Stored(first_offset + place, *sample) for place, sample in enumerate(sent)]
