"""Produce each misconfiguration for real: one line names the setting, the cause and the remedy, and the exit code is 1.

Tests that need TLS, SASL or buckets are in the folders that have such servers.
"""

from __future__ import annotations

import resource
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
import redis
import trustme

from proxy.demo.ports import HOST, ReservedPorts
from proxy.demo.proxies import merged
from proxy.demo.stack import Stack
from tests.integration.coordinator.conftest import Store
from tests.support.checking import (
    Said,
    assert_refused,
    assert_reported,
    checked,
    refused,
    running,
    settings_of_another_proxy,
    written,
)
from tests.support.misconfigurations import Misconfiguration, Needs, needing
from tests.support.ports import free_port

pytestmark = pytest.mark.timeout(400)

PASSWORD = "hush-hush-hush"
COMPLETE = {
    "rack": "rack-a",
    "brokers": {"bootstrap": [f"{HOST}:1"]},
    "redis": {"url": f"redis://:{PASSWORD}@{HOST}:1/0"},
    "storage": {"url": "file:///nowhere"},
}
BROKEN_FILES: dict[str, dict[str, Any] | str | None] = {
    "no_file": None,
    "no_yaml": f"rack: [unclosed\nredis: {{url: 'redis://:{PASSWORD}@there'}}",
    "said_twice": "rack: rack-a\nlimits: {max_connections: 9}\n\n\nlimits: {}\n",
    "two_spellings": merged(
        COMPLETE, {"diskless.append.commit.interval.ms": 100, "diskless_append_commit_interval_ms": 50}
    ),
    "quotes": merged(COMPLETE, {"rack": 1}),
    "hidden_secret": merged(COMPLETE, {"redis": {"url": f"redis://***@{HOST}:1/0"}}),
    "unknown_setting": merged(COMPLETE, {"listeners": {"bootstrap_prot": 1}}),
    "missing_setting": {name: value for name, value in COMPLETE.items() if name != "redis"},
    "unit": merged(COMPLETE, {"diskless.append.commit.interval.ms": "250ms"}),
    "range": merged(COMPLETE, {"redis": {"shards": 5000}}),
    "regular_expression": merged(COMPLETE, {"default_diskless_topics": ["("]}),
    "overlapping_ports": merged(COMPLETE, {"listeners": {"bootstrap_port": 19102}}),
    "identity_by_certificate": merged(
        COMPLETE,
        {"listeners": {"tls": {"certificate_file": "x", "client_ca_file": "x", "client_auth": "required"}}},
    ),
}


def id_of(case: Misconfiguration) -> str:
    return case.name


@pytest.mark.parametrize("case", needing(Needs.NOTHING), ids=id_of)
def test_settings(case: Misconfiguration, tmp_path: Path) -> None:
    broken = BROKEN_FILES[case.name]
    path = tmp_path / "none.yaml" if broken is None else written(tmp_path, broken)
    assert_reported(case, checked(path), PASSWORD)
    assert_refused(case, refused(path), PASSWORD)


def assert_both_report(case: Misconfiguration, path: Path) -> None:
    """Compare the output of `check` and, if `run` rejects the same, of `run`: one after the other, because both need
    the ports."""
    assert_reported(case, checked(path, *(["--strict"] if case.is_warning else [])), PASSWORD)
    if case.by_run:
        with running(path) as end:
            assert_refused(case, end(), PASSWORD)


@contextmanager
def a_taken_port(port: int) -> Iterator[None]:
    with socket.socket() as holder:
        holder.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        holder.bind((HOST, port))
        holder.listen()
        yield


def certificates(directory: Path) -> None:
    ca = trustme.CA()
    for name in ("one", "two"):
        ca.issue_cert("localhost").private_key_and_cert_chain_pem.write_to_path(str(directory / f"{name}.pem"))
    expired = ca.issue_cert("localhost", not_after=datetime(2020, 1, 1, tzinfo=UTC))
    expired.private_key_and_cert_chain_pem.write_to_path(str(directory / "tls.pem"))


def wrong_settings(name: str, stack: Stack, here: Path) -> dict[str, Any]:
    """Return wrong settings to apply to those of one more proxy of the stack."""
    tls = {"certificate_file": f"{here}/one.pem", "key_file": f"{here}/two.pem"}
    return {
        "port_taken": {},
        "foreign_host": {"listeners": {"host": "192.0.2.1", "advertised_host": HOST}},
        "advertised_everywhere": {"listeners": {"host": "0.0.0.0"}},
        "advertised_unknown": {"listeners": {"advertised_host": "kafka.invalid"}},
        "advertised_elsewhere": {"listeners": {"advertised_host": "127.0.0.2"}},
        "rack_unknown": {"rack": "rack-A"},
        "broker_left_out": {"listeners": {"broker_node_ids": "1-2"}},
        "broker_port_taken": {"listeners": {"broker_node_ids": "1-2"}},
        "broker_address": {"brokers": {"bootstrap": [f"{HOST}:{free_port()}"]}},
        "no_kafka": {"brokers": {"bootstrap": [stack.proxies["rack-a"].admin_address]}},
        "controller": {"brokers": {"bootstrap": [f"{HOST}:{stack.ports.controller}"]}},
        "same_name": {"proxy_id": f"rack-b/{stack.proxies['rack-b'].bootstrap}"},
        "redis_port": {"redis": {"url": f"redis://:{PASSWORD}@{HOST}:{free_port()}/0"}},
        "redis_database": {"redis": {"url": f"redis://{stack.redis.address}/99"}},
        "redis_shards": {"redis": {"shards": 8}},
        "directory": {"storage": {"url": (here / "proxy.yaml").as_uri()}},
        "storage_scheme": {"storage": {"url": "ftp://there"}},
        "open_files": {},
        "tls_to_plain": {"brokers": {"security_protocol": "SSL", "bootstrap": [stack.kafka.address(1)]}},
        "certificate_expired": {"listeners": {"tls": {"certificate_file": f"{here}/tls.pem"}}},
        "certificate_pair": {"listeners": {"tls": tls}},
    }[name]


