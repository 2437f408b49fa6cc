"""Runs of `diskless-proxy run` that cannot start: one line with cause and remedy, or a state that recovers by
itself."""

from __future__ import annotations

import socket
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from threading import Event
from typing import Any

import pytest
import redis

from proxy.demo.ports import HOST
from proxy.demo.process import Process
from proxy.demo.stack import Stack
from proxy.demo.valkey import Valkey
from tests.support.bad_start import Ports, command, refusal
from tests.support.readiness import wait_not_ready, wait_ready
from tests.support.toxiproxy import closed_link, toxiproxy_server


@contextmanager
def store(directory: Path, port: int) -> Iterator[Valkey]:
    """Start a Redis-compatible server."""
    (directory / "logs").mkdir(exist_ok=True)
    server = Valkey(directory, port)
    server.prepare()
    server.process.start()
    try:
        server.wait_ready(30, Event())
        yield server
    finally:
        server.process.terminate()
        server.process.wait_ended()


def test_all_unusable_settings_are_named_at_once(tmp_path: Path) -> None:
    overrides = {
        "diskles.append.commit.interval.ms": 5,
        "diskless.append.buffer.max.bytes": "many",
        "listeners": {"bootstrap_prot": 1},
        "brokers": {"bootstrap": ["broker-1"]},
        "fleet": {"lease_ms": 1000},
    }
    line = refusal(command(tmp_path, Ports(), overrides))
    assert "diskles.append.commit.interval.ms: no such setting; " in line
    assert "diskless.append.buffer.max.bytes: " in line
    assert "(it is 'many')" in line
    assert "listeners.bootstrap_prot: no such setting; " in line
    assert "brokers.bootstrap: 'broker-1' is not host:port" in line
    assert "lease_ms must be at least twice heartbeat_interval_ms" in line


@pytest.mark.parametrize(
    ("overrides", "expected"),
    [
        ({"storage": {"url": "ftp://there"}}, "storage.url"),
        ({"diskless.storage.class.name": "nowhere:Class"}, "diskless.storage.class.name"),
    ],
)
def test_a_storage_that_does_not_exist_is_named(tmp_path: Path, overrides: dict[str, Any], expected: str) -> None:
    assert expected in refusal(command(tmp_path, Ports(), overrides))


def test_a_missing_file_and_a_file_that_is_not_yaml(tmp_path: Path) -> None:
    arguments = [sys.executable, "-m", "proxy", "run", "--config"]
    broken = tmp_path / "broken.yaml"
    broken.write_text("rack: [unclosed")
    assert "No such file or directory; name an existing file" in refusal([*arguments, str(tmp_path / "none.yaml")])
    assert "broken.yaml is not YAML" in refusal([*arguments, str(broken)])


@pytest.mark.parametrize(
    ("part", "setting"),
    [
        ("bootstrap", "listeners.bootstrap_port"),
        ("broker", "listeners.broker_port_start + 1"),
        ("admin", "admin.port"),
    ],
)
def test_a_taken_port_is_named_with_its_setting(tmp_path: Path, part: str, setting: str) -> None:
    ports = Ports()
    taken = getattr(ports, part)
    with socket.socket() as holder:
        holder.bind((HOST, taken))
        holder.listen()
        line = refusal(command(tmp_path, ports, {}))
    assert f"can't listen on {HOST}:{taken} ({setting}): Address already in use" in line
    assert "end the process that holds the port, or choose another one" in line


@pytest.mark.parametrize(
    ("name", "value", "remedy"),
    [
        ("maxmemory-policy", "allkeys-lru", "set it to noeviction"),
        ("appendonly", "no", "set it to yes"),
    ],
)
def test_a_store_that_may_lose_commits_is_rejected(tmp_path: Path, name: str, value: str, remedy: str) -> None:
    ports = Ports()
    with store(tmp_path, ports.redis) as server:
        with redis.Redis.from_url(server.url) as client:
            client.config_set(name, value)
        line = refusal(command(tmp_path, ports, {"journal": {"mode": "off"}}))
    assert f"{HOST}:{ports.redis}: {name} is {value}" in line
    assert remedy in line


def test_a_store_without_the_objects_is_rejected(tmp_path: Path) -> None:
    ports = Ports()
    (tmp_path / "wal" / "coordinator").mkdir(parents=True)
    (tmp_path / "wal" / "coordinator" / "identity").write_text("0123456789abcdef0123456789abcdef")
    with store(tmp_path, ports.redis):
        line = refusal(command(tmp_path, ports, {"journal": {"mode": "off"}}))
    assert "redis.url leads to a store without data about the objects under storage.url" in line
    assert "fix redis.url" in line


def test_the_start_waits_for_storage_then_store_then_brokers_and_names_each(stack: Stack, tmp_path: Path) -> None:
    ports = Ports()
    admin_url = f"http://{HOST}:{ports.admin}"
    (tmp_path / "wal").write_text("no directory")
    with toxiproxy_server(tmp_path) as network, ExitStack() as running:
        link = closed_link(network, "broker-1", stack.kafka.address(1))
        overrides = {"brokers": {"bootstrap": [link.listen]}, "proxy_id": "late", "rack": "rack-late"}
        overrides["journal"] = {"topic": "__journal_of_the_late_one"}
        proxy = Process("proxy", command(tmp_path, ports, overrides), tmp_path / "proxy.log")
        proxy.start()
        try:
            assert str(tmp_path / "wal") in wait_not_ready(admin_url, "storage:", "can't be used")
            (tmp_path / "wal").unlink()
            assert "redis.url" in wait_not_ready(admin_url, "coordinator:")
            running.enter_context(store(tmp_path, ports.redis))
            wait_not_ready(admin_url, "brokers:", link.listen)
            with pytest.raises(ConnectionRefusedError):
                socket.create_connection((HOST, ports.bootstrap), timeout=5)
            link.enable()
            wait_ready(admin_url)
            socket.create_connection((HOST, ports.bootstrap), timeout=5).close()
            proxy.terminate()
            assert proxy.wait_ended() == 0
        finally:
            proxy.kill()


def test_sigterm_ends_a_waiting_start(tmp_path: Path) -> None:
    ports = Ports()
    proxy = Process("proxy", command(tmp_path, ports, {}), tmp_path / "proxy.log")
    proxy.start()
    try:
        wait_not_ready(f"http://{HOST}:{ports.admin}", "coordinator:")
        proxy.terminate()
        assert proxy.wait_ended() == 0
    finally:
        proxy.kill()
