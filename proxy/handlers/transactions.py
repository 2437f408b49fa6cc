"""AddPartitionsToTxn and WriteTxnMarkers (API keys 24, 27): no transaction reaches a diskless partition.

Behaviour: the brokers would write the transaction's markers into the shadow, so a diskless partition is answered
INVALID_TOPIC_EXCEPTION. Clients report that code as an error of the transaction that names topic and code, and abort.
A transaction with a wrong partition fails as a whole, as on brokers: its other partitions get OPERATION_NOT_ATTEMPTED,
and the broker is not asked. If it is not certain that a topic is classic, the error is one that clients retry.

Markers are independent of each other: the broker writes those for classic partitions.

Version notes: AddPartitionsToTxn v4 and v5 hold several transactions, each of which fails by itself.
"""

from __future__ import annotations

from collections.abc import Coroutine, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from kio.index import load_response_schema
from kio.schema.errors import ErrorCode

from proxy.client.client import Client
from proxy.client.request import Request
from proxy.client.rights import WRITE, ClientRights
from proxy.client.slots import Slot
from proxy.protocol.errors import (
    COORDINATOR_LOAD_IN_PROGRESS,
    INVALID_TOPIC_EXCEPTION,
    NONE,
    NOT_LEADER_OR_FOLLOWER,
    OPERATION_NOT_ATTEMPTED,
)
from proxy.telemetry.throttled_log import NAMES_SHOWN, ThrottledLog
from proxy.topics.topics import Topics
from proxy.wire.cold import encode, milliseconds, nested, read_request, read_response
from proxy.wire.primitives import MAX_REJECTED_ELEMENTS

_SEVERAL_TRANSACTIONS = 4
"""The first version of AddPartitionsToTxn with an array of transactions."""


