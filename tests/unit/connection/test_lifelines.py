"""Lifelines: proxies of other racks as further nodes of Metadata, whose IDs no broker and no client's own node has."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from proxy.config import Listeners
from proxy.wire.metadata import Broker, metadata_brokers, rewrite_metadata_response
from tests.unit.routing.test_fleet import fleet_of
from tests.unit.wire.test_metadata import proxy_address
from tests.unit.wire.trees import decode_joined, encode, response_type, trees


async def test_lifelines_are_the_bootstrap_ports_of_other_racks_proxies():
    fleets = await fleet_of("rack-a", "rack-a", "rack-b", "rack-c")
    for fleet in fleets:
        found = fleet.lifelines("rack-a", "client", Listeners(), ())
        assert {(each.host, each.port, each.rack) for each in found} == {
            ("127.0.0.1", 19292, "rack-b"),
            ("127.0.0.1", 19392, "rack-c"),
        }
    everywhere = [tuple(fleet.lifelines("rack-a", "client", Listeners(), ())) for fleet in fleets]
    assert len(set(everywhere)) == 1, "every proxy gives a client the same answer, in the same order"
    assert fleets[0].lifelines("rack-a", "client", Listeners(name="tls"), ()) == []


async def test_clients_are_spread_over_them():
    (fleet, *_) = await fleet_of("rack-a", "rack-b", "rack-c")
    first = {fleet.lifelines("rack-a", f"client-{number}", Listeners(), ())[0].rack for number in range(30)}
    assert first == {"rack-b", "rack-c"}


async def test_ids_differ_from_brokers_and_from_what_clients_make_of_brokers():
    (fleet, *_) = await fleet_of(*(f"rack-{number}" for number in range(12)))
    found = fleet.lifelines("rack-0", "client", Listeners(), ())
    ids = [each.node_id for each in found]
    assert len(set(ids)) == 11
    # A broker in clients' answers has its own port, so its ID is below 65536.
    assert all(65_536 <= node_id < 2**31 - 65_536 for node_id in ids)
    taken = fleet.lifelines("rack-0", "client", Listeners(), ids[:3])
    assert not {each.node_id for each in taken} & set(ids[:3])


@settings(deadline=None)
@given(data=st.data(), version=st.integers(0, 13))
def test_metadata_lists_lifelines_after_the_brokers(data, version):
    entity = response_type(3, version)
    tree = data.draw(trees(entity))
    lifelines = [Broker(1_000_000_007, "far", 4242, "rack-z"), Broker(1_000_000_009, "farther", 4243, "rack-y")]
    buffers = rewrite_metadata_response(
        encode(entity, tree), version, address_of=proxy_address, is_diskless=None, leaders=None, lifelines=lifelines
    )
    body = b"".join(bytes(buffer) for buffer in buffers)
    found = metadata_brokers(body, version)[-2:]
    assert found == [each if version else each._replace(rack=None) for each in lifelines]
    read = decode_joined(entity, buffers)
    assert len(read["brokers"]) == sum(proxy_address(each["node_id"]) is not None for each in tree["brokers"]) + 2
    assert read | {"brokers": []} == tree | {"brokers": []}
