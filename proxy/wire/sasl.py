"""SaslHandshake and SaslAuthenticate (API keys 17 and 36): the few bytes of them that the proxy writes and reads."""

from __future__ import annotations

from typing import NamedTuple

from proxy.wire.primitives import (
    INT16,
    INT32,
    INT64,
    Buffer,
    parsing,
    read_bytes,
    read_count,
    read_nullable_string,
    read_string,
    write_string,
)

HANDSHAKE_VERSION = 1
AUTHENTICATE_VERSION = 1
"""Version that the proxy itself sends: not flexible, and with the session's lifetime (KIP-368)."""
TOKENS_OF_CLIENT = {"PLAIN": 1, "OAUTHBEARER": 1, "SCRAM-SHA-256": 2, "SCRAM-SHA-512": 2}
"""How many tokens of the client each mechanism takes until success; of others only the broker knows."""
_FIRST_FLEXIBLE_VERSION = 2
_FIRST_LIFETIME_VERSION = 1


class HandshakeAnswer(NamedTuple):
    """A SaslHandshake response."""

    error_code: int
    mechanisms: tuple[str, ...]
    """Mechanisms that the listener offers."""


class AuthenticateAnswer(NamedTuple):
    """A SaslAuthenticate response."""

    error_code: int
    error_message: str | None
    auth_bytes: bytes
    session_lifetime_ms: int
    """Lifetime of the session; 0 if the session does not expire, has not begun, or the version lacks the field."""


def build_handshake(mechanism: str) -> bytes:
    """Return the body of a SaslHandshake v0 or v1."""
    return write_string(mechanism, False)


def build_authenticate(token: bytes) -> bytes:
    """Return the body of a SaslAuthenticate v0 or v1."""
    return INT32.pack(len(token)) + token


@parsing
def parse_handshake_request(body: Buffer) -> str:
    """Return the mechanism that a SaslHandshake asks for. Raises ProtocolError."""
    return read_string(body, 0, False)[0]


@parsing
def parse_handshake_response(body: memoryview) -> HandshakeAnswer:
    """Return the body of a SaslHandshake response. Raises ProtocolError."""
    (error_code,) = INT16.unpack_from(body)
    count, at = read_count(body, 2, False)
    mechanisms = []
    for _ in range(count):
        mechanism, at = read_string(body, at, False)
        mechanisms.append(mechanism)
    return HandshakeAnswer(error_code, tuple(mechanisms))


@parsing
def parse_authenticate_request(body: memoryview, api_version: int) -> bytes:
    """Return the token of a SaslAuthenticate. Raises ProtocolError."""
    token, _ = read_bytes(body, 0, api_version >= _FIRST_FLEXIBLE_VERSION)
    return bytes(token or b"")


@parsing
def parse_authenticate_response(body: memoryview, api_version: int) -> AuthenticateAnswer:
    """Return the body of a SaslAuthenticate response. Raises ProtocolError."""
    flexible = api_version >= _FIRST_FLEXIBLE_VERSION
    (error_code,) = INT16.unpack_from(body)
    message, at = read_nullable_string(body, 2, flexible)
    token, at = read_bytes(body, at, flexible)
    lifetime_ms = 0
    if api_version >= _FIRST_LIFETIME_VERSION:
        (lifetime_ms,) = INT64.unpack_from(body, at)
    return AuthenticateAnswer(error_code, message, bytes(token or b""), lifetime_ms)
