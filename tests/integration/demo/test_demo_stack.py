"""The stack itself: its processes, the failures that it survives, and what it leaves behind."""

import json
import subprocess
import sys
import threading
import urllib.request
import uuid
from collections.abc import Callable
from pathlib import Path

import pytest
import redis

from proxy.config import load_settings
from proxy.demo.ports import HOST
from proxy.demo.probe import known_brokers
from proxy.demo.stack import Stack
from proxy.demo.waiting import wait_until

RACKS = {1: "rack-a", 2: "rack-b", 3: "rack-c"}
START_AND_SLEEP = """
import json, time
from proxy.demo.stack import Stack, StackOptions
with Stack(StackOptions(proxies=False, racks=("rack-a",))) as stack:
    pids = {name: process.pid for name, process in stack.processes.items()}
    print(json.dumps({"pids": pids, "directory": str(stack.directory)}), flush=True)
    time.sleep(600)
"""


def brokers_known_to(stack: Stack, node_id: int) -> dict[int, str]:
    return known_brokers(HOST, int(stack.kafka.address(node_id).rpartition(":")[2]), timeout_seconds=5.0)


def runs(pid: int) -> bool:
    """True if the process exists and is no zombie."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def test_every_broker_knows_three_brokers_in_three_racks(stack: Stack) -> None:
    for node in RACKS:
        assert brokers_known_to(stack, node) == RACKS


def test_every_proxy_is_ready_and_starts_from_the_broker_of_its_rack(stack: Stack) -> None:
    for node, rack in RACKS.items():
        with urllib.request.urlopen(f"{stack.admin_url(rack)}/readyz", timeout=10) as response:
            assert response.status == 200
        settings = load_settings(stack.config_path(rack))
        assert settings.rack == rack
        assert settings.brokers.bootstrap[0] == stack.kafka.address(node)
        assert set(settings.brokers.bootstrap) == set(stack.direct_bootstrap.split(","))


def test_kafkas_own_tools_run(stack: Stack) -> None:
    tool, topic = "org.apache.kafka.tools.TopicCommand", f"demo-stack-tools-{uuid.uuid4().hex[:6]}"
    to_brokers = ("--bootstrap-server", stack.direct_bootstrap)
    made = stack.java(tool, *to_brokers, "--create", "--topic", topic, "--partitions", "2")
    assert made.returncode == 0, made.stderr
    assert topic in stack.java(tool, *to_brokers, "--list").stdout.split()


def test_a_killed_broker_comes_back_and_the_others_work_without_it(stack: Stack) -> None:
    stack.kill_broker(2)
    wait_until(
        lambda: "" if brokers_known_to(stack, 1).keys() == {1, 3} else "broker 2 is not fenced",
        30,
        threading.Event(),
        str,
    )
    stack.start_broker(2)
    assert brokers_known_to(stack, 2) == RACKS


def test_a_killed_redis_has_every_acknowledged_write(stack: Stack) -> None:
    with redis.Redis.from_url(stack.redis.url) as client:
        client.set("demo-stack", "acknowledged")
        assert client.config_get("maxmemory-policy") == {"maxmemory-policy": "noeviction"}
    stack.kill_redis()
    stack.start_redis()
    with redis.Redis.from_url(stack.redis.url) as client:
        assert client.get("demo-stack") == b"acknowledged"
        client.delete("demo-stack")


def test_a_named_directory_is_kept_and_reused(new_stack: Callable[..., Stack], tmp_path: Path) -> None:
    options = {"proxies": False, "racks": ("rack-a",), "directory": tmp_path / "kept"}
    first = new_stack(**options)
    pids = [process.pid for process in first.processes.values()]
    tool = "org.apache.kafka.tools.TopicCommand"
    made = first.java(tool, "--bootstrap-server", first.direct_bootstrap, "--create", "--topic", "kept")
    assert made.returncode == 0, made.stderr
    first.stop()
    assert not any(runs(pid) for pid in pids)
    second = new_stack(**options)
    assert second.java(tool, "--bootstrap-server", second.direct_bootstrap, "--list").stdout.split() == ["kept"]


def test_s3_storage_takes_objects_and_leaves_nothing(new_stack: Callable[..., Stack]) -> None:
    stack = new_stack(storage="s3", proxies=False, racks=("rack-a",))
    assert stack.s3 is not None
    client = stack.s3.client()
    client.put_object(Bucket="diskless", Key="wal/one", Body=b"bytes", IfNoneMatch="*")
    assert client.get_object(Bucket="diskless", Key="wal/one")["Body"].read() == b"bytes"
    client.close()
    grpc_ports = [str(port) for port in stack.ports.s3]
    stack.stop()
    assert not stack.directory.exists()
    left = [path.name for path in Path("/tmp").glob("seaweedfs-*.sock")]
    assert not [name for name in left if any(port in name for port in grpc_ports)]


@pytest.mark.skipif(sys.platform != "linux", reason="the parent-death signal is Linux's")
@pytest.mark.stack
def test_no_server_outlives_a_killed_starter() -> None:
    with subprocess.Popen([sys.executable, "-c", START_AND_SLEEP], stdout=subprocess.PIPE, text=True) as starter:
        assert starter.stdout is not None
        started = json.loads(starter.stdout.readline())
        starter.kill()
    assert set(started["pids"]) == {"controller", "broker-1", "redis"}
    wait_until(lambda: " ".join(name for name, pid in started["pids"].items() if runs(pid)), 20, threading.Event(), str)
    # The killed starter could not remove it.
    subprocess.run(["rm", "-r", started["directory"]], check=True)
