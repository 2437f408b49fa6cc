"""Spans of time and sizes as people write them on a command line."""

from __future__ import annotations

import re

_MILLISECONDS = {"ms": 1, "s": 1_000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}
_BYTES = {"": 1, "B": 1, "KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30, "TiB": 1 << 40}
_TOLD_BYTES = ("B", "KiB", "MiB", "GiB", "TiB")


def duration_ms(text: str) -> int:
    """Milliseconds of `90s`, `15m`, `1h`, `7d` or `500ms`. Raises ValueError with the remedy."""
    found = re.fullmatch(r"(\d+)\s*(ms|s|m|h|d)", text.strip())
    if not found:
        raise ValueError(f"{text!r} is not a span of time; write it as 90s, 15m, 1h or 7d")
    return int(found[1]) * _MILLISECONDS[found[2]]


def byte_count(text: str) -> int:
    """Bytes of `65536`, `64KiB`, `64MiB` or `1GiB`. Raises ValueError with the remedy."""
    found = re.fullmatch(r"(\d+)\s*([KMGT]iB|B|)", text.strip())
    if not found:
        raise ValueError(f"{text!r} is not a size; write it as 65536, 64KiB, 64MiB or 1GiB")
    return int(found[1]) * _BYTES[found[2]]


def bytes_text(count: float) -> str:
    """Return a number of bytes for people: `1.5 GiB`."""
    for unit in _TOLD_BYTES:
        if abs(count) < 1024 or unit == _TOLD_BYTES[-1]:
            break
        count /= 1024
    return f"{count:,.0f} {unit}" if unit == "B" else f"{count:,.1f} {unit}"


def seconds_text(seconds: float) -> str:
    """Return a span of time for people: `42 s`, `3 min 20 s`, `2 h 5 min`."""
    whole = round(seconds)
    if whole < 60:
        return f"{whole} s"
    if whole < 3_600:
        return f"{whole // 60} min {whole % 60} s"
    return f"{whole // 3_600} h {whole % 3_600 // 60} min"
