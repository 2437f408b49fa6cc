"""SaslHandshake and SaslAuthenticate (API keys 17, 36): the client authenticates to its broker, through us.

Behaviour: both pass unchanged, any mechanism. On the way it is noted how far the client has got
(`security.authentication`), and as which user, for the brokers' quotas (`security.principal`). Nothing else of the
connection is looked at until the broker has answered. What the client may do is forgotten when it has authenticated
again.

Version notes: after SaslHandshake v0 come tokens without header (`wire.sasl_v0`). SaslAuthenticate has the session's
lifetime from v1 on; a client of v0 is cut off by the broker, at the latest when its rights are asked for again.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any

from proxy.client.client import Client
from proxy.client.principal import SaslObserver
from proxy.client.request import Request
from proxy.client.rights import RIGHTS
from proxy.client.session import SessionKey
from proxy.client.slots import Slot
from proxy.client.transactional_ids import TRANSACTIONAL_IDS
from proxy.config import Settings
from proxy.protocol.errors import NONE
from proxy.wire.primitives import Buffer
from proxy.wire.sasl import (
    parse_authenticate_request,
    parse_authenticate_response,
    parse_handshake_request,
    parse_handshake_response,
)

_OBSERVER = SessionKey[SaslObserver]("SASL observer")


class Sasl:
    """Handlers of SaslHandshake, SaslAuthenticate, and tokens without header."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings

    def handshake(self, client: Client, request: Request) -> Coroutine[Any, Any, None]:
        """SaslHandshake, all versions. Raises ProtocolError."""
        mechanism = parse_handshake_request(request.body)
        client.session.authentication.handshake_begins(mechanism, request.api_version)
        self._observer_of(client).observe_handshake(mechanism)
        answered: asyncio.Future[None] = asyncio.get_running_loop().create_future()

        def rewrite(body: memoryview) -> list[Buffer]:
            client.session.authentication.handshake_answered(parse_handshake_response(body).error_code)
            _settle(answered)
            return [body]

        client.forward(request, rewrite)
        return _until(answered)

    def authenticate(self, client: Client, request: Request) -> Coroutine[Any, Any, None]:
        """SaslAuthenticate, all versions. Raises ProtocolError."""
        observer = self._observer_of(client)
        token = parse_authenticate_request(request.body, request.api_version)
        if client.session.authentication.under_way:
            # Outside of an exchange brokers answer an error and nothing changes: neither does the user.
            observer.observe_token(token)
        answered: asyncio.Future[None] = asyncio.get_running_loop().create_future()

        def rewrite(body: memoryview) -> list[Buffer]:
            answer = parse_authenticate_response(body, request.api_version)
            _observe_outcome(client, observer, answer.error_code)
            if client.session.authentication.authenticate_answered(answer):
                client.session.forget(RIGHTS)
                client.session.forget(TRANSACTIONAL_IDS)
            _settle(answered)
            return [body]

        client.forward(request, rewrite)
        return _until(answered)

    async def pass_token(self, client: Client, token: bytes, slot: Slot) -> None:
        """A token without header, and its answer. Raises BrokerUnreachable: brokers close where they refuse."""
        observer = self._observer_of(client)
        observer.observe_token(token)
        answer = await client.exchange_token(token)
        _observe_outcome(client, observer, NONE)
        if client.session.authentication.token_answered(answer):
            client.session.forget(RIGHTS)
            client.session.forget(TRANSACTIONAL_IDS)
        slot.fill_frame(answer)

    def _observer_of(self, client: Client) -> SaslObserver:
        observer = client.session.get(_OBSERVER)
        if observer is None:
            observer = SaslObserver(self._settings.sasl_oauthbearer_sub_claim_name)
            client.session[_OBSERVER] = observer
        return observer


def _observe_outcome(client: Client, observer: SaslObserver, error_code: int) -> None:
    observer.observe_outcome(error_code)
    client.session.user = observer.user


async def _until(answered: asyncio.Future[None]) -> None:
    await answered


def _settle(answered: asyncio.Future[None]) -> None:
    if not answered.done():
        answered.set_result(None)
