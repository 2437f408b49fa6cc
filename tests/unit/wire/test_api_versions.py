"""ApiVersions: a client gets the versions that both broker and proxy know."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from proxy.protocol.apis import API_TABLE, Treatment
from proxy.wire.api_versions import (
    clamp_api_versions,
    client_software,
    transaction_version,
    unsupported_api_versions_response,
)
from proxy.wire.errors import ProtocolError
from proxy.wire.primitives import NO_TAGS, write_string
from tests.unit.wire.kafka_python import ApiVersionsResponse
from tests.unit.wire.trees import decode, decode_joined, encode, response_type, trees


def _clamped(ranges):
    kept = []
    for entry in ranges:
        api = API_TABLE.get(entry["api_key"])
        if api is not None and api.treatment is not Treatment.HIDE:
            lowest = max(entry["min_version"], api.lowest_version)
            highest = min(entry["max_version"], api.highest_version)
            if lowest <= highest:
                kept.append(entry | {"min_version": lowest, "max_version": highest})
    return kept


@pytest.mark.parametrize("version", range(5))
@settings(max_examples=20, deadline=None)
@given(data=st.data())
def test_ranges_are_cut_and_all_else_stays(version, data):
    entity = response_type(18, version)
    tree = data.draw(trees(entity))
    ranges = data.draw(st.lists(st.tuples(st.integers(-1, 95), st.integers(0, 20), st.integers(0, 20)), max_size=9))
    tree["api_keys"] += [{"api_key": key, "min_version": low, "max_version": high} for key, low, high in ranges]
    read = decode_joined(entity, clamp_api_versions(encode(entity, tree), version))
    assert read == tree | {"api_keys": _clamped(tree["api_keys"])}


def _answer(version, ranges):
    keys = [{"api_key": key, "min_version": low, "max_version": high} for key, low, high in ranges]
    tree = {"error_code": 0, "api_keys": keys, "throttle_time": 0}
    return b"".join(clamp_api_versions(encode(response_type(18, version), tree), version))


def test_the_brokers_answer_becomes_the_clients_answer():
    ranges = [(0, 0, 13), (1, 4, 99), (3, 0, 14), (52, 0, 2), (83, 0, 0), (999, 0, 1), (78, 1, 2)]
    read = ApiVersionsResponse.decode(_answer(4, ranges), version=4)
    seen = [(entry.api_key, entry.min_version, entry.max_version) for entry in read.api_keys]
    assert seen == [(0, 0, 13), (1, 4, 18), (3, 0, 13), (78, 1, 2)]


@pytest.mark.parametrize("kip1163_api", [False, True])
def test_versions_of_kip_1163_are_offered_only_if_enabled(kip1163_api):
    ranges = [(3, 0, 13), (75, 0, 0), (60, 0, 2)]
    entity = response_type(18, 3)
    keys = [{"api_key": key, "min_version": low, "max_version": high} for key, low, high in ranges]
    body = encode(entity, {"error_code": 0, "api_keys": keys, "throttle_time": 0})
    read = decode_joined(entity, clamp_api_versions(body, 3, kip1163_api=kip1163_api))
    highest = [entry["max_version"] for entry in read["api_keys"]]
    assert highest == ([14, 1, 2] if kip1163_api else [13, 0, 2])


def test_an_older_broker_is_not_asked_what_it_does_not_know():
    """Metadata v14 is sent to the broker as v13, so it requires a broker with v13."""
    entity = response_type(18, 3)
    body = encode(
        entity, {"error_code": 0, "api_keys": [{"api_key": 3, "min_version": 0, "max_version": 12}], "throttle_time": 0}
    )
    read = decode_joined(entity, clamp_api_versions(body, 3, kip1163_api=True))
    assert read["api_keys"][0]["max_version"] == 12


@pytest.mark.parametrize("version", range(5))
@settings(max_examples=20, deadline=None)
@given(data=st.data())
def test_clients_can_be_held_at_transaction_version_1(version, data):
    entity = response_type(18, version)
    tree = data.draw(trees(entity))
    highest = data.draw(st.integers(0, 5))
    tree["api_keys"] += [
        {"api_key": key, "min_version": 0, "max_version": most} for key, most in ((0, 13), (26, 5), (28, 5), (1, 18))
    ]
    named = {"name": "transaction.version", "max_version_level": highest, "min_version_level": highest}
    if version >= 3:
        tree["finalized_features"] = [*(tree.get("finalized_features") or []), named]
    read = decode_joined(entity, clamp_api_versions(encode(entity, tree), version, transactions_v1=True))
    versions = {entry["api_key"]: entry["max_version"] for entry in read["api_keys"][-4:]}
    assert versions == {0: 13, 26: 5, 28: 5, 1: 18}
    if version >= 3:
        held = {"max_version_level": min(highest, 1), "min_version_level": min(highest, 1)}
        assert read["finalized_features"] == [*tree["finalized_features"][:-1], named | held]
        del read["finalized_features"], tree["finalized_features"]
    assert read | {"api_keys": []} == tree | {"api_keys": []}


@pytest.mark.parametrize("version", range(5))
@settings(max_examples=20, deadline=None)
@given(data=st.data())
def test_the_transaction_version_of_the_brokers_is_read(version, data):
    entity = response_type(18, version)
    tree = data.draw(trees(entity))
    highest = data.draw(st.integers(0, 5))
    named = {"name": "transaction.version", "max_version_level": highest, "min_version_level": 0}
    if version >= 3:
        tree["finalized_features"] = [*(tree.get("finalized_features") or []), named]
    assert transaction_version(encode(entity, tree), version) == (highest if version >= 3 else 0)
    refused = encode(response_type(18, 0), {"error_code": 35, "api_keys": []})
    assert transaction_version(refused, version) == 0


def test_a_range_without_overlap_is_left_out():
    read = decode(response_type(18, 3), _answer(3, [(1, 0, 3), (78, 0, 0)]))
    assert read["api_keys"] == []


@pytest.mark.parametrize("asked", [0, 3, 4])
def test_unsupported_version_is_answered_as_v0(asked):
    entity = response_type(18, 0)
    response = unsupported_api_versions_response(77)
    assert response[:4] == (77).to_bytes(4, "big")
    tree = decode(entity, response[4:])
    assert tree == {"error_code": 35, "api_keys": [{"api_key": 18, "min_version": 0, "max_version": 4}]}
    # A broker's own such answer is v0 as well, whatever version it answers.
    assert decode_joined(entity, clamp_api_versions(response[4:], asked)) == tree


def test_other_versions_are_rejected():
    with pytest.raises(ProtocolError, match="v5"):
        clamp_api_versions(bytes(20), 5)


@given(st.text(max_size=40), st.text(max_size=40))
def test_the_software_of_a_client_is_what_it_says(name: str, version: str) -> None:
    said = write_string(name, True) + write_string(version, True) + NO_TAGS
    assert client_software(said, 3) == f"{name} {version}".strip()
    assert client_software(said, 2) == ""


@given(st.binary(max_size=60))
def test_a_request_without_software_name_is_not_an_error(said: bytes) -> None:
    assert isinstance(client_software(said, 3), str)
