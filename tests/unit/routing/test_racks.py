"""The rack of a client, and the choice that it keeps."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from proxy.brokers.cluster import ClusterView
from proxy.config import Settings
from proxy.routing.racks import LearnedRacks, Networks, Racks, alias_hint, client_key, hinted_rack
from proxy.wire.metadata import Broker
from tests.unit.sessions import session

RACKS = ("rack-a", "rack-a-north", "rack-b")


@pytest.mark.parametrize(
    ("client_id", "rack"),
    [
        (None, None),
        ("", None),
        ("app", None),
        ("diskless_rack_id=rack-a", "rack-a"),
        ("app,diskless_rack_id=rack-a", "rack-a"),
        ("app diskless_rack_id=rack-a rest", "rack-a"),
        ("app|diskless_rack_id=rack-a|source->target", "rack-a"),
        ("app,diskless_rack_id=", None),
        ("app,my_diskless_rack_id=rack-a", None),
        ("app,diskless_rack_id=rack-a,diskless_rack_id=rack-b", "rack-a"),
        # Kafka Streams, Connect, MirrorMaker 2.
        ("app,diskless_rack_id=rack-a-StreamThread-1-consumer", "rack-a"),
        ("app,diskless_rack_id=rack-a-north-StreamThread-1-producer", "rack-a-north"),
        ("connect,diskless_rack_id=rack-b-configs", "rack-b"),
        ("mm2,diskless_rack_id=rack-b|east->west|MirrorSourceConnector-0|source-consumer", "rack-b"),
        ("app,diskless_rack_id=rack-ab", "rack-ab"),
        ("app,diskless_rack_id=rack-c-1", "rack-c-1"),
    ],
)
def test_the_hint_of_a_client_id(client_id, rack):
    assert hinted_rack(client_id, RACKS) == rack


ALIASES = {"aliases": {"us-east-1a": "rack-a", "us-east-1b": "rack-b"}, "by_network": {"10.2.0.0/16": "us-east-1b"}}


def test_aliases_apply_to_every_source_of_a_rack():
    racks = racks_of(**ALIASES)
    assert racks.of(session(), "app,diskless_rack_id=us-east-1b") == "rack-b"
    assert racks.of(session(), "app,diskless_rack_id=us-east-1b-StreamThread-1") == "rack-b"
    assert racks.of(session(host="10.2.0.1"), "app") == "rack-b"
    assert racks.on_any_proxy(session(host="10.2.0.1"), "app") == "rack-b"
    consumer = session()
    racks.learn(consumer, "consumer", "us-east-1b")
    assert (racks.of(consumer, "consumer"), racks.source_of(consumer, "consumer")) == ("rack-b", "request")
    assert racks.named("us-east-1b") == racks.named("rack-b") == "rack-b"
    assert (racks.named(None), racks.named("")) == (None, "")
    assert racks.is_alias("us-east-1a")
    assert not racks.is_alias("rack-a")


@pytest.mark.parametrize(
    ("client_id", "rack"),
    [
        ("application-foo,ws_az=rack-a", "rack-a"),
        ("warpstream_az=rack-b,other=1", "rack-b"),
        ("automq_az=rack-a&producer-1", "rack-a"),
        ("automq_type=producer&automq_role=x&automq_client_id=y&automq_az=rack-b", "rack-b"),
        ("automq_az=rack-a-north-StreamThread-1", "rack-a-north"),
        ("ws_az=rack-b,diskless_rack_id=rack-a", "rack-a"),
        ("not_ws_az=rack-b", None),
        ("wsXaz=rack-b", None),
    ],
)
def test_the_hints_of_other_systems(client_id, rack):
    keys = ("ws_az", "warpstream_az", "automq_az", "ws.az")
    racks = racks_of(client_id_keys=keys)
    assert racks.of(connection(), client_id) == (rack or "rack-p")
    assert racks_of().of(connection(), client_id) == ("rack-a" if "diskless_rack_id" in client_id else "rack-p")


def test_an_alias_is_taken_literally():
    assert hinted_rack("wsXaz=rack-b", hints=[alias_hint("ws.az")]) is None


@settings(deadline=None)
@given(st.text(alphabet="ab-=,| &", max_size=12), st.lists(st.text(alphabet="ab-", min_size=1, max_size=4), max_size=4))
def test_a_hint_is_what_stands_there_or_the_longest_known_rack_that_a_suffix_follows(value, known):
    found = hinted_rack(f"app,diskless_rack_id={value}", known)
    said = value
    for end in "=,| ":
        said = said.partition(end)[0]
    if not said:
        # Another hint may follow an empty one only if it has the key again.
        assert found is None
    elif said in known or not any(said.startswith(f"{rack}-") for rack in known):
        assert found == said
    else:
        assert found in known
        assert said.startswith(f"{found}-")
        assert not any(said.startswith(f"{rack}-") and len(rack) > len(found) for rack in known)


@pytest.mark.parametrize(
    ("host", "rack"),
    [
        ("10.1.2.3", "wide"),
        ("10.1.7.3", "narrow"),
        ("10.1.7.9", "one"),
        ("::ffff:10.1.7.3", "narrow"),
        ("10.2.0.1", None),
        ("2001:db8::5", "six"),
        ("fe80::1%eth0", None),
        ("", None),
        ("localhost", None),
    ],
)
def test_the_longest_network_decides(host, rack):
    networks = {"10.1.0.0/16": "wide", "10.1.7.0/24": "narrow", "10.1.7.9/32": "one", "2001:db8::/32": "six"}
    assert Networks(networks).rack_of(host) == rack
    assert Networks(dict(reversed(networks.items()))).rack_of(host) == rack
    assert Networks({}).rack_of(host) is None


class Clock:
    def __init__(self):
        self.now_s = 1000.0

    def __call__(self):
        return self.now_s


def test_learned_racks_are_bounded_and_expire():
    clock = Clock()
    learned = LearnedRacks(2, 10.0, clock)
    assert learned.learn("h", "one", "rack-a")
    assert learned.learn("h", "two", "rack-a")
    assert not learned.learn("h", "one", "rack-a"), "no news"
    assert learned.learn("h", "three", "rack-b")
    assert (learned.get("h", "one"), learned.get("h", "two"), learned.get("h", "three")) == ("rack-a", None, "rack-b")
    assert learned.get("other", "one") is None
    clock.now_s += 9
    learned.learn("h", "one", "rack-b")
    clock.now_s += 2
    assert (learned.get("h", "one"), learned.get("h", "three")) == ("rack-b", None)


@settings(deadline=None)
@given(st.lists(st.tuples(st.sampled_from(["h", "i"]), st.text(max_size=3), st.sampled_from(RACKS)), max_size=40))
def test_the_number_of_cached_clients_is_limited(said):
    learned, last = LearnedRacks(3, 10.0, Clock()), {}
    for host, client_id, rack in said:
        learned.learn(host, client_id, rack)
        if client_id:
            last.pop((host, client_id), None)
            last[host, client_id] = rack
        assert len(learned) <= 3
    for host, client_id in [*last][-3:]:
        assert learned.get(host, client_id) == last[host, client_id]


@pytest.mark.parametrize("client_id", [None, "", "x" * 257])
def test_clients_without_a_name_of_their_own_are_not_remembered(client_id):
    learned = LearnedRacks(10, 10.0, Clock())
    assert not learned.learn("h", client_id, "rack-a")
    assert len(learned) == 0


def test_nothing_is_learnt_if_the_cache_is_off():
    racks = racks_of(max_learned_clients=0)
    client = connection()
    racks.learn(client, "app", "rack-a")
    assert racks.of(client, "app") == "rack-p"


def racks_of(fleet=("rack-a", "rack-a-north", "rack-b", "rack-p"), clock=None, brokers=(), **settings):
    whole = Settings(
        rack="rack-p",
        brokers={"bootstrap": ["127.0.0.1:9092"]},
        redis={"url": "redis://127.0.0.1:6379/0"},
        storage={"url": "file:///nowhere"},
        racks=settings,
    )
    view = ClusterView({node: Broker(node, "h", 1, rack) for node, rack in enumerate(brokers)})
    parts = SimpleNamespace(racks=fleet, view=view)
    racks = Racks(whole, fleet=parts, cluster=parts, now=clock or Clock())
    racks.parts = parts
    return racks


def connection(host="10.9.9.9", rack=""):
    return session(host, rack=rack)


def test_the_first_that_answers():
    """Hint, rack of the connection, rack from the client's other connections, network, port, proxy."""
    racks = racks_of(by_network={"10.1.0.0/16": "rack-b"})
    hinted = "app,diskless_rack_id=rack-a"
    assert racks.of(connection(), "app") == "rack-p"
    assert racks.of(connection(rack="rack-a"), "app") == "rack-a"
    assert racks.of(connection("10.1.0.1", "rack-a"), "app") == "rack-b"
    elsewhere, here = connection("10.1.0.1"), connection("10.1.0.1")
    racks.learn(elsewhere, "app", "rack-a-north")
    assert racks.of(here, "app") == "rack-a-north"
    assert racks.of(here, "other") == "rack-b"
    assert racks.of(connection("10.1.0.2"), "app") == "rack-b"
    racks.learn(here, "app", "rack-a")
    racks.learn(connection("10.1.0.1"), "app", "rack-p")
    assert racks.of(here, "app") == "rack-a", "what the connection said itself comes first"
    assert racks.of(connection("10.1.0.1"), "app") == "rack-p"
    racks.learn(here, hinted, "rack-b")
    assert racks.of(here, hinted) == "rack-a"


