"""The rules of the checks, without servers."""

from __future__ import annotations

import socket
from contextlib import ExitStack, suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from proxy.check.broker_configs import compared
from proxy.check.broker_versions import NEWER_THAN_TRIED, of_ranges
from proxy.check.brokers import unreachable
from proxy.check.clock import check_clock
from proxy.check.files import of_expiry
from proxy.check.findings import Level
from proxy.check.journal import of_lacking
from proxy.check.limits import of_memory, of_open_files
from proxy.check.ports import check_ports, doubles, running_of
from proxy.check.racks import check_racks
from proxy.check.rights import of_cluster, of_topics, of_transactions
from proxy.check.storage import leaving_no_folders, of_clock
from proxy.check.store import of_latency
from proxy.check.store import of_memory as of_store_memory
from proxy.config import Settings
from proxy.coordinator.interface_fleet import ListenersRecord, ProxyRecord
from proxy.protocol.apis import API_TABLE
from proxy.wire.metadata import Broker, MetadataTopic

READ = 1 << 3
OFFERED = {key: (api.lowest_version, api.highest_version) for key, api in API_TABLE.items()}


def settings(**more: object) -> Settings:
    given = {
        "rack": "rack-a",
        "brokers": {"bootstrap": ["b:1"]},
        "redis": {"url": "redis://r:1"},
        "storage": {"url": "file:///w"},
    }
    return Settings(**{**given, **more})


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        ({}, None),
        ({55: None}, "ZooKeeper"),
        ({55: (0, 0)}, "older than Kafka 3.3"),
        ({1: (4, 99)}, NEWER_THAN_TRIED),
        ({9_999: (0, 0)}, NEWER_THAN_TRIED),
    ],
)
def test_versions_of_brokers(change: dict[int, tuple[int, int] | None], expected: str | None) -> None:
    verdict = of_ranges({key: one for key, one in {**OFFERED, **change}.items() if one is not None})
    assert verdict is None if expected is None else expected in str(verdict)


def test_apis_among_brokers_may_be_of_any_version() -> None:
    assert of_ranges({**OFFERED, 63: (0, 99)}) is None


def test_addresses_that_fail_alike_are_one_finding() -> None:
    found = unreachable(
        "w", {"h:1": "h:1: refused", "h:2": "h:2: refused", "h:3": "h:3: gone; wait"}, Level.ERROR, "repair"
    )
    assert [finding.line for finding in found] == ["w: h:1, h:2: refused; repair", "w: h:3: gone; wait"]


def test_settings_that_should_equal_the_brokers() -> None:
    configs = {"socket.request.max.bytes": "200000000", "fetch.max.bytes": "1024", "producer.id.expiration.ms": "5"}
    found = [finding.line for finding in compared(settings(), configs) if finding.level is Level.WARNING]
    assert found == [
        "limits.max_frame_bytes: is 104857600, but socket.request.max.bytes of the brokers is 200000000; "
        "set it to 200000000",
        "producer_id_expiration_ms: is 86400000, but producer.id.expiration.ms of the brokers is 5; set it to 5",
    ]


@pytest.mark.parametrize(
    ("ahead_ms", "level"),
    [(1_999, Level.OK), (-5_000, Level.WARNING), (5_000, Level.WARNING), (31_000, Level.ERROR), (-90_000, Level.ERROR)],
)
def test_clocks(ahead_ms: int, level: Level) -> None:
    (found,) = check_clock({"redis.url": ahead_ms}, orphan_age_ms=60_000)
    assert found.level is level


@pytest.mark.parametrize(
    ("modified_ms", "skew_ms"), [(10_000, 0), (10_500, 0), (9_000, 0), (8_500, -500), (12_000, 1_000)]
)
def test_the_clock_of_storage_by_an_object(modified_ms: int, skew_ms: int) -> None:
    """The object is written between 10,000 and 11,000; the storage returns whole seconds, rounded down."""
    assert of_clock(modified_ms, 10_000, 11_000) == skew_ms


