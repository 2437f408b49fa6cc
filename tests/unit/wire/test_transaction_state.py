"""DescribeTransactions: kio is the oracle, except for transactions without a start, which kio can't read."""

from __future__ import annotations

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from proxy.wire.cold import read_response
from proxy.wire.errors import ProtocolError
from proxy.wire.transaction_state import ONGOING, build_describe_transaction, read_transaction_states
from tests.unit.wire.trees import decode, encode, request_type, response_type, trees

DESCRIBE_TRANSACTIONS = 65
ENTITY = response_type(DESCRIBE_TRANSACTIONS, 0)
STATE = {
    "error_code": 0,
    "transactional_id": "orders",
    "transaction_state": ONGOING,
    "transaction_timeout": 60_000,
    "transaction_start_time": 1_700_000_000_000,
    "producer_id": 2**40,
    "producer_epoch": 3,
    "topics": [{"topic": "orders", "partitions": [0, 2]}],
}


@settings(max_examples=100, deadline=None)
@given(trees(ENTITY))
@example({"throttle_time": 0, "transaction_states": [STATE, STATE | {"transaction_start_time": -1, "topics": []}]})
def test_states_are_read_as_they_were_written(tree) -> None:
    states = read_transaction_states(encode(ENTITY, tree))
    read = [
        (one.error_code, one.transactional_id, one.state, one.producer_id, one.producer_epoch, dict(one.partitions))
        for one in states
    ]
    assert read == [
        (
            one["error_code"],
            one["transactional_id"],
            one["transaction_state"],
            one["producer_id"],
            one["producer_epoch"],
            _partitions(one["topics"]),
        )
        for one in tree["transaction_states"]
    ]


def _partitions(topics) -> dict[str, frozenset[int]]:
    found: dict[str, frozenset[int]] = {}
    for topic in topics:
        found[topic["topic"]] = found.get(topic["topic"], frozenset()) | frozenset(topic["partitions"])
    return found


def test_kio_reads_the_same_of_a_transaction_with_a_start_only() -> None:
    body = encode(ENTITY, {"throttle_time": 0, "transaction_states": [STATE]})
    (mine,), (other,) = read_transaction_states(body), read_response(DESCRIBE_TRANSACTIONS, 0, body).transaction_states
    assert (mine.state, mine.producer_id, mine.producer_epoch) == (
        other.transaction_state,
        other.producer_id,
        other.producer_epoch,
    )
    assert mine.partitions == {topic.topic: frozenset(topic.partitions) for topic in other.topics}
    with pytest.raises(ProtocolError):
        read_response(
            DESCRIBE_TRANSACTIONS,
            0,
            encode(ENTITY, {"throttle_time": 0, "transaction_states": [STATE | {"transaction_start_time": -1}]}),
        )


@given(st.binary(max_size=60), st.integers(0, 60))
def test_bad_bytes_raise_one_error(data: bytes, cut: int) -> None:
    whole = encode(ENTITY, {"throttle_time": 0, "transaction_states": [STATE]})
    for body in (data, whole[:cut]):
        try:
            read_transaction_states(body)
        except ProtocolError:
            continue


@given(st.text(max_size=300))
def test_a_request_names_one_transaction(transactional_id: str) -> None:
    asked = decode(request_type(DESCRIBE_TRANSACTIONS, 0), build_describe_transaction(transactional_id))
    assert asked == {"transactional_ids": [transactional_id]}
