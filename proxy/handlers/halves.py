"""Requests whose topics are partly classic, partly diskless: the broker answers its half, the proxy the other.

For APIs whose request and response hold an array `topics`, read and written with kio.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Coroutine, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from kio.index import load_response_schema

from proxy.coordinator.interface import DisklessTopic
from proxy.security.rights import rights_of
from proxy.wire.cold import encode, milliseconds, read_request, read_response

if TYPE_CHECKING:
    from proxy.connection import ClientConnection
    from proxy.request import Request
    from proxy.slots import Slot

Mine = Sequence[tuple[Any, DisklessTopic]]
"""The request's diskless topics, each with its entry in the registry."""
AnswerMine = Callable[["ClientConnection", Any, Mine], Awaitable[list[Any]]]
"""The proxy's half of the response's `topics`; gets the response type of the request's version.

What the client may do with the topics has been asked by then (`rights_of(connection).error`).
"""


def answer_in_halves(
    connection: ClientConnection, request: Request, name_of: Callable[[Any], str], answer_mine: AnswerMine
) -> Coroutine[Any, Any, None] | None:
    """Forward what has no diskless topic; answer the rest. Raises ProtocolError for what can't be read.

    Forwarding that would let a shadow topic's offsets pass for a diskless topic's.
    """
    topics = connection.context.topics
    if not topics.all():
        connection.forward(request)
        return None
    parsed = read_request(request.api_key, request.api_version, request.body)
    mine = [(asked, entry) for asked in parsed.topics if (entry := topics.find(name_of(asked))) is not None]
    if not mine:
        connection.forward(request)
        return None
    theirs = tuple(asked for asked in parsed.topics if topics.find(name_of(asked)) is None)
    slot = connection.open_slot(request)
    return _answer(connection, request, slot, replace(parsed, topics=theirs), mine, answer_mine)


async def _answer(
    connection: ClientConnection, request: Request, slot: Slot, theirs: Any, mine: Mine, answer_mine: AnswerMine
) -> None:
    response_type: Any = load_response_schema(request.api_key, request.api_version)
    rights = rights_of(connection)
    unasked = rights.unasked(entry.name for _, entry in mine)
    if unasked:
        await rights.ask(connection, request, unasked)
    answered = await answer_mine(connection, response_type, mine)
    if theirs.topics:
        body = await connection.ask(request, request.api_key, request.api_version, encode(theirs))
        response = read_response(request.api_key, request.api_version, body)
        response = replace(response, topics=(*response.topics, *answered))
    else:
        throttle = {"throttle_time": milliseconds(0)} if "throttle_time" in response_type.__slots__ else {}
        response = response_type(topics=tuple(answered), **throttle)
    slot.fill([encode(response)])
