"""One request as the handlers see it."""

from __future__ import annotations

from typing import NamedTuple


class Request(NamedTuple):
    """A held request frame and its header."""

    api_key: int
    api_version: int
    correlation_id: int
    client_id: str | None
    frame: memoryview
    """The frame without its 4-byte size."""
    body: memoryview
    """The part of `frame` after the header."""

    def with_body(self, body: bytes) -> Request:
        """Return the same request with another body."""
        frame = memoryview(bytes(self.frame[: len(self.frame) - len(self.body)]) + body)
        return self._replace(frame=frame, body=frame[len(frame) - len(body) :])
