"""Send kio's entities over a test's own connection: requests that no client library would send, or answers it hides."""

from __future__ import annotations

import socket
import ssl
import struct
from typing import Any, Self

from kio.index import load_request_schema

from proxy.wire.cold import encode, read_response
from proxy.wire.header import request_header, response_header_length

_SIZE = struct.Struct(">i")
TIMEOUT_SECONDS = 30.0
CLIENT_ID = "wire"


class Wire:
    """One connection that sends one request at a time."""

    def __init__(self, connection: socket.socket) -> None:
        connection.settimeout(TIMEOUT_SECONDS)
        self._connection = connection
        self._correlation_id = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._connection.close()

    def ask(self, api_key: int, api_version: int, **fields: Any) -> Any:
        """Send one of kio's requests and return the response. Raises ConnectionError if the other side closes."""
        schema: Any = load_request_schema(api_key, api_version)
        return read_response(api_key, api_version, self.ask_bytes(api_key, api_version, encode(schema(**fields))))

    def ask_bytes(self, api_key: int, api_version: int, body: bytes) -> memoryview:
        """Do the same with bodies as bytes."""
        self._correlation_id += 1
        self.send(request_header(api_key, api_version, self._correlation_id, CLIENT_ID) + body)
        frame = memoryview(self.receive())
        assert int.from_bytes(frame[:4], "big") == self._correlation_id
        return frame[response_header_length(api_key, api_version, frame) :]

    def send(self, frame: bytes) -> None:
        """Send a frame with any content, with its size in front. Raises ConnectionError if the other side closes."""
        try:
            self._connection.sendall(_SIZE.pack(len(frame)) + frame)
        except ssl.SSLEOFError as error:
            raise ConnectionError(str(error)) from error

    def send_beginning(self, size: int, beginning: bytes) -> None:
        """Send a frame that claims `size` bytes and has fewer."""
        self._connection.sendall(_SIZE.pack(size) + beginning)

    def receive(self) -> bytes:
        """Return the next frame without its size. Raises ConnectionError if the other side closes."""
        return self._exactly(_SIZE.unpack(self._exactly(4))[0])

    def is_closed(self) -> bool:
        """True if the other side closes the connection without sending anything more."""
        try:
            return not self._connection.recv(1)
        except (ConnectionError, ssl.SSLEOFError):
            return True

    def _exactly(self, size: int) -> bytes:
        data = b""
        while len(data) < size:
            try:
                part = self._connection.recv(size - len(data))
            except ssl.SSLEOFError as error:
                raise ConnectionError(str(error)) from error
            if not part:
                raise ConnectionError("the other side closed the connection")
            data += part
        return data
