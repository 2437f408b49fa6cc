"""SaslHandshake v0 (Kafka 0.10): the tokens that follow it have a size before them, and no header. Sans-io.

No frame is marked as the last token, so the mechanism decides (Kafka's SaslServerAuthenticator asks its SaslServer,
which the proxy does not have):

- PLAIN: one token.
- SCRAM: two.
- OAUTHBEARER: one. If the broker's answer is not empty, it is the reason of a rejection (RFC 7628), and the client
  acknowledges it with one more token before the broker closes the connection.
- GSSAPI: as many as Kerberos wants, so the first request is recognised by its bytes. A client's GSSAPI token is empty,
  or begins with 0x60 (RFC 2743, section 3.1: the first token, and those of RFC 1964) or 0x05 (RFC 4121, section 4.2.6:
  those that wrap). A request begins with the high byte of its API key, and there is no API key from 0x0500 on.

Other mechanisms came after v1 and are rejected.
"""

from __future__ import annotations

from proxy.wire.errors import ProtocolError
from proxy.wire.primitives import Buffer
from proxy.wire.sasl import TOKENS_OF_CLIENT

MAX_GSSAPI_TOKENS = 16
"""Kerberos takes three, with the exchange of security layers (RFC 4752)."""
_GSSAPI, _OAUTHBEARER = "GSSAPI", "OAUTHBEARER"
_TOKENS = TOKENS_OF_CLIENT | {_GSSAPI: MAX_GSSAPI_TOKENS}
_GSSAPI_FIRST_BYTES = {0x60, 0x05}


class RawTokens:
    """The tokens of one authentication after a SaslHandshake v0."""

    def __init__(self, mechanism: str) -> None:
        """Raise ProtocolError for a mechanism whose last token can't be recognised."""
        if mechanism not in _TOKENS:
            raise ProtocolError(
                f"SaslHandshake v0 with mechanism {mechanism[:40]!r} is not served; use a client of Kafka 1.0 or newer"
            )
        self._mechanism = mechanism
        self._left = _TOKENS[mechanism]

    @property
    def over(self) -> bool:
        """Return whether the next frame is surely a request."""
        return not self._left

    def is_token(self, size: int, head: Buffer) -> bool:
        """Return whether the next frame, which begins so, is a token; it is counted then. Raises ProtocolError."""
        if not self._left:
            return False
        if self._mechanism == _GSSAPI and size and head[0] not in _GSSAPI_FIRST_BYTES:
            if self._left == MAX_GSSAPI_TOKENS:
                raise ProtocolError("a request came in place of the first SASL token; the client is at fault")
            self._left = 0
            return False
        self._left -= 1
        if self._mechanism == _GSSAPI and not self._left:
            raise ProtocolError(f"more than {MAX_GSSAPI_TOKENS - 1} SASL tokens for one authentication")
        return True

    def answered(self, token: Buffer) -> None:
        """The broker's answer to the last token."""
        if self._mechanism == _OAUTHBEARER and len(token) and not self._left:
            self._left = 1
