"""Split a byte stream into Kafka frames: a 4-byte big-endian size, then that many bytes. Sans-io.

A frame is either *held* until it is whole, or *streamed*: its bytes are passed on as they come. The listener decides
from the frame's first bytes, so a large frame that needs no change is never held.
"""

from __future__ import annotations

import struct
from enum import Enum
from typing import Protocol

from proxy.wire.errors import ProtocolError

_SIZE = struct.Struct(">i")
_MAX_HELD_PARTS = 4096
"""Maximum number of parts of a held frame; further parts are joined, because single bytes would cost fifty bytes
each."""
_IN_PLACE_BYTES = 65_536
"""Frames from this size on are worth a buffer of their own that they are received into."""
_MOST_PINNED_TIMES = 16
"""Parts smaller than 1/16 of the received buffer are copied if they are held, because memory is counted by frames."""


class Decision(Enum):
    """The decision on a frame that begins."""

    HOLD = 1
    STREAM = 2
    NEED_MORE = 3
    """Ask again when more of the frame has come."""
    WAIT = 4
    """No room now: keep everything back until `resume`, then ask again."""


class FrameListener(Protocol):
    """The receiver of frames."""

    def frame_begins(self, size: int, head: memoryview) -> Decision:
        """Decide on a frame; `head` is what has come of it without its size: at least `head_bytes` of it, or all."""

    def frame_held(self, frame: memoryview) -> None:
        """A whole frame, without its size."""

    def frame_part(self, part: memoryview, last: bool) -> None:
        """The next bytes of a streamed frame; the first part begins with its size."""


