"""Who the client is to the brokers: the user that it authenticates as by SASL, seen as the messages pass.

The proxy decides nothing by it: the brokers authenticate, and rights are asked of them as the client (`rights`). The
name is needed for quotas alone, which the brokers hold by user (KIP-55). It counts once the broker has answered
success, also after a re-authentication in mid-connection (KIP-368). Of what passes only the name is kept: no password,
no token.

Follows Kafka's servers: PLAIN (RFC 4616) takes the authentication ID, SCRAM (RFC 5802, KIP-84) the user name,
OAUTHBEARER (RFC 7628, KIP-255) a claim of the token, `sub` unless told otherwise.
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
"""The user behind a mechanism that does not show it (GSSAPI) or a token that can't be read; no quota names it."""

_MAX_TOKEN_BYTES = 524_288
"""`sasl.server.max.receive.size` of the brokers: they refuse larger ones."""
_SCRAM_NAME = re.compile(rb"n,(?:a=[^,]*)?,(?:m=[^,]*,)?n=([^,]*),r=")
_BEARER = re.compile(rb"(?<=\x01)auth=(?i:bearer) +([^\x01]*)\x01")
_OAUTHBEARER = "OAUTHBEARER"


class SaslObserver:
    """Follows one connection's SASL messages. Sans-io; tokens may be pipelined, outcomes come in their order."""

    def __init__(self, sub_claim_name: str = "sub") -> None:
        self.user = ANONYMOUS
        """As the brokers' quotas name it; ANONYMOUS before authentication, UNKNOWN_USER where it can't be seen."""
        self._sub_claim_name = sub_claim_name
        self._mechanism = ""
        self._claimed = UNKNOWN_USER
        self._rounds = 0
        self._awaited: deque[str | None] = deque()
        """For each token without outcome: the user that its success proves, None where it proves nothing yet."""
        self._before = ANONYMOUS

    def observe_handshake(self, mechanism: str) -> None:
        """SaslHandshake names the mechanism of the tokens that follow."""
        self._mechanism = mechanism
        self._before = self.user
        self._claimed = UNKNOWN_USER
        self._rounds = 0

    def observe_token(self, token: bytes) -> None:
        """The client's next token, from SaslAuthenticate or, after SaslHandshake v0, as it came."""
        self._rounds += 1
        if self._rounds == 1:
            self._claimed = self._claimed_by(token) if len(token) <= _MAX_TOKEN_BYTES else UNKNOWN_USER
        proves = self._rounds >= TOKENS_OF_CLIENT.get(self._mechanism, 1)
        self._awaited.append(self._claimed if proves else None)

    def observe_outcome(self, error_code: int) -> None:
        """The broker's answer to the oldest token without outcome; a failure leaves the user as it was before."""
        if not self._awaited:
            return
        proved = self._awaited.popleft()
        if error_code != NONE:
            # OAUTHBEARER's server says that a token is bad in an answer without error, and fails the next one.
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
        """A claim of the JSON Web Token in the client's message; its signature is the brokers' to check."""
        found = _BEARER.findall(token)
        # The last one, as brokers take it: by the first, a client could name somebody else.
        parts = found[-1].split(b".") if found else []
        if len(parts) < 2:
            return UNKNOWN_USER
        claims = json.loads(base64.urlsafe_b64decode(parts[1] + b"=" * (-len(parts[1]) % 4)))
        subject = claims.get(self._sub_claim_name) if isinstance(claims, dict) else None
        return subject if isinstance(subject, str) else UNKNOWN_USER