def test_the_source_of_the_rack_is_reported():
    racks = racks_of(by_network={"10.1.0.0/16": "rack-b"})
    elsewhere, here = connection("10.1.0.1"), connection("10.1.0.1", "rack-b")
    assert racks.source_of(connection(), "app") == "proxy"
    assert racks.source_of(connection(rack="rack-a"), "app") == "listener"
    assert racks.source_of(here, "app") == "network"
    racks.learn(elsewhere, "app", "rack-a-north")
    assert racks.source_of(here, "app") == "another connection"
    assert racks.source_of(elsewhere, "app") == "request"
    assert racks.source_of(elsewhere, "app,diskless_rack_id=rack-a") == "client ID"


def test_a_rack_that_nobody_knows_teaches_nothing():
    racks = racks_of(brokers=("rack-brokers-only", None))
    client = connection()
    racks.learn(client, "app", "rack-made-up")
    racks.learn(client, "app", "")
    racks.learn(client, "app", None)
    assert racks.of(client, "app") == "rack-p"
    racks.learn(client, "app", "rack-brokers-only")
    assert racks.of(client, "app") == "rack-brokers-only"


def test_a_client_that_moves_takes_its_rack_along():
    racks, client = racks_of(), connection()
    for rack in ("rack-a", "rack-b", "rack-a"):
        racks.learn(client, "app", rack)
        assert racks.of(client, "app") == racks.of(connection(), "app") == rack


