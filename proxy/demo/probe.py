"""Ask one broker which brokers it knows: Metadata v1 without topics, by hand.

A client library would not do: it asks any broker that it has heard of, and the answer has to be this broker's own. A
broker that answers has joined the cluster: it takes no request before.
"""

from __future__ import annotations

import socket
import struct
from collections.abc import Callable

from proxy.demo.errors import StackError
from proxy.protocol.api_keys import METADATA

VERSION, CORRELATION_ID = 1, 1
CLIENT_ID = b"readiness"
MAX_RESPONSE_BYTES = 1 << 20


class ProbeFailed(Exception):
    """The broker did not answer, or not with Metadata."""


def known_brokers(
    host: str, port: int, timeout_seconds: float, connect: Callable[[str, int, float], socket.socket] | None = None
) -> dict[int, str]:
    """Node ID to rack (empty if it has none) of the brokers that this one knows to be alive.

    `connect` makes the connection where it takes more than a socket: TLS, SASL. Raises ProbeFailed.
    """
    header = struct.pack(">hhih", METADATA, VERSION, CORRELATION_ID, len(CLIENT_ID)) + CLIENT_ID
    request = header + struct.pack(">i", 0)  # no topic; a null array would be all
    try:
        with (connect or _connect)(host, port, timeout_seconds) as connection:
            connection.sendall(struct.pack(">i", len(request)) + request)
            stream = connection.makefile("rb")
            (size,) = struct.unpack(">i", stream.read(4))
            if not 0 <= size <= MAX_RESPONSE_BYTES:
                raise ProbeFailed(f"port {port} answers, but not as a Kafka broker")
            return _brokers(stream.read(size))
    except (OSError, struct.error, UnicodeDecodeError, StackError) as error:
        raise ProbeFailed(str(error) or type(error).__name__) from error


def _connect(host: str, port: int, timeout_seconds: float) -> socket.socket:
    return socket.create_connection((host, port), timeout=timeout_seconds)


def _brokers(response: bytes) -> dict[int, str]:
    _, count = struct.unpack_from(">ii", response)
    position, brokers = 8, {}
    for _ in range(count):
        (node_id,) = struct.unpack_from(">i", response, position)
        _, position = _string(response, position + 4)
        rack, position = _string(response, position + 4)  # behind the port
        brokers[node_id] = rack
    return brokers


def _string(response: bytes, position: int) -> tuple[str, int]:
    (length,) = struct.unpack_from(">h", response, position)
    end = position + 2 + max(0, length)
    return response[position + 2 : end].decode(), end
