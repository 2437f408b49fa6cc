"""Records to send, and records as they are read back, in a form that can be compared field by field."""

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
    """A record as a consumer gets it."""

    offset: int
    key: bytes | None
    value: bytes | None
    headers: Headers
    timestamp_ms: int


def samples(count: int, label: str, max_value_bytes: int = 8_000, *, plain: bool = False) -> list[Sample]:
    """Records with everything that a record may have: no key, no value, empty ones, headers without value or twice.

    The same for the same `label`, but for their timestamps, which lie in the last minute. `plain`: without what the
    Python clients can't say (neither key nor value; a header without value).
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
    """How a reader is to see `sent`."""
    return [Stored(first_offset + place, *sample) for place, sample in enumerate(sent)]