class Transactions:
    """Handlers of AddPartitionsToTxn and WriteTxnMarkers."""

    def __init__(self, *, topics: Topics, rights: ClientRights, throttled_log: ThrottledLog) -> None:
        self._topics = topics
        self._rights = rights
        self._throttled_log = throttled_log

    def add_partitions_to_txn(self, client: Client, request: Request) -> Coroutine[Any, Any, None] | None:
        """Forward the request if all of its topics are classic. Raises ProtocolError."""
        asked = read_request(request.api_key, request.api_version, request.body)
        if request.api_version < _SEVERAL_TRANSACTIONS:
            named = _names(asked.v3_and_below_topics)
        else:
            named = {name for one in asked.transactions for name in _names(one.topics)}
        if not _not_classic(self._topics, named):
            client.forward(request)
            return None
        return self._reject_transactions(client, request, asked, client.open_slot(request))

    def write_txn_markers(self, client: Client, request: Request) -> Coroutine[Any, Any, None] | None:
        """Forward the request if all of its topics are classic. Raises ProtocolError."""
        asked = read_request(request.api_key, request.api_version, request.body, most=MAX_REJECTED_ELEMENTS)
        if not _not_classic(self._topics, {name for one in asked.markers for name in _names(one.topics)}):
            client.forward(request)
            return None
        return self._reject_markers(client, request, asked, client.open_slot(request))

    async def _errors(self, client: Client, request: Request, names: Iterable[str], unsure: int) -> dict[str, int]:
        """Return the error of each topic that the broker must not be asked about.

        Raises BrokerUnreachable and ProtocolError.
        `unsure` is the error of a topic that may be classic. A client without the right to write learns nothing else.
        """
        topics, rights = self._topics, self._rights.of(client.session)
        found = _not_classic(topics, names)
        diskless = {name: entry.topic_id for name in found if (entry := topics.find(name)) is not None}
        unasked = rights.unasked(diskless)
        if unasked:
            await rights.ask(client, request, unasked)
        errors = dict.fromkeys(found, unsure)
        errors.update(
            (name, rights.error(name, WRITE, topic_id) or INVALID_TOPIC_EXCEPTION)
            for name, topic_id in diskless.items()
        )
        named = [name for name, error_code in errors.items() if error_code == INVALID_TOPIC_EXCEPTION]
        if named:
            self._throttled_log.warning(
                "transaction_refused",
                topics=named[:NAMES_SHOWN],
                client=client.session.host,
                client_id=request.client_id,
                reason="transactions on diskless topics are not supported yet",
                remedy="produce without transactional.id, or to a classic topic",
            )
        return errors

    async def _reject_transactions(self, client: Client, request: Request, asked: Any, slot: Slot) -> None:
        """Answer AddPartitionsToTxn. Raises BrokerUnreachable and ProtocolError."""
        response_type: Any = load_response_schema(request.api_key, request.api_version)
        unsure = COORDINATOR_LOAD_IN_PROGRESS
        if request.api_version < _SEVERAL_TRANSACTIONS:
            topics = asked.v3_and_below_topics
            errors = await self._errors(client, request, _names(topics), unsure)
            results = _results(nested(response_type, "results_by_topic_v3_and_below"), topics, errors)
            slot.fill([encode(response_type(throttle_time=milliseconds(0), results_by_topic_v3_and_below=results))])
            return
        errors = await self._errors(
            client, request, {name for one in asked.transactions for name in _names(one.topics)}, unsure
        )
        theirs = tuple(one for one in asked.transactions if errors.keys().isdisjoint(_names(one.topics)))
        response = response_type(throttle_time=milliseconds(0), error_code=ErrorCode(NONE), results_by_transaction=())
        if theirs:
            body = await client.ask(
                request, request.api_key, request.api_version, encode(replace(asked, transactions=theirs))
            )
            response = read_response(request.api_key, request.api_version, body)
        result_type = nested(response_type, "results_by_transaction")
        mine = tuple(
            result_type(
                transactional_id=one.transactional_id,
                topic_results=_results(nested(result_type, "topic_results"), one.topics, errors),
            )
            for one in asked.transactions
            if not errors.keys().isdisjoint(_names(one.topics))
        )
        slot.fill([encode(replace(response, results_by_transaction=(*response.results_by_transaction, *mine)))])

    async def _reject_markers(self, client: Client, request: Request, asked: Any, slot: Slot) -> None:
        """Answer WriteTxnMarkers. Raises BrokerUnreachable and ProtocolError."""
        response_type: Any = load_response_schema(request.api_key, request.api_version)
        marker_type = nested(response_type, "markers")
        topic_type = nested(marker_type, "topics")
        partition_type = nested(topic_type, "partitions")
        names = {name for one in asked.markers for name in _names(one.topics)}
        errors = await self._errors(client, request, names, NOT_LEADER_OR_FOLLOWER)
        theirs = [
            replace(one, topics=tuple(topic for topic in one.topics if str(topic.name) not in errors))
            for one in asked.markers
        ]
        theirs = [one for one in theirs if one.topics]
        results: dict[int, tuple[Any, ...]] = {}
        if theirs:
            body = await client.ask(
                request, request.api_key, request.api_version, encode(replace(asked, markers=tuple(theirs)))
            )
            response = read_response(request.api_key, request.api_version, body)
            results = {one.producer_id: one.topics for one in response.markers}
        for marker in asked.markers:
            mine = tuple(
                topic_type(
                    name=topic.name,
                    partitions=tuple(
                        partition_type(partition_index=index, error_code=ErrorCode(errors[str(topic.name)]))
                        for index in topic.partition_indexes
                    ),
                )
                for topic in marker.topics
                if str(topic.name) in errors
            )
            results[marker.producer_id] = (*results.get(marker.producer_id, ()), *mine)
        markers = tuple(marker_type(producer_id=producer_id, topics=topics) for producer_id, topics in results.items())
        slot.fill([encode(response_type(markers=markers))])


def _names(topics: Iterable[Any]) -> set[str]:
    return {str(topic.name) for topic in topics}


def is_classic(topics: Topics, name: str | bytes) -> bool:
    """Return whether a topic is certainly classic."""
    return topics.find(name) is None and topics.is_read_as_classic(name)


def _not_classic(topics: Topics, names: Iterable[str]) -> list[str]:
    """The topics that are diskless, or may be."""
    return sorted(name for name in names if not is_classic(topics, name))


def _results(topic_type: Any, topics: Sequence[Any], errors: Mapping[str, int]) -> tuple[Any, ...]:
    """The results of one transaction's topics, none of which was added to it."""
    partition_type = nested(topic_type, "results_by_partition")
    return tuple(
        topic_type(
            name=topic.name,
            results_by_partition=tuple(
                partition_type(
                    partition_index=index,
                    partition_error_code=ErrorCode(errors.get(str(topic.name), OPERATION_NOT_ATTEMPTED)),
                )
                for index in topic.partitions
            ),
        )
        for topic in topics
    )
