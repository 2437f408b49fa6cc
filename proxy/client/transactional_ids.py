"""The client's right to a transactional ID, as its own broker reports it.

A broker takes transactional batches only from clients that may write to their transactional ID. No API says whether a
client may, so the proxy sends EndTxn with a producer ID that does not exist, on the client's own connection. A client
without the right gets TRANSACTIONAL_ID_AUTHORIZATION_FAILED. Otherwise the broker finds that it is not the coordinator,
or that the producer ID is wrong. The request changes nothing.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from proxy.client.session import Session, SessionKey
from proxy.config import Settings
from proxy.protocol.api_keys import END_TXN
from proxy.protocol.errors import (
    CONCURRENT_TRANSACTIONS,
    COORDINATOR_LOAD_IN_PROGRESS,
    COORDINATOR_NOT_AVAILABLE,
    INVALID_PRODUCER_ID_MAPPING,
    NONE,
    NOT_COORDINATOR,
    TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
)
from proxy.wire.cold import encode, read_response
from proxy.wire.errors import ProtocolError

if TYPE_CHECKING:
    from proxy.client.client import Client
    from proxy.client.request import Request

_VERSION = 3
_NO_PRODUCER_ID, _NO_EPOCH = -1, -1
_MAY_WRITE = frozenset(
    {
        COORDINATOR_LOAD_IN_PROGRESS,
        COORDINATOR_NOT_AVAILABLE,
        NOT_COORDINATOR,
        INVALID_PRODUCER_ID_MAPPING,
        CONCURRENT_TRANSACTIONS,
    }
)
"""Errors that a broker finds after it has checked the right."""
_MAX_KNOWN = 1_000


class TransactionalIds:
    """The rights of one connection's client to transactional IDs."""

    def __init__(self, kept_s: float, now: Callable[[], float]) -> None:
        self._kept_s = kept_s
        self._now = now
        self._known: dict[str, tuple[float, int]] = {}
        """Time until which an answer is used, and the error, by transactional ID."""

    def is_known(self, transactional_id: str) -> bool:
        """Return whether the broker need not be asked (again)."""
        until_s, _ = self._known.get(transactional_id, (self._now(), NONE))
        return self._now() < until_s

    def error(self, transactional_id: str) -> int:
        """Return NONE if the client may write to the ID, else Kafka's error; so also if the broker was never asked."""
        return self._known.get(transactional_id, (0.0, TRANSACTIONAL_ID_AUTHORIZATION_FAILED))[1]

    async def ask(self, client: Client, request: Request, transactional_id: str) -> None:
        """Let the client's broker say it. Raises BrokerUnreachable and ProtocolError."""
        from kio.schema.end_txn.v3.request import EndTxnRequest

        asked: Any = EndTxnRequest
        body = encode(
            asked(
                transactional_id=transactional_id,
                producer_id=_NO_PRODUCER_ID,
                producer_epoch=_NO_EPOCH,
                committed=False,
            )
        )
        answer: Any = read_response(END_TXN, _VERSION, await client.ask(request, END_TXN, _VERSION, body))
        error_code = int(answer.error_code.value)
        if error_code != TRANSACTIONAL_ID_AUTHORIZATION_FAILED and error_code not in _MAY_WRITE:
            raise ProtocolError(f"EndTxn without a producer answers error {error_code}")
        self._known.pop(transactional_id, None)
        if len(self._known) >= _MAX_KNOWN:
            del self._known[next(iter(self._known))]
        denied = error_code == TRANSACTIONAL_ID_AUTHORIZATION_FAILED
        self._known[transactional_id] = self._now() + self._kept_s, error_code if denied else NONE


TRANSACTIONAL_IDS = SessionKey[TransactionalIds]("transactional IDs")


class ClientTransactionalIds:
    """The rights of all clients to transactional IDs, each kept in the client's session."""

    def __init__(self, settings: Settings, now: Callable[[], float]) -> None:
        """`now`: monotonic seconds."""
        self._settings = settings
        self._now = now

    def of(self, session: Session) -> TransactionalIds:
        """Return the rights of one client."""
        known = session.get(TRANSACTIONAL_IDS)
        if known is None:
            known = session[TRANSACTIONAL_IDS] = TransactionalIds(
                self._settings.authorization_cache_ms / 1000, self._now
            )
        return known
