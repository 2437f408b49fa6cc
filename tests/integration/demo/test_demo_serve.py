"""Use `diskless-proxy demo --serve` from a script."""

import json
import os
import shlex
import signal
import subprocess
import sys
import threading
import urllib.request
from pathlib import Path
from urllib.parse import urlsplit

import pytest
import redis

from proxy.demo.ports import HOST, ReservedPorts
from proxy.demo.probe import known_brokers
from proxy.demo.waiting import wait_until

pytestmark = pytest.mark.stack

RACKS = ["rack-a", "rack-b", "rack-c"]
START_SECONDS = 200
"""Seconds to wait for the start. It is noticed at once if the process ends before."""


def command(*arguments: str) -> list[str]:
    return [sys.executable, "-m", "proxy", "demo", "--serve", *arguments]


@pytest.mark.timeout(300)
def test_serve_prints_all_addresses_and_leaves_nothing_behind(tmp_path: Path) -> None:
    free = ReservedPorts(None, 3)
    free.release()
    ports, info = free.ports, tmp_path / "info.json"
    # The demo's brokers live for seconds here, too short for the second compiler.
    environment = os.environ | {"TMPDIR": str(tmp_path), "JDK_JAVA_OPTIONS": "-XX:TieredStopAtLevel=1"}
    output_file = tmp_path / "output"
    with output_file.open("w") as output:
        serving = subprocess.Popen(
            command("--info", str(info), "--port-base", str(ports.base)), stdout=output, env=environment
        )
    try:

        def complaint() -> str:
            assert serving.poll() is None, output_file.read_text()
            return "" if info.exists() else "no information file"

        wait_until(complaint, START_SECONDS, threading.Event(), lambda text: f"{text}: {output_file.read_text()}")
        found = json.loads(info.read_text())

        assert found["brokers"] == {
            str(node): {"address": f"{HOST}:{ports.broker(node)}", "rack": rack} for node, rack in enumerate(RACKS, 1)
        }
        assert known_brokers(HOST, ports.broker(3), 5.0) == dict(enumerate(RACKS, 1))
        assert list(found["proxies"]) == RACKS
        for index, proxy in enumerate(found["proxies"].values()):
            assert proxy["bootstrap"] == f"{HOST}:{ports.bootstrap(index)}"
            assert Path(proxy["config"]).is_file()
            with urllib.request.urlopen(f"http://{proxy['admin']}/readyz", timeout=10) as response:
                assert response.status == 200
        with redis.Redis.from_url(f"redis://{found['redis']}") as client:
            assert client.ping()
        wal = Path(urlsplit(found["storage"]).path)
        assert wal.is_dir()
        parts = {"controller", "redis", *(f"broker-{node}" for node in (1, 2, 3)), *(f"proxy-{rack}" for rack in RACKS)}
        assert set(found["pids"]) == parts
        usual = tmp_path / f"diskless-proxy-demo-{os.getuid()}.json"
        assert json.loads(usual.read_text()) == found
        says_hello(environment)

        serving.send_signal(signal.SIGTERM)
        assert serving.wait(60) == 0, output_file.read_text()
    finally:
        serving.kill()
        serving.wait()
    for pid in found["pids"].values():
        with pytest.raises(ProcessLookupError):
            os.kill(pid, 0)
    assert not wal.parent.exists()
    assert not info.exists()
    assert not usual.exists()
    assert "Ended." in output_file.read_text()


def says_hello(environment: dict[str, str]) -> None:
    """Check `make hello --info`: the first rack produced the record, the second one read it, from an object only."""
    arguments = [sys.executable, "-m", "proxy", "demo", "hello", "as a test", "--json"]
    done = subprocess.run(arguments, env=environment, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    output_file = json.loads(done.stdout)
    assert (output_file["record"], output_file["produced_in"], output_file["consumed_in"]) == ("as a test", *RACKS[:2])
    assert [output_file[f"{client}_leader"]["rack"] for client in ("producer", "consumer")] == RACKS[:2]
    assert output_file["broker_records"] == output_file["crossed_bytes"] == 0
    assert output_file["record_bytes"] > 2 * len("as a test")
    assert Path(urlsplit(output_file["object_url"]).path).stat().st_size == output_file["object_bytes"] > 0


def test_the_two_commands_of_the_readme_are_those_of_the_program() -> None:
    """Compare with the Makefile's commands, without running it."""
    root = Path(__file__).parents[3]
    for line, program in (('make demo ARGS="--serve"', "demo --serve"), ("make hello", "demo hello")):
        assert all(line in (root / page).read_text() for page in ("README.md", "docs/quickstart.md"))
        done = subprocess.run(
            ["make", "-n", "-C", str(root), *shlex.split(line)[1:]], capture_output=True, text=True, check=True
        )
        assert f".venv/bin/diskless-proxy {program}" in done.stdout


def test_hello_without_a_demo_is_one_clear_line(tmp_path: Path) -> None:
    nowhere = tmp_path / "nowhere.json"
    for text in (None, '{"pids": {"redis": 4194305}, "proxies": {}}'):
        if text is not None:
            nowhere.write_text(text)
        arguments = [sys.executable, "-m", "proxy", "demo", "hello", "--info", str(nowhere)]
        done = subprocess.run(arguments, capture_output=True, text=True, timeout=60, check=False)
        assert done.returncode == 1
        assert len(done.stderr.splitlines()) == 1
        assert str(nowhere) in done.stderr
        assert 'make demo ARGS="--serve"' in done.stderr


def test_a_taken_port_is_one_clear_line(tmp_path: Path) -> None:
    taken = ReservedPorts(None, 3)
    try:
        arguments = command("--port-base", str(taken.ports.base))
        done = subprocess.run(arguments, capture_output=True, text=True, timeout=60, check=False)
    finally:
        taken.release()
    assert done.returncode == 1
    assert len(done.stderr.splitlines()) == 1
    assert "is taken" in done.stderr
    assert "choose another port base" in done.stderr


def test_a_demo_that_is_interrupted_while_it_starts_ends_cleanly(tmp_path: Path) -> None:
    with subprocess.Popen(command("--dir", str(tmp_path / "kept")), stdout=subprocess.PIPE, text=True) as serving:
        assert serving.stdout is not None
        for line in serving.stdout:
            if "Redis-compatible server" in line and "waiting" in line:
                break
        serving.send_signal(signal.SIGINT)
        rest = serving.stdout.read()
        assert serving.wait(60) == 0
    assert "Ended before everything was ready." in rest
    assert "Ended; data and logs are in" in rest
