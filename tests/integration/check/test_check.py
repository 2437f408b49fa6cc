"""Run `diskless-proxy check` where all is well, next to the running proxy of the same settings, and where nothing
answers."""

from __future__ import annotations

import re
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import redis

from proxy.check import brokers, check
from proxy.demo.ports import HOST, ReservedPorts
from proxy.demo.proxies import merged
from proxy.demo.stack import Stack
from tests.integration.coordinator.conftest import Store
from tests.support.checking import checked, findings, settings_of_another_proxy, without_machine_findings, written
from tests.support.topics import DISKLESS, new_topic

ROOT = Path(__file__).parents[3]
PASSWORD = "hush-hush-hush"


@pytest.mark.usefixtures("patient")
def test_all_is_well_and_the_check_leaves_nothing_behind(stack: Stack, reserved: ReservedPorts, tmp_path: Path) -> None:
    path = written(tmp_path, settings_of_another_proxy(stack, reserved))
    found = without_machine_findings(findings(path))
    assert {finding["level"] for finding in found} == {"ok"}, found
    assert {finding["kind"] for finding in found} >= {"ports", "brokers", "racks", "Redis", "object storage", "fleet"}
    with redis.Redis.from_url(stack.redis.url) as client:
        assert not list(client.scan_iter("*check-*"))
    assert not list((stack.directory / "wal").glob("check/*"))
    done = checked(path)
    assert done.exit_code == 0
    assert "✓ ok" in done.stdout


@pytest.mark.usefixtures("patient")
def test_next_to_the_running_proxy_of_the_same_settings(stack: Stack, tmp_path: Path) -> None:
    same = merged(stack.proxies["rack-b"].settings, {"redis": {"timeout_ms": 8_000}})
    found = findings(written(tmp_path, same))
    ports = {finding["where"]: finding["text"] for finding in found if finding["kind"] == "ports"}
    assert "a port for each of the 3 live brokers" in ports.pop("listeners.broker_node_ids")
    assert set(ports) == {"listeners", "admin.port"}
    assert all("taken by the running proxy" in text for text in ports.values())
    assert not [finding for finding in found if finding["level"] == "error"]


def test_without_redis_the_rest_is_checked(stack: Stack, reserved: ReservedPorts, tmp_path: Path) -> None:
    storage = (tmp_path / "new" / "wal").as_uri()
    wrong = {"redis": {"url": f"redis://{HOST}:1"}, "storage": {"url": storage}, "journal": {"mode": "off"}}
    found = findings(written(tmp_path, merged(settings_of_another_proxy(stack, reserved), wrong)))
    assert {finding["kind"]: finding["level"] for finding in found if finding["level"] in ("error", "skipped")} == {
        "Redis": "error",
        "fleet": "skipped",
    }
    assert not (tmp_path / "new").exists()


@pytest.mark.usefixtures("patient")
@pytest.mark.parametrize(
    ("journal", "level", "expected"),
    [
        ({"topic": "__not_there_yet"}, "ok", "the first proxy creates __not_there_yet with 17 partitions"),
        ({"topic": "__not_there_yet", "replication_factor": 4}, "error", "start more brokers, or set"),
        ({}, "error", "it is another deployment's; fix storage.url, or set journal.topic"),
        ({"min_insync_replicas": 3}, "error", "--add-config min.insync.replicas=3"),
    ],
    ids=["missing", "few brokers", "another deployment's", "unfit"],
)
def test_the_journal_of_a_new_deployment(
    stack: Stack,
    reserved: ReservedPorts,
    weak_store: Store,
    tmp_path: Path,
    journal: dict[str, Any],
    level: str,
    expected: str,
) -> None:
    new_topic(stack, "journalled", DISKLESS)  # the stack's own journal has a record then
    own = {"redis": {"url": weak_store.url}, "storage": {"url": (tmp_path / "wal").as_uri()}, "journal": journal}
    found = findings(written(tmp_path, merged(settings_of_another_proxy(stack, reserved), own)))
    (of_journal,) = (finding for finding in found if finding["kind"] == "journal")
    assert of_journal["level"] == level, of_journal
    assert expected in f"{of_journal['text']}; {of_journal['remedy']}"


@pytest.fixture
def silent() -> Iterator[str]:
    """Return `host:port` of a server that accepts connections and never answers."""
    with socket.socket() as listening:
        listening.bind((HOST, 0))
        listening.listen(64)
        yield f"{HOST}:{listening.getsockname()[1]}"


def test_the_check_gives_up_on_servers_that_hang(
    silent: str, reserved: ReservedPorts, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(check, "REACH_TIMEOUT_S", 2.0)
    monkeypatch.setattr(brokers, "ADDRESS_TIMEOUT_S", 0.5)
    settings = {
        "rack": "rack-a",
        "listeners": {"bootstrap_port": reserved.ports.bootstrap(0), "broker_port_start": reserved.ports.admin(0)},
        "admin": {"port": 0},
        "brokers": {"bootstrap": [silent]},
        "redis": {"url": f"redis://{silent}", "timeout_ms": 200},
        "storage": {
            "url": "s3://bucket",
            "endpoint_url": f"http://{silent}",
            "access_key_id": "key",
            "secret_access_key": PASSWORD,
        },
    }
    found = findings(written(tmp_path, settings))
    failed = {finding["kind"]: finding for finding in found if finding["level"] == "error"}
    assert set(failed) == {"brokers", "Redis", "object storage"}
    assert all(finding["remedy"] for finding in failed.values())


@pytest.mark.usefixtures("patient")
def test_the_documented_rights_at_redis_are_sufficient(
    stack: Stack, reserved: ReservedPorts, weak_store: Store, tmp_path: Path
) -> None:
    command = re.search("^ACL SETUSER .*$", (ROOT / "docs" / "operations" / "redis.md").read_text(), re.MULTILINE)
    assert command is not None
    own = {
        "redis": {"url": f"redis://diskless-proxy:{PASSWORD}@{HOST}:{weak_store.port}/0"},
        "storage": {"url": (tmp_path / "wal").as_uri()},
    }
    with redis.Redis(port=weak_store.port) as client:
        client.execute_command(*command[0].replace("PASSWORD", PASSWORD).split())
        try:
            found = findings(written(tmp_path, merged(settings_of_another_proxy(stack, reserved), own)))
        finally:
            client.acl_deluser("diskless-proxy")
    of_redis = [finding for finding in without_machine_findings(found) if finding["kind"] == "Redis"]
    assert {finding["level"] for finding in of_redis} == {"ok"}, of_redis
    allowed = "lets the proxy use scripts, keys under diskless: and announcements"
    assert allowed in {finding["text"] for finding in of_redis}