class FrameReader:
    """Feeds a listener with the frames of one direction of one connection.

    `head_bytes`: how much of a frame the listener wants to see before it decides.
    `max_frame_bytes`: a larger frame raises ProtocolError from `feed`, as does a negative size.
    """

    __slots__ = (
        "_asking",
        "_begun",
        "_feeding",
        "_head_bytes",
        "_held_bytes",
        "_held_parts",
        "_listener",
        "_max_frame_bytes",
        "_rest",
        "_stopped",
        "_stream_left",
        "_whole",
        "between_frames",
    )

    def __init__(self, listener: FrameListener, *, head_bytes: int, max_frame_bytes: int) -> None:
        self._listener = listener
        self._head_bytes = head_bytes
        self._max_frame_bytes = max_frame_bytes
        self._rest = b""
        self._stopped = False
        self._feeding = False
        self._stream_left = 0
        self._held_parts: list[bytes | memoryview] = []
        self._held_bytes = 0
        self._whole: bytearray | None = None
        self._begun = 0
        self._asking = 0
        self.between_frames = True
        """True if the next byte begins a frame that would be given out at once. It is asked for with every chunk."""

    @property
    def stopped(self) -> bool:
        """Return whether bytes are kept back."""
        return self._stopped

    @property
    def partial(self) -> bool:
        """Return whether a frame has begun and is not whole, decided or not, even if it is too short to decide."""
        return bool(self._stream_left or self._begun or self._rest)

    @property
    def in_frame(self) -> bool:
        """Return whether the listener has decided on a frame that is not whole yet; `stop` waits for its end."""
        return bool(self._stream_left or self._begun)

    def stop(self) -> None:
        """Keep everything back from the end of the present frame on."""
        self._stopped = True
        self.between_frames = False

    def resume(self) -> None:
        """Hand out the bytes that were kept back. May raise ProtocolError as `feed`."""
        if self._stopped:
            self._stopped = False
            if not self._feeding:
                self.feed(b"")

    def feed(self, data: bytes) -> None:
        """Take the next bytes of the stream."""
        try:
            self._feed(data)
        finally:
            self.between_frames = not (self._stream_left or self._begun or self._rest or self._stopped)

    def _feed(self, data: bytes) -> None:
        if self._begun:
            data = self._continue_held(data)
        elif self._stream_left:
            data = self._continue_stream(data)
        if self._rest:
            data = self._rest + data
            self._rest = b""
            if len(data) < self._asking and not self._stopped:
                self._rest = data
                return
        if not data:
            return
        self._feeding = True
        try:
            taken = self._frames(memoryview(data))
        finally:
            self._feeding = False
        if taken < len(data):
            self._rest = data[taken:] if taken else data

    def room(self) -> memoryview | None:
        """Return the place for the rest of a large held frame. Report the bytes written there with `filled` instead of
        `feed`.

        None if no such frame is under way. A caller that has written to it once has to continue to the frame's end.
        """
        if self._begun < _IN_PLACE_BYTES:
            return None
        if self._whole is None:
            self._whole = bytearray(self._begun)
            self._whole[: self._held_bytes] = b"".join(self._held_parts)
            self._held_parts = []
        return memoryview(self._whole)[self._held_bytes :]

    def filled(self, size: int) -> None:
        """Take `size` bytes that were written to `room`."""
        self._held_bytes += size
        if self._held_bytes < self._begun:
            return
        frame, self._whole = self._whole, None
        assert frame is not None
        self._held_parts = []
        self._begun = self._held_bytes = 0
        self.between_frames = not self._stopped
        self._listener.frame_held(memoryview(frame).toreadonly())

    def _continue_held(self, data: bytes) -> bytes:
        missing = self._begun - self._held_bytes
        if len(data) < missing:
            if len(self._held_parts) >= _MAX_HELD_PARTS:
                self._held_parts = [b"".join(self._held_parts)]
            self._held_parts.append(data)
            self._held_bytes += len(data)
            return b""
        self._held_parts.append(memoryview(data)[:missing])
        frame = b"".join(self._held_parts)
        self._held_parts = []
        self._begun = self._held_bytes = 0
        self._listener.frame_held(memoryview(frame))
        return data[missing:] if len(data) > missing else b""

    def _continue_stream(self, data: bytes) -> bytes:
        left = self._stream_left
        if len(data) < left:
            self._stream_left = left - len(data)
            if data:
                self._listener.frame_part(memoryview(data), False)
            return b""
        self._stream_left = 0
        self._listener.frame_part(memoryview(data)[:left], True)
        return data[left:] if len(data) > left else b""

    def _frames(self, data: memoryview) -> int:
        """Give out the frames of `data`; how many of its bytes were taken."""
        listener, end, at = self._listener, len(data), 0
        self._asking = 0
        while end - at >= 4 and not self._stopped:
            (size,) = _SIZE.unpack_from(data, at)
            if size < 0 or size > self._max_frame_bytes:
                raise ProtocolError(_explain_size(size, bytes(data[at : at + 8]), self._max_frame_bytes))
            have = end - at - 4
            if have < size and have < self._head_bytes:
                self._asking = 4 + min(size, self._head_bytes)
                break
            decision = listener.frame_begins(size, data[at + 4 : at + 4 + size])
            if decision is Decision.HOLD:
                at += 4
                if have < size:
                    self._begun, self._held_bytes = size, have
                    self._held_parts = [data[at:]] if have else []
                    return end
                at += size
                held = data[at - size : at]
                listener.frame_held(memoryview(bytes(held)) if _MOST_PINNED_TIMES * size < end else held)
            elif decision is Decision.STREAM:
                whole = have >= size
                part_end = at + 4 + size if whole else end
                self._stream_left = 0 if whole else size - have
                listener.frame_part(data[at:part_end], whole)
                at = part_end
                if not whole:
                    return end
            elif decision is Decision.NEED_MORE:
                self._asking = 4 + min(size, max(2 * have, self._head_bytes))
                break
            else:
                self._stopped = True
                break
        return at


def _explain_size(size: int, start: bytes, limit: int) -> str:
    """Why a frame's size can't be right, naming the likely cause."""
    if start[:1] == b"\x16" and start[1:2] == b"\x03":
        return "a TLS handshake came on a plaintext listener; set the client's security.protocol to PLAINTEXT"
    if start[:4] in (b"GET ", b"POST", b"PUT ", b"HEAD", b"OPTI", b"CONN"):
        return "an HTTP request came on a Kafka listener; the admin port is another one"
    if size < 0:
        return f"a frame claims {size} bytes; this is no Kafka client"
    return f"a frame claims {size} bytes, more than limits.max_frame_bytes ({limit})"