def test_a_learnt_rack_is_renewed_by_each_request_and_then_expires():
    clock = Clock()
    racks = racks_of(clock=clock, learned_expiry_ms=10_000)
    client = connection()
    for _ in range(20):
        racks.learn(client, "app", "rack-a")
        clock.now_s += 1
        racks.parts.racks = (*racks.parts.racks,)  # as a heartbeat does
        assert racks.of(connection(), "app") == "rack-a"
    clock.now_s += 10
    racks.parts.racks = (*racks.parts.racks,)
    assert racks.of(connection(), "app") == "rack-p"


def test_known_racks_change_and_answers_with_them():
    racks, client = racks_of(fleet=("rack-p",)), connection()
    client_id = "app,diskless_rack_id=rack-z-StreamThread-1"
    assert racks.of(client, client_id) == "rack-z-StreamThread-1"
    assert racks.counted(client, client_id) == "unknown"
    racks.parts.racks = ("rack-p", "rack-z")
    assert racks.of(client, client_id) == racks.counted(client, client_id) == "rack-z"
    racks.parts.racks = ("rack-p",)
    racks.parts.view = ClusterView({1: Broker(1, "h", 1, "rack-z-StreamThread-1")})
    assert racks.counted(client, client_id) == "rack-z-StreamThread-1"


def test_every_proxy_makes_the_same_choice():
    racks = racks_of(by_network={"10.1.0.0/16": "rack-b"})
    learned = connection(rack="rack-a")
    racks.learn(learned, "app", "rack-a-north")
    assert racks.on_any_proxy(learned, "app") is None
    assert racks.on_any_proxy(learned, "app,diskless_rack_id=rack-a") == "rack-a"
    assert racks.on_any_proxy(connection("10.1.1.1"), "app") == "rack-b"


def test_a_long_client_id_is_a_short_key():
    assert client_key("h", "app") == "h\0app"
    assert len(client_key("h", "x" * 30_000)) < 100
    assert client_key("h", "x" * 30_000) != client_key("h", "x" * 30_001)
