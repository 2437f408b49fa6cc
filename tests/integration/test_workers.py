"""Several worker processes with one set of ports: from outside they are one proxy."""

from __future__ import annotations

import os
import signal
import socket
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest

from proxy.config import parse_address
from proxy.demo.load import Load
from proxy.demo.ports import HOST
from proxy.demo.process import Process
from proxy.demo.stack import Stack
from tests.support.admin import ask, ask_ok
from tests.support.bad_start import Ports, command, refusal
from tests.support.confluent import produce_to, read_partitions
from tests.support.load import assert_right, load_of, wait_for_more
from tests.support.metrics import Metrics
from tests.support.readiness import readiness, wait_not_ready, wait_ready
from tests.support.records import samples
from tests.support.reloading import lines_with, reloaded
from tests.support.stacks import short_lived
from tests.support.topics import DISKLESS, KINDS, new_topic
from tests.support.waiting import wait_for

RACK = "rack-a"
CONNECTIONS = 24
TOKEN = "let-me-act"


@pytest.fixture(scope="module")
def running_two_workers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stack]:
    token = tmp_path_factory.mktemp("admin") / "token"
    token.touch(mode=0o600)
    token.write_text(TOKEN)
    with Stack(short_lived(racks=(RACK,), workers=2, overrides={"admin": {"token_file": str(token)}})) as stack:
        yield stack


@pytest.fixture
def two_workers(running_two_workers: Stack) -> Iterator[Stack]:
    yield running_two_workers
    running_two_workers.heal()


pytestmark = pytest.mark.stack


