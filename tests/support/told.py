"""What a command has told on standard error, in a process that others write to, too."""

from __future__ import annotations


def own_lines(text: str) -> list[str]:
    """Without those of librdkafka: clients of other tests may still say that their brokers are gone."""
    return [line for line in text.splitlines() if not line.startswith("%")]