@pytest.mark.usefixtures("patient")
@pytest.mark.parametrize("case", needing(Needs.STACK), ids=id_of)
def test_next_to_a_running_fleet(
    case: Misconfiguration, stack: Stack, reserved: ReservedPorts, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = settings_of_another_proxy(stack, reserved)
    if "certificate" in case.name:
        certificates(tmp_path)
    path = written(tmp_path, merged(settings, wrong_settings(case.name, stack, tmp_path)))
    with ExitStack() as held:
        if case.name == "port_taken":
            held.enter_context(a_taken_port(settings["listeners"]["bootstrap_port"]))
        if case.name == "broker_port_taken":
            held.enter_context(a_taken_port(settings["listeners"]["broker_port_start"] + 3))
        if case.name == "open_files":
            assert_reported(case, checked_with_few_files(path))
            return
        assert_both_report(case, path)


def checked_with_few_files(path: Path) -> Said:
    """Run `check` in its own process: a lowered limit cannot be raised again."""
    command = [sys.executable, "-m", "proxy", "check", "--strict", "--config", str(path)]

    def lower() -> None:
        resource.setrlimit(resource.RLIMIT_NOFILE, (512, 512))

    done = subprocess.run(command, capture_output=True, text=True, preexec_fn=lower, timeout=180, check=False)
    return Said(done.returncode, done.stdout, done.stderr)


def of_no_rights(client: redis.Redis) -> Callable[[], object]:
    client.acl_setuser("weak", enabled=True, passwords=[f"+{PASSWORD}"], keys=["elsewhere:*"], commands=["+@all"])
    return lambda: client.acl_deluser("weak")


def of_most_commands(client: redis.Redis) -> Callable[[], object]:
    client.acl_setuser(
        "weak",
        enabled=True,
        passwords=[f"+{PASSWORD}"],
        keys=["diskless:*"],
        channels=["diskless:*"],
        commands=["+@all", "-hscan"],
    )
    return lambda: client.acl_deluser("weak")


def changed(client: redis.Redis, name: str, value: str) -> Callable[[], object]:
    before = client.config_get(name)[name]  # type: ignore[index]
    client.config_set(name, value)
    return lambda: client.config_set(name, before)


WEAKENED: dict[str, Callable[[redis.Redis], Callable[[], object]]] = {
    "foreign_store": lambda client: lambda: None,
    "redis_password": lambda client: changed(client, "requirepass", "another"),
    "redis_rights": of_no_rights,
    "redis_commands": of_most_commands,
    "redis_memory_only": lambda client: changed(client, "appendonly", "no"),
    "redis_eviction": lambda client: changed(client, "maxmemory-policy", "allkeys-lru"),
    "redis_replica": lambda client: replica(client),
}


def replica(client: redis.Redis) -> Callable[[], object]:
    client.replicaof(HOST, str(free_port()))
    return lambda: client.replicaof("NO", "ONE")


@pytest.mark.usefixtures("patient")
@pytest.mark.parametrize("case", [one for one in needing(Needs.STORE) if one.name != "redis_cluster"], ids=id_of)
def test_an_unfit_store(
    case: Misconfiguration,
    stack: Stack,
    reserved: ReservedPorts,
    weak_store: Store,
    tmp_path: Path,
) -> None:
    weak = f"weak:{PASSWORD}@"
    users = {"redis_password": f":{PASSWORD}@", "redis_rights": weak, "redis_commands": weak}
    user = users.get(case.name, "")
    own = {
        "redis": {"url": f"redis://{user}{HOST}:{weak_store.port}/0"},
        "storage": {"url": tmp_path.as_uri()},
        "journal": {"mode": "off"},
    }
    if case.name == "foreign_store":
        (tmp_path / "coordinator").mkdir()
        (tmp_path / "coordinator" / "identity").write_text("0123456789abcdef0123456789abcdef")
    path = written(tmp_path, merged(settings_of_another_proxy(stack, reserved), own))
    with redis.Redis(port=weak_store.port) as client:
        restore = WEAKENED[case.name](client)
        try:
            assert_both_report(case, path)
        finally:
            restore()


@pytest.mark.usefixtures("patient")
def test_a_node_of_a_cluster(
    stack: Stack, reserved: ReservedPorts, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (case,) = (one for one in needing(Needs.STORE) if one.name == "redis_cluster")
    store = Store(tmp_path, "--cluster-enabled", "yes", "--cluster-port", str(free_port()))
    store.start()
    try:
        own = {
            "redis": {"url": store.url},
            "storage": {"url": (tmp_path / "wal").as_uri()},
            "journal": {"mode": "off"},
        }
        assert_both_report(case, written(tmp_path, merged(settings_of_another_proxy(stack, reserved), own)))
    finally:
        store.stop()
