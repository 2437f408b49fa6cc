"""Several worker processes behind one set of ports: seen from outside they are one proxy."""

from __future__ import annotations

import os
import signal
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest

from proxy.config import parse_address
from proxy.demo.load import Load
from proxy.demo.ports import HOST
from proxy.demo.process import Process
from proxy.demo.stack import Stack, StackOptions
from proxy.demo.waiting import wait_until
from tests.support.bad_start import Ports, command, refusal
from tests.support.confluent import produce_to, read_partitions
from tests.support.load import assert_right, load_of, wait_for_more
from tests.support.metrics import Metrics
from tests.support.readiness import readiness, wait_not_ready, wait_ready
from tests.support.records import samples
from tests.support.topics import DISKLESS, KINDS, new_topic

RACK = "rack-a"
CONNECTIONS = 24


@pytest.fixture(scope="module")
def running_two_workers() -> Iterator[Stack]:
    with Stack(StackOptions(racks=(RACK,), workers=2)) as stack:
        yield stack


@pytest.fixture
def two_workers(running_two_workers: Stack) -> Iterator[Stack]:
    yield running_two_workers
    running_two_workers.heal()


pytestmark = pytest.mark.stack


def worker_pids(parent: int) -> list[int]:
    """The processes whose parent it is."""
    return [int(pid) for pid in Path(f"/proc/{parent}/task/{parent}/children").read_text().split()]


def wait_for(what: str, met: Callable[[], bool]) -> None:
    """Wait until `met()` is true."""
    wait_until(lambda: "" if met() else what, 60, threading.Event(), str)


def wait_for_both(load: Load) -> None:
    """Wait until classic and diskless topics go on."""
    for kind in KINDS:
        wait_for_more(load, kind)


@contextmanager
def idle_connections(stack: Stack) -> Iterator[None]:
    """Clients that say nothing: whom the kernel gives them to is chance, that all go to one worker next to none."""
    with ExitStack() as opened:
        for _ in range(CONNECTIONS):
            opened.enter_context(socket.create_connection(parse_address(stack.bootstrap(RACK)), timeout=10))
        wait_for("connected", lambda: Metrics(stack, RACK).value("connections") >= CONNECTIONS)
        yield


def test_one_page_of_metrics_adds_up_what_the_workers_do(two_workers: Stack) -> None:
    topic = new_topic(two_workers, "workers", DISKLESS, partitions=3)
    before = Metrics(two_workers, RACK)
    with idle_connections(two_workers):
        for number in range(8):
            produce_to(two_workers.bootstrap(RACK), topic, {0: samples(5, f"workers-{number}", plain=True)})
        after = Metrics(two_workers, RACK)
    assert after.value("connections_opened_total") - before.value("connections_opened_total") >= CONNECTIONS + 8
    assert after.value("produce_seconds_count") - before.value("produce_seconds_count") >= 8
    assert after.value("workers") == 2
    assert after.value("diskless_topics") == 1
    assert after.value("fleet_proxies", rack=RACK) == 2, "each is a proxy of its own to the fleet"
    assert after.value("held_request_bytes_limit") == 2 * 536_870_912
    assert after.labels("process_resident_memory_bytes", "worker") == {"parent", "1", "2"}
    (partition, *_) = read_partitions(two_workers.bootstrap(RACK), topic, 1)
    assert len(partition) == 40


def test_a_worker_dies_all_drain_and_the_parent_dies_and_nothing_is_lost(two_workers: Stack) -> None:
    stack = two_workers
    first = worker_pids(stack.pid("proxy-rack-a"))
    assert len(first) == 2
    with load_of(stack) as load, idle_connections(stack):
        wait_for_both(load)
        os.kill(first[0], signal.SIGKILL)
        wait_for("gone", lambda: Metrics(stack, RACK).value("worker_restarts_total") == 1)
        assert readiness(stack.admin_url(RACK)) == (200, "ready"), "the other one serves"
        wait_for("back", lambda: Metrics(stack, RACK).value("workers") == 2)
        wait_for("ready again", lambda: stack.log_tail("proxy-rack-a", 1000).count("] ready ") == 3)
        wait_ready(stack.admin_url(RACK))
        assert len(set(worker_pids(stack.pid("proxy-rack-a"))) & set(first)) == 1
        assert "worker_ended" in stack.log_tail("proxy-rack-a", 1000)
        wait_for_both(load)

        assert stack.terminate_proxy(RACK) == 0
        assert stack.log_tail("proxy-rack-a", 1000).count("drained") == 2
        stack.start_proxy(RACK)
        wait_for_both(load)

        workers = worker_pids(stack.pid("proxy-rack-a"))
        stack.kill_proxy(RACK)
        wait_for("gone", lambda: not any(Path(f"/proc/{pid}").exists() for pid in workers))
        stack.start_proxy(RACK)
        wait_for_both(load)
        tally = load.stop()
    assert_right(tally)


@pytest.mark.parametrize("workers", [1, 2])
def test_two_proxies_never_share_a_port_unnoticed(two_workers: Stack, tmp_path: Path, workers: int) -> None:
    ports = Ports()
    taken = two_workers.ports.bootstrap(0)
    line = refusal(command(tmp_path, ports, {"workers": workers, "listeners": {"bootstrap_port": taken}}))
    assert f"can't listen on {HOST}:{taken} (listeners.bootstrap_port): Address already in use" in line


def test_nor_while_neither_of_them_listens_yet(tmp_path: Path) -> None:
    ports, others = Ports(), Ports()
    waiting = Process("proxy", command(tmp_path, ports, {"workers": 2}), tmp_path / "proxy.log")
    waiting.start()
    try:
        assert "worker 1: coordinator: " in wait_not_ready(f"http://{HOST}:{ports.admin}", "redis.url")
        second = tmp_path / "second"
        second.mkdir()
        overrides = {
            "workers": 2,
            "listeners": {"bootstrap_port": ports.bootstrap, "broker_port_start": ports.broker - 1},
        }
        line = refusal(command(second, others, overrides))
        assert f"can't listen on {HOST}:{ports.bootstrap} (listeners.bootstrap_port): Address already in use" in line
        waiting.terminate()
        assert waiting.wait_ended() == 0
    finally:
        waiting.kill()


def test_what_keeps_every_worker_from_starting_is_one_line(tmp_path: Path) -> None:
    line = refusal(command(tmp_path, Ports(), {"workers": 2, "storage": {"url": "ftp://there"}}))
    assert "storage.url" in line
