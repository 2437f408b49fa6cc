"""Answers of replicas are received in place: the kernel writes the bytes of a large one where it is held.

With asyncio's usual protocol each part would be a new object, and all parts would be joined in the end: two more copies
of every record.
"""

from __future__ import annotations

import asyncio

from proxy.brokers.upstream import BrokerConnection

_SCRATCH_BYTES = 65_536
"""Bytes that are read at a time for small frames, and for the beginnings of large ones."""


class InPlaceReceiver(asyncio.BufferedProtocol):
    """Stands between a connection's transport and the connection, whose protocol it is from `receive_in_place` on."""

    def __init__(self, broker: BrokerConnection) -> None:
        self._broker = broker
        # A view also for the sake of asyncio's TLS, which writes to slices of what it is given.
        self._scratch = memoryview(bytearray(_SCRATCH_BYTES))
        self._in_place = False

    def get_buffer(self, sizehint: int) -> memoryview:
        """Return the place for the next bytes (called by asyncio)."""
        room = self._broker.reader.room()
        self._in_place = room is not None
        return self._scratch if room is None else room

    def buffer_updated(self, nbytes: int) -> None:
        """Take `nbytes` received bytes (called by asyncio)."""
        if self._in_place:
            self._broker.bytes_received += nbytes
            self._broker.reader.filled(nbytes)
        else:
            self._broker.data_received(bytes(self._scratch[:nbytes]))

    def eof_received(self) -> bool | None:
        """asyncio: the broker sends no more."""
        return self._broker.eof_received()

    def connection_lost(self, error: Exception | None) -> None:
        """Handle the end of the connection (called by asyncio)."""
        self._broker.connection_lost(error)

    def pause_writing(self) -> None:
        """asyncio: the broker reads slower than is written."""
        self._broker.pause_writing()

    def resume_writing(self) -> None:
        """asyncio: room again."""
        self._broker.resume_writing()


def receive_in_place(broker: BrokerConnection) -> None:
    """From now on, on a connection that has nothing under way."""
    if broker.transport is not None and not broker.transport.is_closing():
        broker.transport.set_protocol(InPlaceReceiver(broker))
