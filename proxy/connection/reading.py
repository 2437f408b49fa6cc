"""Reading from one client: as long as its gate is open, or within a request that has been let through."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from proxy.connection.client_side import ClientSide
from proxy.connection.gate import Gate
from proxy.wire.frames import FrameListener, FrameReader


class Reading:
    """Feeds the frames of one client to `listener`, unless the gate is closed.

    `fail` is called when a frame cannot be read or handled. `on_resumed` is called when what was kept back has been
    given out.
    """

    __slots__ = ("_fail", "_now", "_on_resumed", "_side", "frame_began_s", "gate", "reader")

    def __init__(
        self,
        listener: FrameListener,
        side: ClientSide,
        now: Callable[[], float],
        *,
        head_bytes: int,
        max_frame_bytes: int,
        fail: Callable[[Exception], None],
        on_resumed: Callable[[], None],
    ) -> None:
        self.gate = Gate()
        self.frame_began_s: float | None = None
        """Time when the frame that is being received began; None between frames and while reading is paused."""
        self._side = side
        self._now = now
        self._fail = fail
        self._on_resumed = on_resumed
        self.reader = FrameReader(listener, head_bytes=head_bytes, max_frame_bytes=max_frame_bytes)
        self.reader.stop()

    def feed(self, data: bytes) -> None:
        """Take bytes of the client."""
        self._side.reading = True
        try:
            self.reader.feed(data)
        except Exception as error:
            self._fail(error)
        self._update()

    def pause(self, cause: int) -> None:
        """Let no further request through as long as this cause is there."""
        self.gate.pause(cause)
        self.reader.stop()
        self._update()

    def unpause(self, cause: int) -> None:
        """Drop a cause, and go on in a step of its own: the part that made room is not to run our requests."""
        if not self.gate.resume(cause):
            return
        if self.gate.causes:
            self._update()
        else:
            asyncio.get_running_loop().call_soon(self._resume)

    @property
    def in_frame(self) -> bool:
        """True if part of a request has come."""
        return self.reader.partial

    def goes_on_alone(self, *, granted: bool) -> bool:
        """Return whether requests that have come go on without the client; `granted`: one of them has its memory."""
        return self.gate.opens_alone(kept_back=self.reader.partial, granted=granted, stopped=self.reader.stopped)

    def _resume(self) -> None:
        if self.gate.causes:
            return
        try:
            self.reader.resume()
        except Exception as error:
            self._fail(error)
        self._update()
        self._on_resumed()

    def _update(self) -> None:
        """Read from the client, or not."""
        side, reader = self._side, self.reader
        if side.transport is None:
            self.frame_began_s = None
            return
        if side.transport.is_closing():
            return
        reading = not self.gate.causes or self.gate.reads(reader.in_frame)
        if not reading or not reader.partial:
            self.frame_began_s = None
        elif self.frame_began_s is None:
            self.frame_began_s = self._now()
        if reading != side.reading:
            side.read(reading)