@pytest.mark.parametrize(("left", "level"), [(None, Level.OK), (-1, Level.ERROR), (3, Level.WARNING), (30, Level.OK)])
def test_certificates(left: int | None, level: Level) -> None:
    now = datetime(2030, 1, 1, tzinfo=UTC)
    expires = None if left is None else now + timedelta(days=left)
    assert of_expiry("listeners.tls", "x.pem", expires, now, 14).level is level


def test_open_files_and_memory() -> None:
    assert of_open_files(settings(), 100_000).level is Level.OK
    assert of_open_files(settings(), 512).level is Level.WARNING
    set_to = settings(limits={"max_connections": 10_000})
    assert of_open_files(set_to, 100_000).level is Level.OK
    assert of_open_files(set_to, 4_096).level is Level.WARNING
    assert of_open_files(settings(), 4_096).level is Level.OK
    assert of_memory(settings(), 64 << 30).level is Level.OK
    assert of_memory(settings(workers=4), 1 << 30).level is Level.WARNING


def test_the_store_is_slow_or_full() -> None:
    assert of_latency("r", 0.3).level is Level.OK
    assert of_latency("r", 300).level is Level.WARNING
    assert [of_store_memory("r", used, 100).level for used in (10, 95)] == [Level.OK, Level.WARNING]
    assert of_store_memory("r", 10, 0).level is Level.OK


def test_rights_that_are_missing_on_the_journal_come_with_the_command_that_grants_them() -> None:
    sasl = {"mechanism": "SCRAM-SHA-512", "username": "diskless", "password": "x"}
    given = settings(brokers={"bootstrap": ["b:1"], "security_protocol": "SASL_PLAINTEXT", "sasl": sasl})
    two = of_lacking(given, ["Write", "Read"])
    assert (two.level, two.text) == (Level.ERROR, "on __diskless_journal the rights Write, Read are missing")
    assert "--allow-principal User:diskless --operation Write --operation Read --topic __diskless_journal" in two.remedy
    assert of_lacking(settings(), ["Delete"]).level is Level.WARNING


def topic(name: str, operations: int = READ) -> MetadataTopic:
    return MetadataTopic(0, name, None, 1, operations)


@pytest.mark.parametrize(
    ("visible", "hidden", "any_name", "level", "expected"),
    [
        ([topic("a")], [], True, Level.OK, "all topics"),
        ([topic("a")], [], False, Level.OK, "not all"),
        ([], [], True, Level.OK, "all topics"),
        ([], [], False, Level.ERROR, "right Describe is missing"),
        ([topic("a")], ["d1", "d2", "d3", "d4"], False, Level.ERROR, "d1, d2, d3 and 1 more"),
        ([topic("a"), topic("b", 0)], [], True, Level.WARNING, "may not read b"),
    ],
)
def test_rights_on_topics(
    visible: list[MetadataTopic], hidden: list[str], any_name: bool, level: Level, expected: str
) -> None:
    found = of_topics("brokers.sasl", visible, hidden, describes_any=any_name)
    assert found.level is level
    assert expected in found.text


def test_rights_on_the_cluster() -> None:
    assert of_cluster("brokers.sasl", 1 << 7).level is Level.OK
    assert of_cluster("brokers.sasl", 1 << 8).level is Level.WARNING


def test_the_right_to_add_partitions_to_transactions() -> None:
    assert [one.level for one in of_transactions("brokers.sasl", 1 << 9, 2)] == [Level.OK]
    (missing,) = of_transactions("brokers.sasl", 1 << 7, 2)
    assert (missing.level, "ClusterAction" in missing.text) == (Level.WARNING, True)
    assert of_transactions("brokers.sasl", 0, 1) == []


BROKERS = {node: Broker(node, "h", node, f"rack-{'ab'[node % 2]}") for node in (1, 2)}


def test_racks() -> None:
    assert {finding.level for finding in check_racks(settings(), BROKERS)} == {Level.OK}
    networks = settings(racks={"by_network": {"10.0.0.0/8": "rack-z"}})
    (found,) = [finding for finding in check_racks(networks, BROKERS) if finding.level is not Level.OK]
    assert found.line.startswith("racks.by_network 10.0.0.0/8: rack-z is not a rack of a live broker")
    rackless = {1: Broker(1, "h", 1, None)}
    assert "broker 1 has no rack" in check_racks(settings(), rackless)[0].text
    left = [finding.text for finding in check_racks(settings(), BROKERS, {"rack-a"}) if finding.level is Level.WARNING]
    assert left == ["no live proxy serves rack-b, so clients there cross racks"]


