"""A process's answers about its connections, topics and fleet."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest

from proxy.admin.api import connections, fleet, segments, topics
from proxy.admin.api.question import ProcessAnswer, Question, Resource, shown
from proxy.coordinator.interface import CoordinatorUnavailable
from proxy.coordinator.interface_fleet import ListenersRecord, ProxyRecord, ProxySums, SeenProxy
from proxy.coordinator.interface_registry import DisklessTopic
from proxy.diskless.wal.recent import SEGMENTS_REMEMBERED, RecentSegments
from proxy.diskless.wal.segment import BuiltSegment
from proxy.telemetry.stats import Stats
from tests.unit.sessions import session


class Client:
    """The fields of a connection that are reported."""

    opened_ms, requests = 5, 7

    def __init__(self, number: int, *, crossed: int = 0, client_id: str | None = "app") -> None:
        self.address = f"10.0.0.1:{number}"
        self.session = session(node_id=3)
        self.session.software = "librdkafka 2.12"
        self.session.client_id = client_id
        self.session.crossed_bytes = crossed
        self.received_bytes, self.sent_bytes = number, 0


class OneRack:
    """The parts of `Racks` that are used."""

    def of(self, *_: Any) -> str:
        return "rack-a"

    def source_of(self, *_: Any) -> str:
        return "client ID"


async def answer_for(clients: list[Any], **asked: Any) -> dict[str, Any]:
    question, racks = Question(Resource.CONNECTIONS, **asked), cast(Any, OneRack())
    return connections.document([ProcessAnswer(None, await connections.collect(clients, racks, question))], question)


async def test_connections_that_cross_come_first_then_those_that_moved_most() -> None:
    clients = [Client(1), Client(2, crossed=5), Client(3), Client(4, crossed=9)]
    answer = await answer_for(clients, limit=3)
    assert answer["total"] == 4
    assert [row["client"] for row in answer["connections"]] == ["10.0.0.1:4", "10.0.0.1:2", "10.0.0.1:3"]
    row = answer["connections"][0]
    assert (row["rack"], row["rack_from"], row["listener"], row["principal"]) == (
        *("rack-a", "client ID", "default broker 3", "ANONYMOUS"),
    )


async def test_all_connections_are_counted_and_few_are_returned() -> None:
    clients = [Client(number, crossed=number % 7) for number in range(3_000)]
    answer = await answer_for(clients, limit=10)
    expected = sorted(clients, key=lambda one: (one.session.crossed_bytes, one.received_bytes), reverse=True)[:10]
    assert [row["client"] for row in answer["connections"]] == [one.address for one in expected]
    assert answer["total"] == 3_000


async def test_names_of_clients_are_searched_and_escaped() -> None:
    clients = [Client(1, client_id="ORDERS-\x00\u202e" + "x" * 40_000), Client(2, client_id=None)]
    answer = await answer_for(clients, contains="orders-")
    assert answer["total"] == 1
    client_id = answer["connections"][0]["client_id"]
    assert client_id.startswith("ORDERS-\\x00\\u202exx")
    assert len(client_id) < 300
    assert (await answer_for(clients, contains="LIBRDKAFKA"))["total"] == 2


def test_shown_text_is_printable() -> None:
    assert shown(None) is None
    assert shown("rack-a für €") == "rack-a für €"
    assert shown("a\nb\r\x1b[0m\x7f\udcff") == "a\\nb\\r\\x1b[0m\\x7f\\udcff"
    assert shown("abcdef", 4) == "abc…"


async def test_topics_come_from_the_registry_and_from_the_counters() -> None:
    stats = Stats()
    stats.count_records("diskless", "produce", "rack-a", "rack-a", "events", 10)
    stats.count_records("classic", "fetch", "rack-b", "rack-c", "orders", 100)
    stats.count_records("classic", "produce", "rack-a", "rack-a", "orders", 5)
    stats.count_records("classic", "produce", "rack-a", "rack-a", b"i" * 16, 3)
    entries = [
        DisklessTopic(name, bytes([number]) * 16, 4, {}) for number, name in enumerate(("events", "quiet"), start=1)
    ]
    known = SimpleNamespace(topic_id=b"o" * 16, partitions={0: None, 1: None})
    diskless: Any = SimpleNamespace(all=lambda: entries)
    replicas: Any = SimpleNamespace(peek=lambda name: known if name == "orders" else None)
    question = Question(Resource.TOPICS)
    found = await topics.collect(diskless, stats, replicas, "rack-a", question)
    answer = topics.document([ProcessAnswer(None, found)], question)
    rows = {row["name"]: row for row in answer["topics"]}
    assert list(rows) == ["orders", "events", "(unknown)", "quiet"]
    # From the client's rack to the proxy's, and on to the leader's.
    assert (rows["orders"]["crossed_bytes"], rows["orders"]["fetched_bytes"]) == (200, 100)
    assert (rows["orders"]["partitions"], rows["orders"]["diskless"]) == (2, False)
    assert (rows["events"]["partitions"], rows["events"]["diskless"], rows["events"]["produced_bytes"]) == (4, True, 10)
    assert rows["quiet"]["produced_bytes"] == 0


LISTENERS = ListenersRecord("", "rack-a", "127.0.0.1", 19092, 19100, "1")


@pytest.mark.parametrize("reachable", [True, False])
async def test_the_fleet_is_returned_while_the_coordinator_is_away(reachable: bool) -> None:
    own, old = (ProxyRecord(f"rack-a/p:1#{name}", "rack-a", (LISTENERS,), 3) for name in ("own", "old"))

    async def look() -> tuple[SeenProxy, ...]:
        if not reachable:
            raise CoordinatorUnavailable("gone")
        return tuple(SeenProxy(record, 4_000) for record in (own, old))

    records = {one.proxy_id: one for one in (own, old)}
    seen: Any = SimpleNamespace(identity=own.proxy_id, records=records, look=look)
    question = Question(Resource.FLEET)
    answer = fleet.document([ProcessAnswer(1, await fleet.collect(seen, 10_000, []))], question)
    assert [(row["this"], row["version"]) for row in answer["proxies"]] == [(False, None), (True, None)]
    assert {row["age_ms"] for row in answer["proxies"]} == ({6_000} if reachable else {None})


@pytest.mark.parametrize(
    ("processes", "names"),
    [(["p:1#a"], ["p:1"]), (["p:1#a", "p:1#b", "q:1#c"], ["p:1#a", "p:1#b", "q:1"]), (["odd#name#a"], ["odd#name"])],
)
def test_a_proxy_of_one_process_is_named_as_in_its_logs(processes: list[str], names: list[str]) -> None:
    records = tuple((ProxyRecord(name, "rack-a", (LISTENERS,), 3), None) for name in processes)
    answer = fleet.document([ProcessAnswer(1, fleet.FleetView("", records, ()))], Question(Resource.FLEET))
    assert [row["proxy"] for row in answer["proxies"]] == names


def test_a_process_without_clients_is_counted_and_not_listed() -> None:
    records = tuple(
        (ProxyRecord(f"p:1#{name}", "rack-a", its, 3), None) for name, its in {"a": (LISTENERS,), "s": ()}.items()
    )
    answer = fleet.document([ProcessAnswer(1, fleet.FleetView("", records, ()))], Question(Resource.FLEET))
    assert [row["proxy"] for row in answer["proxies"]] == ["p:1"]
    assert answer["sums"]["processes"] == 2


def test_the_sums_are_those_of_all_processes_that_report() -> None:
    sums = [ProxySums(10, 20, 30, 1_000_000, 2_000_000, 500_000, 7), ProxySums(1, 2, 3, 500_000, 0, 0, 1), None]
    names = ("p:1#a", "p:1#b", "q:1#c")
    records = tuple(
        (ProxyRecord(name, "rack-a", (LISTENERS,), 3, sums=one), None) for name, one in zip(names, sums, strict=True)
    )
    answer = fleet.document([ProcessAnswer(1, fleet.FleetView("", records, ()))], Question(Resource.FLEET, limit=1))
    assert answer["sums"] == {
        "proxies": 2,
        "serving": 2,
        "racks": 1,
        "processes": 3,
        "reporting": 2,
        "produce_bytes_per_second": 11,
        "fetch_bytes_per_second": 22,
        "cross_rack_bytes_per_second": 33,
        "cross_rack_usd_per_hour": 1.5,
        "saved_usd_per_hour": 2.0,
        "storage_usd_per_hour": 0.5,
        "connections": 8,
    }
    silent = fleet.document([ProcessAnswer(1, fleet.FleetView("", records[2:], ()))], Question(Resource.FLEET))
    assert silent["sums"]["saved_usd_per_hour"] is None
    assert silent["proxies"][0]["sums"]["connections"] is None


def test_the_last_segments_are_kept() -> None:
    recent = RecentSegments()
    for number in range(SEGMENTS_REMEMBERED + 5):
        recent.uploaded(BuiltSegment(number.to_bytes(16, "big"), bytearray(number), ()), 0.25)
    recent.committed((0).to_bytes(16, "big"), 1.0)
    recent.committed((SEGMENTS_REMEMBERED + 4).to_bytes(16, "big"), 0.5)
    answer = segments.document([ProcessAnswer(None, recent.newest(1_000))], Question(Resource.SEGMENTS, limit=2))
    first, second = answer["segments"]
    assert (first["bytes"], first["upload_ms"], first["commit_ms"]) == (SEGMENTS_REMEMBERED + 4, 250, 500)
    assert (second["bytes"], second["commit_ms"]) == (SEGMENTS_REMEMBERED + 3, None)
    assert len(recent.newest(1_000)) == SEGMENTS_REMEMBERED
