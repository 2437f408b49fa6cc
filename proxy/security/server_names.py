"""The choice of the broker by the name in a client's TLS handshake (SNI, RFC 6066, section 3).

With `sni_broker_host` all brokers of a rack share one port. OpenSSL calls `select` when it has read the name, before it
answers the client. `select` gets no word of the connection, so it finds the handshake in the context of the task that
accepted the connection: event loops run the callbacks of a transport in the context that created it.

Behaviour: if a client resumes a session of TLS 1.2 that it began with another name, OpenSSL reports that other name.
RFC 6066 forbids clients to do so, and clients keep their sessions by name. TLS 1.3 reports each handshake's own name.
"""

from __future__ import annotations

import ssl
from contextvars import ContextVar
from typing import Literal

from proxy.config import Listeners
from proxy.config.values import node_id_of

Counted = Literal["missing", "unknown"]


class NameRejected(Exception):
    """No broker is selected; the text is the reason for the log, `counted` is the label of the metric."""

    def __init__(self, counted: Counted, reason: str, remedy: str) -> None:
        """Take the reason and what to do about it."""
        super().__init__(reason)
        self.counted: Counted = counted
        self.remedy = remedy


class Handshake:
    """The result of one client's TLS handshake."""

    __slots__ = ("node_id", "rejected")

    def __init__(self) -> None:
        self.node_id: int | None = None
        """The broker that the name selects; None for any broker."""
        self.rejected: NameRejected | None = None
        """The reason if the name selects no broker."""


_handshake: ContextVar[Handshake] = ContextVar("handshake")


def begin_handshake() -> Handshake:
    """Return the handshake of the running task, into which `select` writes. A task does one handshake."""
    handshake = Handshake()
    _handshake.set(handshake)
    return handshake


class ServerNames:
    """The names of one range of listeners: one for bootstrapping, and one for each broker, present or future."""

    def __init__(self, listeners: Listeners) -> None:
        self._bootstrap = listeners.client_host.lower()
        self._brokers = listeners.sni_broker_host

    def node_of(self, name: str | None) -> int | None:
        """Return the broker that a name selects; None for any broker. Raises NameRejected."""
        if not name:
            raise NameRejected(
                "missing",
                "the client's TLS handshake contains no host name (SNI), which selects the broker",
                f"have the client connect to a name ({self._bootstrap}), not to an address",
            )
        host = name.lower().removesuffix(".")
        if host == self._bootstrap:
            return None
        node_id = node_id_of(self._brokers, host)
        if node_id is None:
            raise NameRejected(
                "unknown",
                f"the client's TLS handshake contains the host name {name!r} (SNI), which selects no broker",
                f"have the client bootstrap at {self._bootstrap}; brokers are {self._brokers}",
            )
        return node_id

    def select(self, _object: object, name: str | None, _context: object) -> int | None:
        """Select the broker of the running handshake, or return the TLS alert that ends it.

        It is an `SSLContext.sni_callback`.
        """
        handshake = _handshake.get(None)
        try:
            node_id = self.node_of(name)
        except NameRejected as rejected:
            if handshake is not None:
                handshake.rejected = rejected
            return ssl.ALERT_DESCRIPTION_UNRECOGNIZED_NAME
        if handshake is not None:
            handshake.node_id = node_id
        return None
