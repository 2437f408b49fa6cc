"""The state of a client's authentication to its broker, from the messages that pass through. Sans-io.

The broker decides which clients it accepts. This module only keeps the proxy from answering or forwarding a request
that the broker would reject now. Before the exchange is done, only the exchange itself is allowed. Once the session has
expired (KIP-368), only a new exchange is allowed. The order of messages is that of Kafka's SaslServerAuthenticator.

The end of an exchange is known for PLAIN, SCRAM and OAUTHBEARER. For other mechanisms (GSSAPI, plug-ins) only the
broker knows the number of tokens, so every token that it accepts may be the last. If a request comes too early, the
broker rejects it when the proxy forwards it, or when the proxy asks for the client's rights.
"""

from __future__ import annotations

from collections.abc import Callable

from proxy.protocol.api_keys import API_VERSIONS, SASL_AUTHENTICATE, SASL_HANDSHAKE
from proxy.protocol.apis import API_TABLE
from proxy.protocol.errors import NONE
from proxy.wire.errors import ProtocolError
from proxy.wire.primitives import Buffer
from proxy.wire.sasl import TOKENS_OF_CLIENT, AuthenticateAnswer
from proxy.wire.sasl_v0 import RawTokens

_OAUTHBEARER = "OAUTHBEARER"
_REMEDY = "set the client's security.protocol and SASL settings as for the brokers"


class Authentication:
    """One connection's authentication; `required` if the brokers' listener uses SASL. `now` returns seconds.

    Until the first exchange is over, a request has at most `max_bytes`, and there are at most `max_requests`.
    """

    __slots__ = (
        "_done",
        "_ends_s",
        "_max_bytes",
        "_max_requests",
        "_mechanism",
        "_now",
        "_raw",
        "_requests",
        "_rounds",
        "_under_way",
        "required",
    )

    def __init__(self, required: bool, now: Callable[[], float], *, max_bytes: int, max_requests: int) -> None:
        self.required = required
        self._now = now
        self._max_bytes = max_bytes
        self._max_requests = max_requests
        self._requests = 0
        """Requests and tokens before the first exchange was over."""
        self._done = not required
        self._under_way = False
        self._mechanism = ""
        self._rounds = 0
        self._raw: RawTokens | None = None
        self._ends_s: float | None = None

    @property
    def under_way(self) -> bool:
        """Whether an exchange has begun and is not over: nothing else may be sent to the broker."""
        return self._under_way

    @property
    def settled(self) -> bool:
        """Return whether `admit` would let every request pass, and `takes_token` would find no token."""
        if not self.required:
            return True
        return self._done and not self._under_way and (self._ends_s is None or self._now() <= self._ends_s)

    def takes_token(self, size: int, head: Buffer) -> bool:
        """Whether the frame that begins so is a token without header. Raises ProtocolError."""
        if self._raw is None:
            return False
        if self._raw.is_token(size, head):
            self._check_size("a SASL token", size)
            return True
        self._raw = None
        self._finish(None)
        return False

    def admit(self, api_key: int, size: int) -> None:
        """A request of `size` bytes begins. Raises ProtocolError where the broker would close the connection."""
        if not self.required:
            return
        name = API_TABLE[api_key].name
        if self._under_way:
            if api_key != SASL_AUTHENTICATE:
                raise ProtocolError(f"{name} came while an authentication is under way; the client is at fault")
        elif not self._done:
            if api_key not in (SASL_HANDSHAKE, API_VERSIONS):
                raise ProtocolError(f"{name} came before authentication; {_REMEDY}")
        elif api_key != SASL_HANDSHAKE and self._ends_s is not None and self._now() > self._ends_s:
            raise ProtocolError(
                f"{name} came after the end of the client's session, without a new authentication (KIP-368); raise "
                "connections.max.reauth.ms of the brokers, or use a newer client"
            )
        if not self._done or api_key in (SASL_HANDSHAKE, SASL_AUTHENTICATE):
            self._check_size(name, size)
        if not self._done:
            self._requests += 1
            if self._requests > self._max_requests:
                raise ProtocolError(
                    f"more than limits.max_unauthenticated_requests ({self._max_requests}) requests came before "
                    f"authentication; {_REMEDY}"
                )

    def _check_size(self, name: str, size: int) -> None:
        if size > self._max_bytes:
            raise ProtocolError(
                f"{name} of {size} bytes is larger than limits.max_unauthenticated_request_bytes ({self._max_bytes})"
            )

    def handshake_begins(self, mechanism: str, api_version: int) -> None:
        """A SaslHandshake is sent on. Raises ProtocolError."""
        if not self.required:
            return
        if api_version == 0:
            if self._done:
                raise ProtocolError("SaslHandshake v0 can't authenticate again; use a client of Kafka 2.2 or newer")
            self._raw = RawTokens(mechanism)
        self._under_way = True
        self._mechanism = mechanism
        self._rounds = 0

    def handshake_answered(self, error_code: int) -> None:
        """The broker's answer. With an error all is as before: it may have come too soon after the last one."""
        if error_code != NONE:
            self._under_way = False
            self._raw = None

    def authenticate_answered(self, answer: AuthenticateAnswer) -> bool:
        """The answer to a token; whether the client is authenticated by it. After an error the broker closes."""
        if answer.error_code != NONE or not self.required:
            return False
        self._rounds += 1
        refused = self._mechanism == _OAUTHBEARER and bool(answer.auth_bytes)
        if self._rounds < TOKENS_OF_CLIENT.get(self._mechanism, 1) or refused:
            return False
        self._finish(answer.session_lifetime_ms / 1000 if answer.session_lifetime_ms else None)
        return True

    def token_answered(self, token: Buffer) -> bool:
        """The answer to a token without header; whether the client is authenticated by it."""
        if self._raw is None:
            return False
        self._raw.answered(token)
        if not self._raw.over:
            return False
        self._raw = None
        self._finish(None)
        return True

    def _finish(self, lifetime_s: float | None) -> None:
        self._done = True
        self._under_way = False
        self._ends_s = None if lifetime_s is None else self._now() + lifetime_s
