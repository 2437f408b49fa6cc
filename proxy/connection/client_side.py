"""The client's side of a connection: its transport, and the bytes that were written to it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, cast

if TYPE_CHECKING:
    from proxy.telemetry.stats import Stats
    from proxy.wire.primitives import Buffer


class ClientSide:
    """The transport of one client. `on_behind` is called when the client leaves bytes in the write buffer."""

    __slots__ = ("_on_behind", "_stats", "reading", "sent_bytes", "transport")

    def __init__(self, stats: Stats, on_behind: Callable[[], None]) -> None:
        self._stats = stats
        self._on_behind = on_behind
        self.transport: asyncio.Transport | None = None
        """None before there is a client, and when it has gone."""
        self.sent_bytes = 0
        self.reading = True

    def open(self, transport: asyncio.BaseTransport, write_buffer_bytes: int) -> str:
        """Take the transport of a client that has connected, and return its IP address."""
        self.transport = cast(asyncio.Transport, transport)
        self.transport.set_write_buffer_limits(high=write_buffer_bytes)
        if transport.get_extra_info("ssl_object") is not None:
            # What comes while reading is paused stays with the system: TLS that hears of the end forgets what it holds.
            cast(Any, transport).set_read_buffer_limits(high=1)
        peer = transport.get_extra_info("peername")
        return str(peer[0]) if isinstance(peer, tuple) else ""

    def write(self, part: Buffer) -> None:
        """Write one part of an answer."""
        transport = self.transport
        if transport is not None:
            size = len(part)
            self._stats.client_bytes_sent += size
            self.sent_bytes += size
            transport.write(part)
            if transport.get_write_buffer_size():
                self._on_behind()

    def write_all(self, buffers: list[Buffer], size: int) -> None:
        """Write buffers that have `size` bytes together."""
        transport = self.transport
        if transport is not None:
            self._stats.client_bytes_sent += size
            self.sent_bytes += size
            transport.writelines(buffers)
            if transport.get_write_buffer_size():
                self._on_behind()

    def read(self, reading: bool) -> None:
        """Read from the client, or not."""
        if self.transport is not None and reading != self.reading:
            self.reading = reading
            (self.transport.resume_reading if reading else self.transport.pause_reading)()

    @property
    def is_open(self) -> bool:
        """True if there is a client, and its connection is not being closed."""
        return self.transport is not None and not self.transport.is_closing()

    @property
    def port(self) -> int | None:
        """The client's port, as long as it is there."""
        peer = self.transport.get_extra_info("peername") if self.transport is not None else None
        return int(peer[1]) if isinstance(peer, tuple) else None

    @property
    def unsent_bytes(self) -> int:
        """Bytes that were written and have not left the process, as the client does not take them."""
        return self.transport.get_write_buffer_size() if self.transport is not None else 0

    @property
    def undecrypted_bytes(self) -> int:
        """Bytes that have come over TLS and are not decrypted yet; 0 without TLS, where they stay with the system."""
        unread = getattr(self.transport, "get_read_buffer_size", None)
        return int(unread()) if unread is not None else 0

    @property
    def unwatched_descriptor(self) -> int | None:
        """The socket if it is not read from, so that its end is not noticed; otherwise None."""
        if self.reading or self.transport is None or self.transport.is_closing():
            return None
        one = self.transport.get_extra_info("socket")
        return None if one is None else cast(int, one.fileno())
