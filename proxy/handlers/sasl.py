"""SaslHandshake and SaslAuthenticate (API keys 17, 36): the client authenticates to its broker, through us.

Behaviour: both pass unchanged, any mechanism. On the way it is noted how far the client has got
(`security.authentication`), and as which user, for the brokers' quotas (`security.principal`). Nothing else of the
connection is looked at until the broker has answered. What the client may do is forgotten when it has authenticated
again.

Version notes: after SaslHandshake v0 come tokens without header (`wire.sasl_v0`). SaslAuthenticate tells the session's
lifetime from v1 on; a client of v0 is cut off by the broker, at the latest when its rights are asked for again.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import TYPE_CHECKING, Any

from proxy.brokers.upstream import BrokerUnreachable
from proxy.client.principal import observer_of
from proxy.client.rights import Rights
from proxy.protocol.errors import NONE
from proxy.wire.sasl import (
    parse_authenticate_request,
    parse_authenticate_response,
    parse_handshake_request,
    parse_handshake_response,
)

if TYPE_CHECKING:
    from proxy.client.request import Request
    from proxy.client.slots import Slot
    from proxy.connection.connection import ClientConnection
    from proxy.wire.primitives import Buffer


def sasl_handshake(connection: ClientConnection, request: Request) -> Coroutine[Any, Any, None]:
    """SaslHandshake, all versions. Raises ProtocolError."""
    mechanism = parse_handshake_request(request.body)
    connection.authentication.handshake_begins(mechanism, request.api_version)
    observer_of(connection).observe_handshake(mechanism)
    answered: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def rewrite(body: memoryview) -> list[Buffer]:
        connection.authentication.handshake_answered(parse_handshake_response(body).error_code)
        _settle(answered)
        return [body]

    connection.forward(request, rewrite)
    return _until(answered)


def sasl_authenticate(connection: ClientConnection, request: Request) -> Coroutine[Any, Any, None]:
    """SaslAuthenticate, all versions. Raises ProtocolError."""
    observer = observer_of(connection)
    token = parse_authenticate_request(request.body, request.api_version)
    if connection.authentication.under_way:
        # Outside of an exchange brokers answer an error and nothing changes: neither does the user.
        observer.observe_token(token)
    answered: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def rewrite(body: memoryview) -> list[Buffer]:
        answer = parse_authenticate_response(body, request.api_version)
        observer.observe_outcome(answer.error_code)
        if connection.authentication.authenticate_answered(answer):
            connection.remembered.pop(Rights, None)
        _settle(answered)
        return [body]

    connection.forward(request, rewrite)
    return _until(answered)


async def pass_token(connection: ClientConnection, token: bytes, slot: Slot) -> None:
    """A token without header, and its answer. Raises BrokerUnreachable: brokers close where they refuse."""
    observer = observer_of(connection)
    observer.observe_token(token)
    if connection.upstream is None:
        raise BrokerUnreachable("the client's connection is ending")
    answer = await connection.upstream.exchange_token(token)
    observer.observe_outcome(NONE)
    if connection.authentication.token_answered(answer):
        connection.remembered.pop(Rights, None)
    slot.fill_frame(answer)


async def _until(answered: asyncio.Future[None]) -> None:
    await answered


def _settle(answered: asyncio.Future[None]) -> None:
    if not answered.done():
        answered.set_result(None)