def processes_of(parent: int) -> dict[int, int]:
    """Return the child processes by number. Number 0 is the storage process."""
    pids = [int(pid) for pid in Path(f"/proc/{parent}/task/{parent}/children").read_text().split()]
    return {int(Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")[3]): pid for pid in pids}


def worker_pids(parent: int) -> list[int]:
    """Return the processes that serve clients."""
    return [pid for number, pid in processes_of(parent).items() if number]


def wait_for_both(load: Load) -> None:
    """Wait until classic and diskless topics continue."""
    for kind in KINDS:
        wait_for_more(load, kind)


@contextmanager
def idle_connections(stack: Stack) -> Iterator[None]:
    """Open silent connections. The kernel assigns them at random, so it is nearly impossible that one worker gets
    all."""
    with ExitStack() as opened:
        for _ in range(CONNECTIONS):
            opened.enter_context(socket.create_connection(parse_address(stack.bootstrap(RACK)), timeout=10))
        wait_for(lambda: Metrics(stack, RACK).value("connections") >= CONNECTIONS, "connected")
        yield


def test_one_page_of_metrics_adds_up_what_the_workers_do(two_workers: Stack) -> None:
    before = Metrics(two_workers, RACK)
    topic = new_topic(two_workers, "workers", DISKLESS, partitions=3)
    with idle_connections(two_workers):
        for number in range(8):
            produce_to(two_workers.bootstrap(RACK), topic, {0: samples(5, f"workers-{number}", plain=True)})
        after = Metrics(two_workers, RACK)
    assert after.value("connections_opened_total") - before.value("connections_opened_total") >= CONNECTIONS + 8
    assert after.value("produce_seconds_count") - before.value("produce_seconds_count") >= 8
    assert after.value("workers") == 2
    assert after.value("diskless_topics") == before.value("diskless_topics") + 1
    assert after.value("fleet_proxies", rack=RACK) == 2, "each is a proxy of its own to the fleet"
    assert after.value("held_request_bytes_limit") == 2 * 536_870_912
    assert after.labels("process_resident_memory_bytes", "worker") == {"parent", "storage", "1", "2"}
    (partition, *_) = read_partitions(two_workers.bootstrap(RACK), topic, 1)
    assert len(partition) == 40


def test_the_admin_port_speaks_for_all_workers(two_workers: Stack) -> None:
    url = two_workers.admin_url(RACK)
    with idle_connections(two_workers):
        connections = ask_ok(url, "connections?limit=1000")["connections"]
        assert {row["worker"] for row in connections} == {1, 2}
        assert sum(row["client_id"] is None for row in connections) >= CONNECTIONS
    overview = ask_ok(url, "overview")
    assert (overview["workers"], overview["state"], overview["actions"]) == (2, "ready", True)
    assert {buffer["name"]: buffer["limit"] for buffer in overview["buffers"]}["held_requests"] == 2 * 536_870_912
    assert [proxy["this"] for proxy in ask_ok(url, "fleet")["proxies"]] == [True, True]
    wait_for(lambda: bool(ask_ok(url, "history")["samples"]), "a point of the plots")


def test_actions_reach_all_workers(two_workers: Stack) -> None:
    url = two_workers.admin_url(RACK)
    assert ask(url, "log-level", "PUT", token="wrong", body={"level": "error"})[0] == 401
    assert ask(url, "log-level", "PUT", token=TOKEN, body={"level": "error"}) == (200, {"log_level": "error"})
    restarts = Metrics(two_workers, RACK).value("worker_restarts_total")
    os.kill(worker_pids(two_workers.pid("proxy-rack-a"))[0], signal.SIGKILL)
    wait_for(lambda: Metrics(two_workers, RACK).value("worker_restarts_total") > restarts, "gone")
    wait_for(lambda: len({proxy["proxy"] for proxy in ask_ok(url, "fleet")["proxies"] if proxy["this"]}) == 2, "back")
    wait_ready(url)
    proxy = two_workers.process("proxy-rack-a")
    logged = proxy.log.stat().st_size
    assert ask(url, "drain", "POST", token=TOKEN) == (202, {"state": "draining"})
    assert proxy.wait_ended() == 0
    # The restarted worker has the level, too: neither logs that it drains.
    assert "drain" not in proxy.log.read_text(errors="replace")[logged:]


def test_a_reload_reaches_every_worker_and_those_that_start_later(two_workers: Stack) -> None:
    limit = 123_456_789
    with reloaded(two_workers, RACK, {"limits": {"max_request_bytes_in_memory": limit}}, processes=4):
        assert Metrics(two_workers, RACK).value("held_request_bytes_limit") == 2 * limit
        restarts = Metrics(two_workers, RACK).value("worker_restarts_total")
        os.kill(worker_pids(two_workers.pid("proxy-rack-a"))[0], signal.SIGKILL)
        wait_for(lambda: Metrics(two_workers, RACK).value("worker_restarts_total") > restarts, "gone")
        wait_for(lambda: Metrics(two_workers, RACK).value("held_request_bytes_limit") == 2 * limit, "back")
        wait_for(lambda: Metrics(two_workers, RACK).value("workers") == 2, "ready")
        wait_ready(two_workers.admin_url(RACK))
    assert Metrics(two_workers, RACK).value("held_request_bytes_limit") == 2 * 536_870_912


def test_nothing_is_lost_if_a_worker_dies_all_drain_or_the_parent_dies(two_workers: Stack) -> None:
    stack = two_workers
    first = worker_pids(stack.pid("proxy-rack-a"))
    assert len(first) == 2
    restarts = Metrics(stack, RACK).value("worker_restarts_total")
    log = stack.process("proxy-rack-a").log
    ready, drained = (len(lines_with(log, event)) for event in ("ready", "drained"))
    with load_of(stack) as load, idle_connections(stack):
        wait_for_both(load)
        os.kill(first[0], signal.SIGKILL)
        wait_for(lambda: Metrics(stack, RACK).value("worker_restarts_total") > restarts, "gone")
        assert readiness(stack.admin_url(RACK)) == (200, "ready"), "the other one serves"
        wait_for(lambda: Metrics(stack, RACK).value("workers") == 2, "back")
        wait_for(lambda: len(lines_with(log, "ready")) > ready, "ready again")
        wait_ready(stack.admin_url(RACK))
        assert len(set(worker_pids(stack.pid("proxy-rack-a"))) & set(first)) == 1
        assert lines_with(log, "worker_ended")
        wait_for_both(load)

        os.kill(processes_of(stack.pid("proxy-rack-a"))[0], signal.SIGKILL)
        wait_for(lambda: Metrics(stack, RACK).value("worker_restarts_total") > restarts + 1, "gone")
        wait_ready(stack.admin_url(RACK))
        wait_for_both(load)

        assert stack.terminate_proxy(RACK) == 0
        assert len(lines_with(log, "drained")) == drained + 3
        stack.start_proxy(RACK)
        wait_for_both(load)

        children = processes_of(stack.pid("proxy-rack-a")).values()
        stack.kill_proxy(RACK)
        wait_for(lambda: not any(Path(f"/proc/{pid}").exists() for pid in children), "gone")
        stack.start_proxy(RACK)
        wait_for_both(load)
        tally = load.stop()
    assert_right(tally)


def test_workers_write_one_segment_together_and_read_it_once(two_workers: Stack) -> None:
    topic = new_topic(two_workers, "shared", DISKLESS)
    uploads = Metrics(two_workers, RACK).value("segment_bytes_count")
    with ThreadPoolExecutor(CONNECTIONS) as clients:
        for number in range(CONNECTIONS):
            records = {0: samples(1, f"shared-{number}", plain=True)}
            clients.submit(produce_to, two_workers.bootstrap(RACK), topic, records)
    written = Metrics(two_workers, RACK)
    assert 0 < written.value("segment_bytes_count") - uploads < CONNECTIONS
    assert two_workers.terminate_proxy(RACK) == 0
    two_workers.start_proxy(RACK)
    wait_ready(two_workers.admin_url(RACK))
    gets, misses = [], []
    for _ in range(CONNECTIONS):
        (partition,) = read_partitions(two_workers.bootstrap(RACK), topic, 1)
        assert len(partition) == CONNECTIONS
        page = Metrics(two_workers, RACK)
        gets.append(page.value("storage_gets_total"))
        misses.append(page.value("cache_misses_total") + page.value("cold_cache_misses_total"))
    assert 0 < gets[0] == gets[-1]
    assert misses[-1] > misses[0], "the other worker has used what was read for the first one"


@pytest.mark.parametrize("workers", [1, 2])
def test_two_proxies_never_share_a_port_unnoticed(two_workers: Stack, tmp_path: Path, workers: int) -> None:
    ports = Ports()
    taken = two_workers.ports.bootstrap(0)
    line = refusal(command(tmp_path, ports, {"workers": workers, "listeners": {"bootstrap_port": taken}}))
    assert f"can't listen on {HOST}:{taken} (listeners.bootstrap_port): Address already in use" in line


def test_two_proxies_never_share_a_port_before_either_listens(tmp_path: Path) -> None:
    ports, others = Ports(), Ports()
    waiting = Process("proxy", command(tmp_path, ports, {"workers": 2}), tmp_path / "proxy.log")
    waiting.start()
    try:
        assert "storage process: coordinator: " in wait_not_ready(f"http://{HOST}:{ports.admin}", "redis.url")
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


def test_an_error_that_stops_every_worker_is_one_line(tmp_path: Path) -> None:
    line = refusal(command(tmp_path, Ports(), {"workers": 2, "storage": {"url": "ftp://there"}}))
    assert "storage.url" in line
