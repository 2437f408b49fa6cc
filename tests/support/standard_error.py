"""The standard error of a command, in a process where others write to it too."""

from __future__ import annotations


def own_lines(text: str) -> list[str]:
    """Return the lines without librdkafka's: clients of other tests may still report that their brokers are gone."""
    return [line for line in text.splitlines() if not line.startswith("%")]