def record(proxy_id: str, port: int) -> ProxyRecord:
    listeners = ListenersRecord("default", "rack-a", "127.0.0.1", port, 19100, "1-9")
    return ProxyRecord(proxy_id, "rack-a", (listeners,), 1)


def test_a_name_that_is_in_use() -> None:
    ours = settings(proxy_id="p")
    assert running_of(ours, [record("p#1", 19092), record("q#1", 1)]) == [record("p#1", 19092)]
    assert not running_of(ours, [record("q#1", 19092)])
    assert not doubles(ours, [record("p#1", 19092), record("p#2", 19092)])
    assert doubles(ours, [record("p#1", 19092), record("p#2", 7)]) == {"p#2": "127.0.0.1:7"}


@pytest.mark.parametrize(
    ("node_ids", "same_admin", "version", "levels"),
    [
        ("1-2", True, "0.1.0", [Level.OK, Level.OK]),
        ("1", True, "0.1.0", [Level.ERROR, Level.OK]),
        ("1-2", False, "0.1.0", [Level.OK, Level.ERROR]),
        ("1-2", False, "", [Level.OK, Level.OK]),
    ],
    ids=["all are its own", "a node more", "another admin port", "a release that does not say"],
)
def test_only_ports_that_the_running_proxy_has_are_no_error(
    node_ids: str, same_admin: bool, version: str, levels: list[Level]
) -> None:
    with ExitStack() as opened:
        pair = _neighbours(opened)
        others = [opened.enter_context(socket.create_server(("127.0.0.1", 0))) for _ in range(2)]
        bootstrap, admin = (one.getsockname()[1] for one in others)
        listeners = {"bootstrap_port": bootstrap, "broker_port_start": pair - 1, "broker_node_ids": "1-2"}
        ours = settings(proxy_id="p", listeners=listeners, admin={"port": admin})
        record = ListenersRecord("default", "rack-a", ours.listeners.client_host, bootstrap, pair - 1, node_ids)
        address = f"elsewhere:{admin if same_admin else admin ^ 1}" if version else ""
        running = ProxyRecord("p#1", "rack-a", (record,), 1, version=version, admin=address)
        found, bound = check_ports(ours, [running])
        assert bound == []
        assert [finding.level for finding in found] == levels, found


def _neighbours(opened: ExitStack) -> int:
    """Listen on two ports in sequence; yield the first."""
    while True:
        first = opened.enter_context(socket.create_server(("127.0.0.1", 0))).getsockname()[1]
        with suppress(OSError, OverflowError):
            opened.enter_context(socket.create_server(("127.0.0.1", first + 1)))
            return int(first)


def test_no_folder_is_left(tmp_path: Path) -> None:
    kept = tmp_path / "there"
    kept.mkdir()
    new = settings(storage={"url": (kept / "a" / "b").as_uri()})
    with leaving_no_folders(new):
        (kept / "a" / "b" / "check").mkdir(parents=True)
    assert not list(kept.iterdir())
    with leaving_no_folders(new):
        (kept / "a" / "b").mkdir(parents=True)
        (kept / "a" / "b" / "object").write_text("of a proxy that started meanwhile")
    assert (kept / "a" / "b" / "object").exists()


def test_without_the_store_no_finding_says_to_end_the_process_on_the_port() -> None:
    """It may be the very proxy of these settings, which still serves classic topics."""
    with ExitStack() as opened:
        first = _neighbours(opened)
        listeners = {"bootstrap_port": first, "broker_port_start": first, "broker_node_ids": "1"}
        ours = settings(proxy_id="p", listeners=listeners, admin={"port": 0})
        (known, _), _ = check_ports(ours, ())
        (unknown, _), bound = check_ports(ours, None)
        assert bound == []
    assert (known.level, unknown.level) == (Level.ERROR, Level.WARNING)
    assert unknown.text == known.text
    assert unknown.remedy.startswith("none, if the running proxy p has the port, which is unknown while")
    assert unknown.remedy.endswith(known.remedy)
