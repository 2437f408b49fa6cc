"""Responses that name brokers: only addresses and leaders change."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from proxy.wire.endpoints import (
    hide_controller_listeners,
    rewrite_describe_cluster,
    rewrite_endpoint_section,
    rewrite_find_coordinator,
    rewrite_node_endpoints,
)
from proxy.wire.errors import ProtocolError
from proxy.wire.fetch_walk import response_tail, walk_fetch_response
from tests.unit.wire.test_metadata import proxy_address, rewritten_nodes
from tests.unit.wire.trees import decode_joined, encode, response_type, trees

_MODEST = settings(max_examples=10, deadline=None)


def _coordinator(tree):
    if not tree["host"]:
        return tree
    address = proxy_address(tree["node_id"]) if tree["node_id"] >= 0 else None
    if address is None:
        return tree | {"node_id": -1, "host": "", "port": -1, "error_code": 15}
    return tree | {"host": address[0], "port": address[1]}


@pytest.mark.parametrize("version", range(7))
@_MODEST
@given(data=st.data())
def test_find_coordinator(version, data):
    entity = response_type(10, version)
    tree = data.draw(trees(entity))
    read = decode_joined(entity, rewrite_find_coordinator(encode(entity, tree), version, proxy_address))
    if version < 4:
        assert read == _coordinator(tree)
    else:
        assert read == tree | {"coordinators": [_coordinator(each) for each in tree["coordinators"]]}


@pytest.mark.parametrize("version", range(3))
@_MODEST
@given(data=st.data())
def test_describe_cluster(version, data):
    entity = response_type(60, version)
    tree = data.draw(trees(entity))
    read = decode_joined(entity, rewrite_describe_cluster(encode(entity, tree), version, proxy_address))
    assert read == tree | {"brokers": rewritten_nodes(tree["brokers"], "broker_id")}


@pytest.mark.parametrize("version", range(3))
@_MODEST
@given(data=st.data())
def test_describe_quorum(version, data):
    entity = response_type(55, version)
    tree = data.draw(trees(entity))
    read = decode_joined(entity, hide_controller_listeners(encode(entity, tree), version))
    if version >= 2:
        tree["nodes"] = [node | {"listeners": []} for node in tree["nodes"]]
    assert read == tree


def fetch_by_walk(body, version, address_of):
    """Rebuild a Fetch response for a client from the pieces that a walk found."""
    walk = walk_fetch_response(body, version)
    tail = response_tail(walk)
    return [walk.body[: walk.tail], rewrite_endpoint_section(tail, address_of) if version >= 16 else tail]


_WITH_ENDPOINTS = [(0, version) for version in range(3, 14)]
_WITH_ENDPOINTS += [(78, 1), (78, 2), (79, 1), (79, 2)]


@pytest.mark.parametrize(("api_key", "version"), _WITH_ENDPOINTS)
@_MODEST
@given(data=st.data())
def test_node_endpoints(api_key, version, data):
    agree_on_nodes(api_key, version, data, lambda body: rewrite_node_endpoints(api_key, body, version, proxy_address))


@pytest.mark.parametrize("version", range(4, 19))
@_MODEST
@given(data=st.data())
def test_node_endpoints_of_fetch(version, data):
    agree_on_nodes(1, version, data, lambda body: fetch_by_walk(body, version, proxy_address))


def agree_on_nodes(api_key, version, data, rewrite):
    """Only the addresses of nodes are others."""
    entity = response_type(api_key, version)
    tree = data.draw(trees(entity))
    read = decode_joined(entity, rewrite(encode(entity, tree)))
    if "node_endpoints" in tree:
        tree["node_endpoints"] = rewritten_nodes(tree["node_endpoints"])
    assert read == tree


def test_endpoints_of_other_apis_are_not_known():
    with pytest.raises(ProtocolError, match="API key 8"):
        rewrite_node_endpoints(8, bytes(30), 8, proxy_address)
