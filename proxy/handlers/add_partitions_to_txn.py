"""AddPartitionsToTxn (API key 24): transactions over classic and diskless partitions.

Behaviour: the broker adds diskless partitions to a transaction as it adds classic ones, because it knows their shadows.
Its answer is held until the coordinator has enlisted them (`transactions/enlistments.py`). If that is in doubt, all
partitions are answered CONCURRENT_TRANSACTIONS, as a broker answers while an earlier transaction ends: the client sends
the request again, and the broker decides again. If it is not certain that a topic is classic, or if a diskless topic is
not live, the broker is not asked, and the error is one that clients retry.

Version notes: v4 and v5 hold several transactions and are for brokers only. A transaction with a diskless partition is
answered INVALID_TOPIC_EXCEPTION there.
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
from proxy.coordinator.interface_registry import DisklessTopic
from proxy.protocol.errors import (
    CONCURRENT_TRANSACTIONS,
    COORDINATOR_LOAD_IN_PROGRESS,
    INVALID_TOPIC_EXCEPTION,
    NONE,
    OPERATION_NOT_ATTEMPTED,
)
from proxy.telemetry.throttled_log import NAMES_SHOWN, ThrottledLog
from proxy.topics.topics import Topics
from proxy.transactions.enlistments import AddedPartitions, Enlistments
from proxy.wire.cold import encode, milliseconds, nested, read_request, read_response

_SEVERAL_TRANSACTIONS = 4
"""The first version of AddPartitionsToTxn with an array of transactions."""


class AddPartitionsToTxn:
    """Handler of AddPartitionsToTxn."""

    def __init__(
        self, *, topics: Topics, rights: ClientRights, enlistments: Enlistments, throttled_log: ThrottledLog
    ) -> None:
        self._topics = topics
        self._rights = rights
        self._enlistments = enlistments
        self._throttled_log = throttled_log

    def add_partitions_to_txn(self, client: Client, request: Request) -> Coroutine[Any, Any, None] | None:
        """Forward the request, and enlist its diskless partitions. Raises ProtocolError."""
        asked = read_request(request.api_key, request.api_version, request.body)
        if request.api_version < _SEVERAL_TRANSACTIONS:
            return self._add(client, request, asked)
        named = {name for one in asked.transactions for name in names_of(one.topics)}
        if not not_classic(self._topics, named):
            client.forward(request)
            return None
        return self._reject_transactions(client, request, asked, client.open_slot(request))

    def _add(self, client: Client, request: Request, asked: Any) -> Coroutine[Any, Any, None] | None:
        """Let the broker add partitions to one transaction."""
        found = not_classic(self._topics, names_of(asked.v3_and_below_topics))
        if not found:
            client.forward(request)
            return None
        slot = client.open_slot(request)
        entries = {name: entry for name in found if (entry := self._topics.find(name)) is not None}
        unsure = [name for name in found if name not in entries or entries[name].state != "live"]
        if not unsure:
            return self._enlist(client, request, asked, entries, slot)
        errors = dict.fromkeys(unsure, COORDINATOR_LOAD_IN_PROGRESS)
        slot.fill([_added(request, _results(_result_type(request), asked.v3_and_below_topics, errors))])
        return None

    async def _enlist(
        self, client: Client, request: Request, asked: Any, entries: Mapping[str, DisklessTopic], slot: Slot
    ) -> None:
        """Add the partitions at the broker, then in the coordinator. Raises BrokerUnreachable and ProtocolError."""
        body = await client.ask(request, request.api_key, request.api_version, [request.body])
        response = read_response(request.api_key, request.api_version, body)
        logs = {
            (str(topic.name), int(one.partition_index)): entries[str(topic.name)].topic_id
            for topic in response.results_by_topic_v3_and_below
            for one in topic.results_by_partition
            if str(topic.name) in entries and one.partition_error_code.value == NONE
        }
        added = AddedPartitions(
            str(asked.v3_and_below_transactional_id),
            int(asked.v3_and_below_producer_id),
            int(asked.v3_and_below_producer_epoch),
            logs,
        )
        if not logs or await self._enlistments.enlist(client, request, added):
            slot.fill([body])
            return
        errors = dict.fromkeys(names_of(asked.v3_and_below_topics), CONCURRENT_TRANSACTIONS)
        slot.fill([_added(request, _results(_result_type(request), asked.v3_and_below_topics, errors))])

    async def _errors(self, client: Client, request: Request, names: Iterable[str]) -> dict[str, int]:
        """Return the error of each topic that the broker must not be asked about. A client without the right to write
        learns nothing else.

        Raises BrokerUnreachable and ProtocolError.
        """
        topics, rights = self._topics, self._rights.of(client.session)
        found = not_classic(topics, names)
        diskless = {name: entry.topic_id for name in found if (entry := topics.find(name)) is not None}
        unasked = rights.unasked(diskless)
        if unasked:
            await rights.ask(client, request, unasked)
        errors = dict.fromkeys(found, COORDINATOR_LOAD_IN_PROGRESS)
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
                reason="AddPartitionsToTxn from v4 on is for brokers",
                remedy="use v3 in the client",
            )
        return errors

    async def _reject_transactions(self, client: Client, request: Request, asked: Any, slot: Slot) -> None:
        """Answer AddPartitionsToTxn of several transactions. Raises BrokerUnreachable and ProtocolError."""
        response_type: Any = load_response_schema(request.api_key, request.api_version)
        named = {name for one in asked.transactions for name in names_of(one.topics)}
        errors = await self._errors(client, request, named)
        theirs = tuple(one for one in asked.transactions if errors.keys().isdisjoint(names_of(one.topics)))
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
            if not errors.keys().isdisjoint(names_of(one.topics))
        )
        slot.fill([encode(replace(response, results_by_transaction=(*response.results_by_transaction, *mine)))])


def names_of(topics: Iterable[Any]) -> set[str]:
    """Return the names of the topics of a request."""
    return {str(topic.name) for topic in topics}


def is_classic(topics: Topics, name: str | bytes) -> bool:
    """Return whether a topic is certainly classic."""
    return topics.find(name) is None and topics.is_read_as_classic(name)


def not_classic(topics: Topics, names: Iterable[str]) -> list[str]:
    """Return the topics that are diskless, or may be."""
    return sorted(name for name in names if not is_classic(topics, name))


def _result_type(request: Request) -> Any:
    response_type: Any = load_response_schema(request.api_key, request.api_version)
    return nested(response_type, "results_by_topic_v3_and_below")


def _added(request: Request, results: tuple[Any, ...]) -> bytes:
    """Return the body of an answer to AddPartitionsToTxn of one transaction."""
    response_type: Any = load_response_schema(request.api_key, request.api_version)
    return encode(response_type(throttle_time=milliseconds(0), results_by_topic_v3_and_below=results))


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
