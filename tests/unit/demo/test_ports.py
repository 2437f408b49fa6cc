import socket
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proxy.demo.errors import StackError
from proxy.demo.ports import (
    FIRST_BASE,
    HOST,
    LAST_BASE,
    MAX_BROKERS,
    MAX_PROXIES,
    RESERVATION,
    STEP,
    STORE_PORTS,
    Ports,
    ReservedPorts,
    outgoing_ports,
    warning_of,
)
from proxy.demo.stack import Stack, StackOptions


@given(base=st.integers(1024, 60_000), brokers=st.integers(1, MAX_BROKERS), proxies=st.integers(1, MAX_PROXIES))
def test_no_port_is_used_twice_and_all_are_in_the_range(base: int, brokers: int, proxies: int) -> None:
    ports = Ports(base, proxies)
    used = [ports.controller, ports.redis, base + RESERVATION, *ports.s3, *map(ports.store, range(STORE_PORTS))]
    used += [ports.broker(node) for node in range(1, brokers + 1)]
    used += [ports.broker_jmx(node) for node in range(1, min(brokers, proxies) + 1)]
    for proxy in range(proxies):
        used += [ports.bootstrap(proxy), ports.admin(proxy)]
        used += [ports.broker_port_start(proxy) + node for node in range(1, MAX_BROKERS + 1)]
    assert len(set(used)) == len(used)
    assert base <= min(used)
    assert max(used) < ports.end


def test_the_ranges_that_are_tried_do_not_overlap() -> None:
    assert Ports(0, MAX_PROXIES).end <= STEP


def test_two_stacks_get_ranges_that_do_not_overlap() -> None:
    first, second = ReservedPorts(None, 3), ReservedPorts(None, 3)
    try:
        one, other = first.ports, second.ports
        assert one.end <= other.base or other.end <= one.base
    finally:
        first.release()
        second.release()


def test_a_reserved_range_can_be_taken_again_after_its_release() -> None:
    first = ReservedPorts(None, 3)
    base = first.ports.base
    with pytest.raises(StackError, match="is taken"):
        ReservedPorts(base, 3)
    first.release()
    again = ReservedPorts(base, 3)
    again.release()
    assert FIRST_BASE <= again.ports.base < LAST_BASE


def test_a_taken_port_is_named_with_its_use_and_the_remedy() -> None:
    free = ReservedPorts(None, 3)
    free.release()
    with socket.socket() as other_program:
        other_program.bind((HOST, free.ports.broker(2)))
        other_program.listen()
        stack = Stack(StackOptions(port_base=free.ports.base))
        with pytest.raises(StackError, match=rf"port {free.ports.broker(2)} .*broker 2 .*is taken.*choose another"):
            stack.start()
    assert not stack.processes
    assert not stack.directory.exists()


def test_ports_that_do_not_exist_are_rejected() -> None:
    with pytest.raises(StackError, match="choose another port base"):
        ReservedPorts(65_500, 3)


@pytest.mark.parametrize("base", [None, FIRST_BASE, LAST_BASE, 32_497, 61_000])
def test_ports_that_no_outgoing_connection_gets_need_no_warning(base: int | None) -> None:
    assert warning_of(base, (32_768, 60_999)) is None


@pytest.mark.parametrize("base", [32_499, 40_000, 60_999])
def test_ports_that_an_outgoing_connection_may_take_are_warned_of(base: int) -> None:
    warning = warning_of(base, (32_768, 60_999))
    assert warning is not None
    assert "(32768 to 60999)" in warning
    assert "choose a port base below 32498" in warning


def test_the_range_of_outgoing_ports_is_the_systems(tmp_path: Path) -> None:
    (tmp_path / "range").write_text("10000\t20000\n")
    assert outgoing_ports(tmp_path / "range") == (10_000, 20_000)
    assert outgoing_ports(tmp_path / "none") == (32_768, 60_999)
