"""The output of a reader's program: one JSON object per line, read by `books.ReaderBooks`."""

from __future__ import annotations

import json
from typing import Any

from proxy.demo import payload
from tests.moves_under_load.books import Place

METADATA_MS = 2_000
"""Seconds between a reader's checks for new partitions and moved leaders."""


class Voice:
    """Prints the records and errors that a client gets."""

    def __init__(self, run: str) -> None:
        self._run = bytes.fromhex(run)

    def record(
        self, place: Place, offset: int, key: bytes | None, value: bytes | None, high_watermark: int | None = None
    ) -> None:
        """Print one record, with the origin that its value names and the high watermark, if known."""
        sent = payload.read(self._run, value)
        if sent is None:
            self.error(f"a damaged record at offset {offset} of partition {place[1]} of {place[0]}")
            return
        self._say(
            "record",
            place,
            offset=offset,
            producer=sent.producer,
            sequence=sent.sequence,
            checksum=payload.checksum(key, value),
            ms=round((payload.now_ns() - sent.sent_ns) / 1e6, 1),
            high=high_watermark,
        )

    def reset(self, place: Place, offset: int) -> None:
        """Print that the requested offset is out of range."""
        self._say("reset", place, offset=offset)

    def error(self, kind: str) -> None:
        """Print an error by its kind."""
        print(json.dumps({"event": "error", "kind": kind}), flush=True)

    def _say(self, event: str, place: Place, **values: Any) -> None:
        print(json.dumps({"event": event, "topic": place[0], "partition": place[1], **values}), flush=True)
