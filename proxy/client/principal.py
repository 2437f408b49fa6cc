"""The client's user: the name that it authenticates as by SASL, read from the messages that pass through.

The proxy decides nothing by this name: the brokers authenticate, and the proxy asks them for the client's rights as the
client (`rights`). Only quotas need the name, because the brokers hold quotas by user (KIP-55). A name is valid once the
broker has answered success, also after a re-authentication in mid-connection (KIP-368). The name is all that is kept of
the messages: no password, no token.

Follows Kafka's servers: PLAIN (RFC 4616) takes the authentication ID, SCRAM (RFC 5802, KIP-84) the user name,
OAUTHBEARER (RFC 7628, KIP-255) a claim of the token, `sub` by default.
"""

from __future__ import annotations

import base64
import json
import re
from collections import deque

from proxy.protocol.errors import NONE
from proxy.wire.sasl import TOKENS_OF_CLIENT

ANONYMOUS = "ANONYMOUS"
"""The user of a client that does not authenticate (KafkaPrincipal.ANONYMOUS)."""
UNKNOWN_USER = ""
"""The user if the mechanism does not show it (GSSAPI), or if the token can't be parsed; no quota names this user."""

_MAX_TOKEN_BYTES = 524_288
"""`sasl.server.max.receive.size` of the brokers: the brokers reject larger tokens."""
_SCRAM_NAME = re.compile(rb"n,(?:a=[^,]*)?,(?:m=[^,]*,)?n=([^,]*),r=")
_BEARER = re.compile(rb"(?<=\x01)auth=(?i:bearer) +([^\x01]*)\x01")
_OAUTHBEARER = "OAUTHBEARER"


class SaslObserver:
    """Follows one connection's SASL messages. Sans-io. Tokens may be pipelined; outcomes come in the order of the
    tokens."""

    def __init__(self, sub_claim_name: str = "sub") -> None:
        self.user = ANONYMOUS
        """The user as the brokers' quotas name it; ANONYMOUS before authentication, UNKNOWN_USER if it can't be
        seen."""
        self._sub_claim_name = sub_claim_name
        self._mechanism = ""
        self._claimed = UNKNOWN_USER
        self._rounds = 0
        self._awaited: deque[str | None] = deque()
        """The user that each token without an outcome proves if it succeeds; None for a token that proves nothing
        yet."""
        self._before = ANONYMOUS

    def observe_handshake(self, mechanism: str) -> None:
        """Take the mechanism of the tokens that follow, from SaslHandshake."""
        self._mechanism = mechanism
        self._before = self.user
        self._claimed = UNKNOWN_USER
        self._rounds = 0

    def observe_token(self, token: bytes) -> None:
        """Take the client's next token: from SaslAuthenticate, or without a header after SaslHandshake v0."""
        self._rounds += 1
        if self._rounds == 1:
            self._claimed = self._claimed_by(token) if len(token) <= _MAX_TOKEN_BYTES else UNKNOWN_USER
        proves = self._rounds >= TOKENS_OF_CLIENT.get(self._mechanism, 1)
        self._awaited.append(self._claimed if proves else None)

    def observe_outcome(self, error_code: int) -> None:
        """Take the broker's answer to the oldest token without an outcome; a failure restores the previous user."""
        if not self._awaited:
            return
        proved = self._awaited.popleft()
        if error_code != NONE:
            # OAUTHBEARER's server reports a bad token in an answer without an error code, and rejects the next token.
            self.user = self._before
        elif proved is not None:
            self.user = proved

    def _claimed_by(self, token: bytes) -> str:
        try:
            if self._mechanism == "PLAIN":
                return token.split(b"\0", 2)[1].decode()
            if self._mechanism.startswith("SCRAM-"):
                found = _SCRAM_NAME.match(token)
                return found[1].replace(b"=2C", b",").replace(b"=3D", b"=").decode() if found else UNKNOWN_USER
            if self._mechanism == _OAUTHBEARER:
                return self._subject(token)
        except (ValueError, IndexError, RecursionError):
            pass
        return UNKNOWN_USER

    def _subject(self, token: bytes) -> str:
        """Return a claim of the JSON Web Token in the client's message. Only the brokers check its signature."""
        found = _BEARER.findall(token)
        # Brokers take the last `auth`. If the proxy took the first, a client could name another user.
        parts = found[-1].split(b".") if found else []
        if len(parts) < 2:
            return UNKNOWN_USER
        claims = json.loads(base64.urlsafe_b64decode(parts[1] + b"=" * (-len(parts[1]) % 4)))
        subject = claims.get(self._sub_claim_name) if isinstance(claims, dict) else None
        return subject if isinstance(subject, str) else UNKNOWN_USER
