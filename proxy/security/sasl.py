"""The client's side of SASL, for the proxy's own connections to brokers. Sans-io: challenges in, responses out.

PLAIN (RFC 4616), SCRAM-SHA-256 and -512 (RFC 5802, RFC 7677) and OAUTHBEARER (RFC 7628), as Kafka speaks them: names
are not normalised (Kafka's ScramFormatter only escapes `=` and `,`), and there is no channel binding.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import json
import secrets
from collections.abc import Callable
from typing import Protocol

_MIN_ITERATIONS, _MAX_ITERATIONS = 4096, 16_384
"""Bounds of Kafka's ScramMechanism: fewer iterations make stolen traffic cheap to search, more would delay the
proxy."""
_OAUTH_ABORT = b"\x01"


class SaslError(Exception):
    """The server's challenge is none, or it does not prove that it knows the password."""


class SaslMechanism(Protocol):
    """One authentication."""

    def respond(self, challenge: bytes) -> bytes | None:
        """Return the token for a challenge (empty for the first); None if nothing more is to be sent.

        Raises SaslError.
        """


class Plain:
    """PLAIN: user and password, in clear."""

    def __init__(self, username: str, password: str) -> None:
        self._tokens = [b"\0".join((b"", username.encode(), password.encode()))]

    def respond(self, challenge: bytes) -> bytes | None:
        """Return the token, as SaslMechanism."""
        return self._tokens.pop() if self._tokens else None


class OAuthBearer:
    """OAUTHBEARER: a token of somebody else's making."""

    def __init__(self, token: str) -> None:
        """Raises SaslError for a token that can't be sent."""
        if not token or any(not "\x21" <= character <= "\x7e" for character in token):
            raise SaslError("the token is empty, or has characters that a token can't have")
        self._token: str | None = token

    def respond(self, challenge: bytes) -> bytes | None:
        """Return the token, as SaslMechanism.

        A challenge after it is the server's rejection, which has to be acknowledged.
        """
        if self._token is not None:
            token, self._token = self._token, None
            return b"n,,\x01auth=Bearer " + token.encode() + b"\x01\x01"
        if not challenge:
            return None
        return _OAUTH_ABORT


class Scram:
    """SCRAM: either side proves that it knows the password, and neither shows it."""

    def __init__(
        self,
        digest: str,
        username: str,
        password: str,
        *,
        make_nonce: Callable[[], str] = lambda: secrets.token_urlsafe(24),
    ) -> None:
        """`digest`: sha256 or sha512."""
        self._digest = digest
        self._password = password.encode()
        self._nonce = make_nonce()
        self._bare = f"n={username.replace('=', '=3D').replace(',', '=2C')},r={self._nonce}"
        self._step = self._first
        self._server_signature = b""

    def respond(self, challenge: bytes) -> bytes | None:
        """Answer a challenge, as SaslMechanism."""
        return self._step(challenge)

    def _first(self, challenge: bytes) -> bytes | None:
        self._step = self._final
        return b"n,," + self._bare.encode()

    def _final(self, challenge: bytes) -> bytes | None:
        server_first = _text(challenge)
        fields = _fields(server_first)
        nonce = fields.get("r", "")
        if not nonce.startswith(self._nonce) or nonce == self._nonce:
            raise SaslError("the broker's nonce does not continue ours")
        try:
            salt = base64.b64decode(fields["s"], validate=True)
            iterations = int(fields["i"])
        except (KeyError, ValueError, binascii.Error) as error:
            raise SaslError("the broker's SCRAM challenge has no salt or no iterations") from error
        if not _MIN_ITERATIONS <= iterations <= _MAX_ITERATIONS:
            raise SaslError(
                f"the broker asks for {iterations} iterations; Kafka allows {_MIN_ITERATIONS} to {_MAX_ITERATIONS}"
            )
        without_proof = f"c={base64.b64encode(b'n,,').decode()},r={nonce}"
        message = f"{self._bare},{server_first},{without_proof}".encode()
        salted = hashlib.pbkdf2_hmac(self._digest, self._password, salt, iterations)
        client_key = hmac.digest(salted, b"Client Key", self._digest)
        stored_key = hashlib.new(self._digest, client_key).digest()
        signature = hmac.digest(stored_key, message, self._digest)
        proof = bytes(left ^ right for left, right in zip(client_key, signature, strict=True))
        server_key = hmac.digest(salted, b"Server Key", self._digest)
        self._server_signature = hmac.digest(server_key, message, self._digest)
        self._step = self._verify
        return f"{without_proof},p={base64.b64encode(proof).decode()}".encode()

    def _verify(self, challenge: bytes) -> bytes | None:
        fields = _fields(_text(challenge))
        if "e" in fields:
            raise SaslError(f"the broker rejected the login: {fields['e']}")
        try:
            signature = base64.b64decode(fields["v"], validate=True)
        except (KeyError, ValueError, binascii.Error) as error:
            raise SaslError("the broker's last SCRAM message has no signature") from error
        if not hmac.compare_digest(signature, self._server_signature):
            raise SaslError("the broker did not prove that it knows the password; it may be an impostor")
        self._step = self._over
        return None

    def _over(self, challenge: bytes) -> bytes | None:
        return None


def refusal(challenge: bytes) -> str:
    """Return the text of an OAUTHBEARER rejection (RFC 7628, section 3.2.2); it holds no secret."""
    try:
        answer = json.loads(challenge)
    except ValueError:
        return "no reason given"
    return str(answer.get("status", "no reason given"))[:200] if isinstance(answer, dict) else "no reason given"


def _text(challenge: bytes) -> str:
    try:
        return challenge.decode()
    except UnicodeDecodeError as error:
        raise SaslError("the broker's SCRAM message is not UTF-8") from error


def _fields(message: str) -> dict[str, str]:
    return {field[:1]: field[2:] for field in message.split(",") if field[1:2] == "="}
