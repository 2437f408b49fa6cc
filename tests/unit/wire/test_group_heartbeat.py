"""The rack in group heartbeats is read in every version that kio knows."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from kio.schema.index import api_key_map, schema_name_map

from proxy.protocol.apis import API_TABLE
from proxy.wire.group_heartbeat import heartbeat_rack
from tests.unit.wire.trees import encode, request_type, trees

_HEARTBEATS = [
    (key, request_type(key, version))
    for key in (68, 76, 88)
    for version in schema_name_map[api_key_map[key]]
    if version <= API_TABLE[key].highest_version
]


@pytest.mark.parametrize(("api_key", "entity"), _HEARTBEATS, ids=lambda each: getattr(each, "__name__", str(each)))
@settings(max_examples=15, deadline=None)
@given(data=st.data())
def test_the_rack_is_read(api_key, entity, data):
    tree = data.draw(trees(entity))
    assert heartbeat_rack(api_key, memoryview(encode(entity, tree))) == tree["rack_id"]
