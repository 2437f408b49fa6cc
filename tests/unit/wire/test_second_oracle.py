"""kafka-python writes responses, ours rewrite them, kafka-python reads them: the same as with kio's schemas."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from proxy.wire.api_versions import clamp_api_versions
from proxy.wire.describe_topic_partitions import rewrite_response
from proxy.wire.endpoints import (
    hide_controller_listeners,
    rewrite_describe_cluster,
    rewrite_find_coordinator,
    rewrite_node_endpoints,
)
from proxy.wire.fetch_stream import FetchEndpointStream
from proxy.wire.metadata import rewrite_metadata_response
from proxy.wire.partition_leaders import SoleLeader
from tests.unit.wire.kafka_python import response_kinds
from tests.unit.wire.test_api_versions import _clamped
from tests.unit.wire.test_endpoints import _coordinator, fetch_by_walk
from tests.unit.wire.test_metadata import LEADER, proxy_address, rewritten_nodes, some_are_diskless, with_leaders
from tests.unit.wire.trees import encode, response_type, trees

_KINDS = response_kinds()
_SOLE = SoleLeader(LEADER)


def _metadata(body, version):
    return rewrite_metadata_response(
        body, version, address_of=proxy_address, is_diskless=some_are_diskless, leaders=_SOLE
    )


def _expected(key, tree):
    changed = {}
    if key == 10:
        if "coordinators" not in tree:
            return _coordinator(tree)
        return tree | {"coordinators": [_coordinator(each) for each in tree["coordinators"]]}
    if key == 18:
        return tree | {"api_keys": _clamped(tree["api_keys"])}
    if key == 55:
        return tree | {"nodes": [node | {"listeners": []} for node in tree["nodes"]]} if "nodes" in tree else tree
    if key in (3, 75):
        changed["topics"] = with_leaders(tree["topics"], some_are_diskless)
    if key in (3, 60):
        changed["brokers"] = rewritten_nodes(tree["brokers"], "node_id" if key == 3 else "broker_id")
    if "node_endpoints" in tree:
        changed["node_endpoints"] = rewritten_nodes(tree["node_endpoints"])
    return tree | changed


_REWRITES = {
    0: (range(3, 14), lambda body, version: rewrite_node_endpoints(0, body, version, proxy_address)),
    1: (range(4, 19), lambda body, version: fetch_by_walk(body, version, proxy_address)),
    3: (range(14), _metadata),
    10: (range(7), lambda body, version: rewrite_find_coordinator(body, version, proxy_address)),
    18: (range(5), clamp_api_versions),
    55: (range(3), hide_controller_listeners),
    60: (range(3), lambda body, version: rewrite_describe_cluster(body, version, proxy_address)),
    75: (range(1), lambda body, version: rewrite_response(body, version, some_are_diskless, _SOLE)),
}
_CASES = [
    (key, version)
    for key, (versions, _) in _REWRITES.items()
    for version in versions
    if _KINDS[key].valid_versions[0] <= version <= _KINDS[key].valid_versions[1]
]


def test_kafka_python_knows_all_versions_of_these():
    assert len(_CASES) >= sum(len(versions) for versions, _ in _REWRITES.values()) - 2


def _written(kind, version, encoded):
    message = kind.decode(encoded, version=version)
    message._header = None  # the encoder needs it, and decoded messages lack it
    return message.encode(version=version)


@pytest.mark.parametrize(("key", "version"), _CASES)
@settings(max_examples=6, deadline=None)
@given(data=st.data())
def test_messages_that_kafka_python_writes_and_reads(key, version, data):
    entity, kind = response_type(key, version), _KINDS[key]
    tree = data.draw(trees(entity, tags="known"))
    if key == 18:
        tree["error_code"] = 0  # kafka-python reads an answer with any other code as v0
    written = _written(kind, version, encode(entity, tree))
    rewritten = b"".join(bytes(buffer) for buffer in _REWRITES[key][1](written, version))
    expected = kind.decode(encode(entity, _expected(key, tree)), version=version)
    assert kind.decode(rewritten, version=version).to_dict() == expected.to_dict()


@pytest.mark.parametrize("version", [version for key, version in _CASES if key == 1])
@settings(max_examples=6, deadline=None)
@given(data=st.data())
def test_a_fetch_response_that_streams_through(version, data):
    entity, kind = response_type(1, version), _KINDS[1]
    tree = data.draw(trees(entity, tags="known"))
    stream = FetchEndpointStream(version, proxy_address)
    given = b"".join(stream.feed(_written(kind, version, encode(entity, tree))))
    stream.finish()
    read = kind.decode(given, version=version).to_dict()
    expected = kind.decode(encode(entity, _expected(1, tree)), version=version).to_dict()
    endpoints, rewritten = read.pop("node_endpoints", []), expected.pop("node_endpoints", [])
    assert endpoints in ([], rewritten)
    assert read == expected
