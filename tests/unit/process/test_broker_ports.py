"""Brokers that join while the proxy runs: each gets a port, or the log says why it has none."""

from __future__ import annotations

import socket
import sys
from collections.abc import Iterator
from contextlib import ExitStack, closing

import pytest
import structlog
from hypothesis import given
from hypothesis import strategies as st

from proxy.check.findings import Level
from proxy.check.ports import check_joined
from proxy.config import Listeners, Settings, format_node_ids, parse_node_ids
from proxy.coordinator.interface_fleet import ListenersRecord, ProxyRecord
from proxy.process.broker_ports import BrokerPorts
from proxy.process.ports import HeldPorts, StartError, bind_late
from tests.unit.process.test_ports import settings_of

linux = pytest.mark.skipif(sys.platform != "linux", reason="only Linux lets workers share ports")
OUTSIDE = 2
"""A node ID that `settings_of` does not list."""


class Listening:
    """A server that opens ports, unless they are in use."""

    def __init__(self, settings: Settings) -> None:
        self.opened: list[tuple[str, int]] = []
        self.taken: dict[int, str] = {}
        self.changes = 0
        self.ports = BrokerPorts(settings)

    def listen(self, listeners: Listeners, node_id: int) -> None:
        if node_id in self.taken:
            raise StartError(self.taken[node_id])
        self.opened.append((listeners.name, node_id))

    def changed(self) -> None:
        self.changes += 1

    def begin(self) -> BrokerPorts:
        self.ports.begin(self.listen, self.changed)
        return self.ports


def test_a_broker_that_joins_gets_a_port_of_all_listeners_at_once() -> None:
    settings = settings_of(broker_node_ids="1-3")
    more = Listeners(name="more", bootstrap_port=1025, broker_port_start=1030, broker_node_ids="1-4")
    settings = settings.model_copy(update={"additional_listeners": (more,)})
    server = Listening(settings)
    server.ports.take_brokers({1, 2})
    ports = server.begin()
    assert (server.opened, ports.remark) == ([], None)
    ports.take_brokers({1, 2, 4, 12})
    assert server.opened == [("default", 4), ("default", 12), ("more", 12)]
    assert server.changes == 2
    assert [ports.node_ids(one) for one in settings.all_listeners] == ["1-4,12", "1-4,12"]
    assert (ports.without_port, ports.unlisted) == ({}, (4, 12))
    ports.take_brokers({1, 2, 4, 12})
    assert len(server.opened) == 3


def test_brokers_that_joined_before_the_proxy_serves_get_theirs_when_it_does() -> None:
    server = Listening(settings_of())
    server.ports.take_brokers({1, OUTSIDE})
    assert (server.opened, server.ports.without_port) == ([], {})
    server.begin()
    assert server.opened == [("default", OUTSIDE)]


def test_a_port_that_cannot_be_bound_is_reported_and_retried() -> None:
    settings = settings_of()
    server = Listening(settings)
    server.taken = {OUTSIDE: "can't listen on 127.0.0.1:1: Address already in use; end the process"}
    with structlog.testing.capture_logs() as logged:
        ports = server.begin()
        ports.take_brokers({1, OUTSIDE})
        ports.take_brokers({1, OUTSIDE})
    assert ports.without_port == server.taken
    assert ports.unlisted == ()
    assert ports.node_ids(settings.listeners) == "1"
    assert (
        ports.remark
        == f"brokers: clients do not get the address of broker {OUTSIDE} ({OUTSIDE}: {server.taken[OUTSIDE]})"
    )
    (line,) = [line for line in logged if line["event"] == "broker_without_port"]
    assert (line["log_level"], line["broker"], line["remedy"]) == ("error", OUTSIDE, "end the process")
    server.taken = {}
    ports.take_brokers({1, OUTSIDE})
    assert (ports.without_port, ports.unlisted) == ({}, (OUTSIDE,))
    assert ports.remark is not None
    assert ports.remark.startswith(f"brokers: broker {OUTSIDE} joined outside of listeners.broker_node_ids; open ")


def test_a_broker_that_has_left_is_ignored() -> None:
    server = Listening(settings_of())
    server.taken = {OUTSIDE: "no"}
    ports = server.begin()
    ports.take_brokers({1, OUTSIDE, 7})
    ports.take_brokers({1})
    assert (ports.without_port, ports.unlisted, ports.remark) == ({}, (), None)


def test_a_worker_opens_a_port_when_its_parent_holds_it() -> None:
    server, asked = Listening(settings_of()), list[int]()
    held: set[int] = set()

    def hold(node_id: int) -> bool:
        asked.append(node_id)
        return node_id in held

    server.ports.begin(server.listen, server.changed, hold)
    server.ports.take_brokers({OUTSIDE})
    assert (server.opened, server.ports.without_port) == ([], {OUTSIDE: "its port is being bound"})
    server.ports.failed(OUTSIDE, "another proxy has it; move one")
    assert server.ports.without_port == {OUTSIDE: "another proxy has it; move one"}
    held.add(OUTSIDE)
    server.ports.open_missing()
    assert (server.opened, server.ports.without_port) == ([("default", OUTSIDE)], {})
    assert asked == [OUTSIDE, OUTSIDE]


