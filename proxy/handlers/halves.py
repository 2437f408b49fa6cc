"""Requests whose topics are partly classic, partly diskless: the broker answers its half, the proxy the other.

For APIs whose request and response hold an array `topics`, read and written with kio.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Coroutine, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

from kio.index import load_response_schema

from proxy.client.client import Client
from proxy.client.request import Request
from proxy.client.rights import ClientRights
from proxy.client.slots import Slot
from proxy.coordinator.interface_registry import UNKNOWN_STATE, DisklessTopic
from proxy.protocol.errors import KAFKA_STORAGE_ERROR
from proxy.topics.topics import Topics
from proxy.wire.cold import encode, milliseconds, read_request, read_response


class MyTopic(NamedTuple):
    """A topic of the request that the broker is not asked about."""

    asked: Any
    entry: DisklessTopic
    """Entry in the registry; without partitions if it is unknown whether the topic is diskless."""
    refused: int
    """NONE, or the error of all its partitions."""


Mine = Sequence[MyTopic]
AnswerMine = Callable[[Any, Mine], Awaitable[list[Any]]]
"""The proxy's half of the response's `topics`; gets the response type of the request's version."""


class Halves:
    """Splits requests between the broker and the proxy."""

    def __init__(self, *, topics: Topics, rights: ClientRights) -> None:
        self._topics = topics
        self._rights = rights

    def answer(
        self,
        client: Client,
        request: Request,
        name_of: Callable[[Any], str],
        operation: int,
        answer_mine: AnswerMine,
    ) -> Coroutine[Any, Any, None] | None:
        """Forward what has no diskless topic; answer the rest. Raises ProtocolError for what can't be read.

        Forwarding that would let a shadow topic's offsets pass for a diskless topic's. `operation` is what the client
        needs the right to; a topic of which it is not sure what it is gets a retriable error, as in a Produce.
        """
        topics = self._topics
        if topics.nothing_diskless:
            client.forward(request)
            return None
        parsed = read_request(request.api_key, request.api_version, request.body)
        mine: list[tuple[Any, DisklessTopic]] = []
        theirs, unsure = [], []
        for asked in parsed.topics:
            name = name_of(asked)
            entry = topics.find(name)
            if entry is not None:
                mine.append((asked, entry))
            elif topics.is_read_as_classic(name):
                theirs.append(asked)
            else:
                unsure.append(MyTopic(asked, DisklessTopic(name, b"", 0, UNKNOWN_STATE), KAFKA_STORAGE_ERROR))
        if not (mine or unsure):
            client.forward(request)
            return None

        half = replace(parsed, topics=tuple(theirs))
        return self._answer(client, request, client.open_slot(request), half, mine, unsure, operation, answer_mine)

    async def _answer(
        self,
        client: Client,
        request: Request,
        slot: Slot,
        theirs: Any,
        mine: Sequence[tuple[Any, DisklessTopic]],
        unsure: Mine,
        operation: int,
        answer_mine: AnswerMine,
    ) -> None:
        response_type: Any = load_response_schema(request.api_key, request.api_version)
        rights = self._rights.of(client.session)
        unasked = rights.unasked({entry.name: entry.topic_id for _, entry in mine})
        if unasked:
            await rights.ask(client, request, unasked)
        judged = [MyTopic(asked, entry, rights.error(entry.name, operation, entry.topic_id)) for asked, entry in mine]
        answered = await answer_mine(response_type, [*judged, *unsure])
        if theirs.topics:
            body = await client.ask(request, request.api_key, request.api_version, encode(theirs))
            response = read_response(request.api_key, request.api_version, body)
            response = replace(response, topics=(*response.topics, *answered))
        else:
            throttle = {"throttle_time": milliseconds(0)} if "throttle_time" in response_type.__slots__ else {}
            response = response_type(topics=tuple(answered), **throttle)
        slot.fill([encode(response)])
