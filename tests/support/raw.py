"""Send bytes to a listener and read them back, for requests that no client library would send."""

from __future__ import annotations

import socket
import struct
from typing import Self

from proxy.wire.header import request_header

_SIZE = struct.Struct(">i")
TIMEOUT_SECONDS = 60.0


def framed(frame: bytes) -> bytes:
    """Return the body with its size in front."""
    return _SIZE.pack(len(frame)) + frame


def request(
    api_key: int, api_version: int, body: bytes, correlation_id: int = 7, client_id: str | None = "raw"
) -> bytes:
    """Return a whole request with its size."""
    return framed(request_header(api_key, api_version, correlation_id, client_id) + body)


class Raw:
    """One connection that sends and reads raw bytes."""

    def __init__(self, address: str, *, receive_buffer_bytes: int | None = None) -> None:
        host, _, port = address.rpartition(":")
        self._socket = socket.socket()
        self._socket.settimeout(TIMEOUT_SECONDS)
        if receive_buffer_bytes is not None:
            self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_buffer_bytes)
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._socket.connect((host, int(port)))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the connection."""
        self._socket.close()

    def send(self, data: bytes) -> bool:
        """Send all bytes; return False if the other side has closed the connection."""
        try:
            self._socket.sendall(data)
        except (ConnectionError, BrokenPipeError):
            return False
        return True

    def send_some(self, data: bytes) -> int:
        """Send as many bytes as the socket takes at once."""
        self._socket.setblocking(False)
        try:
            return self._socket.send(data)
        except BlockingIOError:
            return 0
        finally:
            self._socket.settimeout(TIMEOUT_SECONDS)

    def answer(self) -> bytes | None:
        """Return the next frame without its size; None if the connection ends first. Raises TimeoutError."""
        head = self._exactly(4)
        return None if head is None else self._exactly(_SIZE.unpack(head)[0])

    def _exactly(self, size: int) -> bytes | None:
        data = bytearray()
        while len(data) < size:
            try:
                part = self._socket.recv(min(size - len(data), 1 << 20))
            except ConnectionError:
                return None
            if not part:
                return None
            data += part
        return bytes(data)