def test_nothing_is_bound_while_the_proxy_drains() -> None:
    server = Listening(settings_of())
    server.begin().end()
    server.ports.take_brokers({OUTSIDE})
    assert (server.opened, server.ports.remark) == ([], None)


def test_a_node_id_that_no_port_can_be_for_is_named_with_its_remedy() -> None:
    settings = settings_of()
    with pytest.raises(StartError, match=r"\+ 70000 is \d+, above port 65535; give the broker a lower node.id"):
        bind_late(settings, settings.listeners, 70_000)


@pytest.fixture
def taken() -> Iterator[tuple[Settings, int]]:
    """Return settings, and the ID of a broker that they leave out, while somebody listens on its port."""
    with ExitStack() as opened:
        other = opened.enter_context(socket.create_server(("127.0.0.1", 0)))
        settings = settings_of()
        start = settings.listeners.broker_port_start
        port = other.getsockname()[1]
        low = min(start, port - OUTSIDE)
        yield settings_of(broker_port_start=low, broker_node_ids=str(start + 1 - low)), port - low


def test_a_port_that_another_program_has_is_named(taken: tuple[Settings, int]) -> None:
    settings, node_id = taken
    with pytest.raises(StartError, match=rf"\(listeners.broker_port_start \+ {node_id}\): Address already in use; end"):
        bind_late(settings, settings.listeners, node_id)


@linux
def test_two_parents_never_hold_the_port_of_a_broker_that_joined() -> None:
    """Workers of two proxies would share it unnoticed, and a client of one broker would reach another broker."""
    settings = settings_of()
    held = HeldPorts(settings)
    other = HeldPorts(settings_of(broker_port_start=settings.listeners.broker_port_start - 1, broker_node_ids="4"))
    try:
        held.hold(OUTSIDE)
        held.hold(OUTSIDE)
        with closing(bind_late(settings, settings.listeners, OUTSIDE, shared=True).socket) as worker:
            worker.listen()
            with pytest.raises(StartError, match="Address already in use"):
                other.hold(OUTSIDE + 1)
    finally:
        held.release()
        other.release()


def test_check_says_what_becomes_of_brokers_that_are_left_out(taken: tuple[Settings, int]) -> None:
    settings, node_id = taken
    (listed,) = settings.listeners.node_ids
    assert [one.level for one in check_joined(settings, {listed}, ())] == [Level.OK]
    (dark,) = check_joined(settings, {listed, node_id}, ())
    assert (dark.level, dark.remedy) == (Level.ERROR, "end the process that holds the port, or choose another one")
    assert dark.text.endswith(f"Address already in use, so clients do not get the address of broker {node_id}")
    here = settings.listeners
    record = ListenersRecord(
        "default", "rack-a", here.client_host, here.bootstrap_port, here.broker_port_start, str(node_id)
    )
    running = ProxyRecord(f"{settings.identity}#1", "rack-a", (record,), 1)
    (unlisted,) = check_joined(settings, {listed, node_id}, [running])
    assert (unlisted.level, unlisted.where) == (Level.WARNING, "listeners.broker_node_ids")
    assert f", without broker {node_id}: " in unlisted.text


def test_listeners_that_select_brokers_by_name_need_no_port_for_one_that_joins() -> None:
    settings = settings_of(broker_node_ids="1-3")
    named = Listeners.model_validate(
        {
            "name": "named",
            "bootstrap_port": 1025,
            "advertised_host": "bootstrap.example.com",
            "sni_broker_host": "broker-{node_id}.example.com",
            "tls": {"certificate_file": "listener.pem"},
        }
    )
    only = settings.model_copy(update={"listeners": named})
    server = Listening(only)
    ports = server.begin()
    ports.take_brokers({1, 2, 4, 70_000})
    assert (server.opened, ports.without_port, ports.unlisted, ports.remark) == ([], {}, (), None)
    (found,) = check_joined(only, {1, 70_000}, ())
    assert (found.level, found.where) == (Level.OK, "listeners.sni_broker_host")
    both = Listening(settings.model_copy(update={"additional_listeners": (named,)}))
    both.begin().take_brokers({1, 12})
    assert both.opened == [("default", 12)]


@given(st.sets(st.integers(0, 200), min_size=1))
def test_node_ids_are_written_as_they_are_read(nodes: set[int]) -> None:
    assert parse_node_ids(format_node_ids(nodes)) == tuple(sorted(nodes))


def test_node_ids_are_written_short() -> None:
    assert format_node_ids([12, 0, 1, 2, 7]) == "0-2,7,12"


def test_broker_0_has_a_port_by_default() -> None:
    assert Listeners().ports[0] == Listeners().broker_port_start
