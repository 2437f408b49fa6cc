"""The tests' own implementation of the protocol agrees with kio."""

import io

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from kio.serial import entity_reader, entity_writer

from tests.unit.wire.trees import decode, encode, request_type, response_type, schema_of, trees

_VERSIONS = {
    0: (3, 9, 13),
    1: (4, 11, 12, 18),
    3: (0, 8, 9, 13),
    10: (0, 3, 6),
    18: (0, 3),
    60: (2,),
    75: (0,),
    78: (2,),
}
_TYPES = [
    kind(key, version)
    for key, versions in _VERSIONS.items()
    for version in versions
    for kind in (request_type, response_type)
]


def _readable_by_kio(entity, tree):
    """Return the tree with error codes that kio knows, because it rejects others."""
    for field in schema_of(entity).fields:
        if field.kind == "error_code" and tree.get(field.name) == 9999:
            tree[field.name] = 0
        elif field.kind == "struct" and tree.get(field.name) is not None:
            for element in tree[field.name] if field.is_array else [tree[field.name]]:
                _readable_by_kio(field.entity, element)


@pytest.mark.parametrize("entity", _TYPES, ids=lambda entity: f"{entity.__name__}-{entity.__version__}")
@settings(max_examples=8, deadline=None)
@given(data=st.data())
def test_kio_reads_and_writes_the_same_message(entity, data):
    tree = data.draw(trees(entity, tags="none"))
    _readable_by_kio(entity, tree)
    encoded = encode(entity, tree)
    assert decode(entity, encoded) == tree
    message, size = entity_reader(entity)(encoded, 0)
    assert size == len(encoded)
    stream = io.BytesIO()
    entity_writer(entity)(stream, message)
    assert stream.getvalue() == encoded


@pytest.mark.parametrize("api_key", [0, 1])
@settings(max_examples=25, deadline=None)
@given(data=st.data())
def test_kio_reads_tagged_fields(api_key, data):
    entity = response_type(api_key, 16 if api_key else 12)
    tree = data.draw(trees(entity, tags="known"))
    _readable_by_kio(entity, tree)
    encoded = encode(entity, tree)
    message, size = entity_reader(entity)(encoded, 0)
    assert size == len(encoded)
    endpoints = [(node.node_id, node.host, node.port, node.rack) for node in message.node_endpoints]
    sent = tree.get("node_endpoints", [])
    assert endpoints == [(node["node_id"], node["host"], node["port"], node["rack"]) for node in sent]
