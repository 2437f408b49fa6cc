"""The table of APIs agrees with the protocol libraries."""

import kio.schema.index
import pytest
from kio.index import load_request_schema, load_response_schema

from proxy.protocol.apis import (
    API_TABLE,
    NEVER_FLEXIBLE,
    PROPOSED_VERSIONS,
    Treatment,
    request_is_flexible,
    response_is_flexible,
)
from tests.unit.wire.kafka_python import ApiKey, request_versions

_OF_KIO = [
    (key, version)
    for key, name in kio.schema.index.api_key_map.items()
    for version in kio.schema.index.schema_name_map[name]
]
# Versions that clients before KIP-896 may send, and the proxy cannot read.
_LEFT_OUT = {(1, 0), (1, 1), (1, 2), (1, 3), (2, 0), (19, 0), (19, 1), (20, 0), (23, 0), (23, 1), (32, 0), (35, 0)}
_READ_OTHERWISE = {(0, 0), (0, 1), (0, 2), (76, 0)}
"""Versions that are read differently. Produce before v3 is forwarded, or rejected; a broker decides on an unreadable
heartbeat."""


def test_every_key_and_version_of_kio_is_classified():
    unclassified = [
        (key, version)
        for key, version in _OF_KIO
        if key not in API_TABLE or not API_TABLE[key].lowest_version <= version <= API_TABLE[key].highest_version
    ]
    assert unclassified == []


def test_every_key_and_version_of_kafka_python_is_classified():
    assert {int(key) for key in ApiKey} - API_TABLE.keys() == set()
    known = [(key, version) for key, low, high in request_versions() for version in range(low, high + 1)]
    assert len(known) > 100
    unclassified = [
        (key, version)
        for key, version in known
        if key not in API_TABLE or not API_TABLE[key].lowest_version <= version <= API_TABLE[key].highest_version
    ]
    assert set(unclassified) <= _LEFT_OUT


def test_every_offered_version_can_be_read():
    """Else the first diskless topic would end connections that were served before."""
    offered = {
        (api.key, version)
        for api in API_TABLE.values()
        if api.treatment in (Treatment.INTERCEPT, Treatment.REWRITE)
        for version in range(api.lowest_version, api.highest_version + 1)
    }
    assert offered - set(_OF_KIO) == _READ_OTHERWISE


def test_proposed_versions_are_one_above_the_highest_and_not_in_a_library_yet():
    """When a release uses one of these numbers, the proposal must be removed."""
    assert all(version == API_TABLE[key].highest_version + 1 for key, version in PROPOSED_VERSIONS.items())
    assert not set(PROPOSED_VERSIONS.items()) & {*_OF_KIO}
    assert not any(low <= PROPOSED_VERSIONS.get(key, -1) <= high for key, low, high in request_versions())


def test_names_are_kafkas():
    assert {int(key): key.name for key in ApiKey} == {
        key: api.name for key, api in API_TABLE.items() if key in set(map(int, ApiKey))
    }


@pytest.mark.parametrize("key", sorted({key for key, _ in _OF_KIO}))
def test_flexible_versions_are_those_of_kio(key):
    for version in (version for each, version in _OF_KIO if each == key):
        request = load_request_schema(key, version)
        assert request_is_flexible(key, version) == request.__flexible__
        has_tags = load_response_schema(key, version).__header_schema__.__flexible__
        assert response_is_flexible(key, version) == has_tags


def test_unknown_keys_are_not_flexible():
    assert not request_is_flexible(12345, 9)
    assert not response_is_flexible(12345, 9)


@pytest.mark.parametrize("api", API_TABLE.values(), ids=lambda api: api.name)
def test_entries_make_sense(api):
    assert 0 <= api.lowest_version <= api.highest_version
    assert api.flexible_from == NEVER_FLEXIBLE or api.flexible_from <= api.highest_version
    assert isinstance(api.treatment, Treatment)
    assert api.reason


def test_hidden_are_those_that_no_client_sends():
    hidden = {api.name for api in API_TABLE.values() if api.treatment is Treatment.HIDE}
    assert {"LeaderAndIsr", "Vote", "BrokerRegistration", "Envelope", "WriteShareGroupState"} <= hidden
    assert not {"Produce", "AddRaftVoter", "WriteTxnMarkers", "DescribeQuorum", "SaslHandshake"} & hidden
