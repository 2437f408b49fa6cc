"""Restart or kill a rack's two proxies one after the other: applications with unmodified clients notice nothing.

Java, librdkafka, aiokafka and franz-go, with idempotent producers, on classic and diskless topics.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import pytest

from proxy.demo.load import Load
from proxy.demo.stack import Stack, StackOptions
from tests.support.applications import Applications
from tests.support.load import OPTIONS, assert_right, wait_for_more
from tests.support.ports import free_port
from tests.support.readiness import wait_not_ready
from tests.support.topics import KINDS

RACKS = ("rack-a", "rack-b")
PROXIES = ("rack-a", "rack-a-2")
LOAD = replace(OPTIONS, replication_factor=len(RACKS))

pytestmark = [pytest.mark.stack, pytest.mark.timeout(300)]


@pytest.fixture(scope="module")
def two_per_rack() -> Iterator[Stack]:
    with Stack(StackOptions(racks=RACKS, proxies_per_rack=2)) as stack:
        yield stack


def drain(stack: Stack, proxy: str) -> None:
    assert stack.terminate_proxy(proxy) == 0
    tail = stack.log_tail(f"proxy-{proxy}")
    assert "drained" in tail, tail


def test_proxies_are_drained_and_then_killed_one_after_the_other(two_per_rack: Stack) -> None:
    stack = two_per_rack
    bootstrap = stack.bootstrap("rack-a")
    with Applications(stack, bootstrap) as applications, Load({"rack-a": bootstrap}, LOAD) as load:
        applications.wait_for_more()
        for end in (drain, Stack.kill_proxy):
            for proxy in PROXIES:
                end(stack, proxy)
                stack.start_proxy(proxy)
                for kind in KINDS:
                    wait_for_more(load, kind)
                applications.wait_for_more()
        tally = load.stop()
        applications.finish()
    assert_right(tally)


def test_if_the_last_proxies_of_a_rack_are_killed_clients_move_to_another_rack(two_per_rack: Stack) -> None:
    """Clients that bootstrap again when they know no broker any more: Java since 4.0 (KIP-899), librdkafka,
    franz-go."""
    stack = two_per_rack
    bootstrap = ",".join(stack.bootstrap(rack) for rack in RACKS)
    clients = ("java", "go")
    with Applications(stack, bootstrap, clients) as applications, Load({"rack-a": bootstrap}, LOAD) as load:
        applications.wait_for_more()
        for proxy in PROXIES:
            stack.kill_proxy(proxy)
        applications.wait_for_more()
        for kind in KINDS:
            wait_for_more(load, kind, 100)
        for proxy in PROXIES:
            stack.start_proxy(proxy)
        tally = load.stop()
        applications.finish()
    assert_right(tally)


def test_a_proxy_that_starts_and_is_not_ready_harms_no_client(two_per_rack: Stack) -> None:
    stack = two_per_rack
    own = stack.proxies["rack-a"].settings
    with Load({"rack-a": stack.bootstrap("rack-a")}, LOAD) as load:
        wait_for_more(load, KINDS[-1])
        stack.terminate_proxy("rack-a")
        stack.configure_proxy("rack-a", {"brokers": {"bootstrap": [f"127.0.0.1:{free_port()}"]}})
        try:
            stack.start_proxy("rack-a", wait=False)
            wait_not_ready(stack.admin_url("rack-a"), "brokers:")
            for kind in KINDS:
                wait_for_more(load, kind, 100)
        finally:
            stack.terminate_proxy("rack-a")
            stack.configure_proxy("rack-a", own)
        stack.start_proxy("rack-a")
        tally = load.stop()
    assert_right(tally)
