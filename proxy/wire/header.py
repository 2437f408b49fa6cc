"""Request and response headers (RequestHeader and ResponseHeader of Kafka's message schemas).

Request header v1 is key, version, correlation ID, client ID; v2 adds tagged fields. The client ID has an int16 length
in both, so it reads at a fixed place even where the API key is unknown. Response header v0 is the correlation ID, v1
adds tagged fields; ApiVersions is always answered with v0, as a client can't know the version before the answer.
"""

from __future__ import annotations

import struct
from typing import NamedTuple

from proxy.protocol.apis import request_is_flexible, response_is_flexible
from proxy.wire.primitives import (
    INT16,
    INT32,
    NO_TAGS,
    Buffer,
    check_end,
    parsing,
    read_nullable_string,
    skip_tags,
    write_string,
)

_REQUEST = struct.Struct(">hhi")
_LONGEST_CLIENT_ID = 0x7FFF
"""Longest client ID, in bytes."""


class RequestHeader(NamedTuple):
    """The header of a request; `body_offset` counts from the API key, which is byte 0."""

    api_key: int
    api_version: int
    correlation_id: int
    client_id: str | None
    body_offset: int


@parsing
def parse_request_header(frame: Buffer) -> RequestHeader:
    """Return the header of a request frame (without its size). Raises ProtocolError.

    If the API key is unknown, everything except `body_offset` is right. A client ID that is not UTF-8 is read as
    brokers read it, with U+FFFD as replacement, and is cut to what fits when it is sent on: it only names the client.
    """
    api_key, api_version, correlation_id = _REQUEST.unpack_from(frame)
    try:
        client_id, at = read_nullable_string(frame, 8, False)
    except UnicodeDecodeError:
        at = _REQUEST.size + 2 + INT16.unpack_from(frame, _REQUEST.size)[0]
        replaced = str(frame[_REQUEST.size + 2 : at], "utf-8", "replace").encode()
        client_id = str(replaced[:_LONGEST_CLIENT_ID], "utf-8", "ignore")
    if request_is_flexible(api_key, api_version):
        at = skip_tags(frame, at)
        check_end(frame, at)
    return RequestHeader(api_key, api_version, correlation_id, client_id, at)


def request_header(api_key: int, api_version: int, correlation_id: int, client_id: str | None) -> bytes:
    """Return the header of a request of the proxy's own."""
    tags = NO_TAGS if request_is_flexible(api_key, api_version) else b""
    return _REQUEST.pack(api_key, api_version, correlation_id) + write_string(client_id, False) + tags


@parsing
def response_header_length(api_key: int, api_version: int, frame: Buffer) -> int:
    """Return the position of the body in a response frame (without its size). Raises ProtocolError."""
    check_end(frame, 4)
    if not response_is_flexible(api_key, api_version):
        return 4
    at = skip_tags(frame, 4)
    check_end(frame, at)
    return at


def response_header(api_key: int, api_version: int, correlation_id: int) -> bytes:
    """Return the header of a response of the proxy's own."""
    encoded = INT32.pack(correlation_id)
    return encoded + NO_TAGS if response_is_flexible(api_key, api_version) else encoded
