"""SIGHUP to a proxy that serves clients: the new file applies from then on, unless it is unusable."""

from __future__ import annotations

import os
import signal
import uuid
from pathlib import Path

import yaml
from confluent_kafka.admin import ConfigResource

from proxy.demo.ports import HOST
from proxy.demo.process import Process
from proxy.demo.stack import Stack
from tests.support.bad_start import Ports, command
from tests.support.confluent import produce_to, read_partitions
from tests.support.metrics import Metrics
from tests.support.readiness import readiness, wait_not_ready
from tests.support.records import samples
from tests.support.reloading import NEED_RESTART, REFUSED, RELOADED, hang_up, lines_with, reloaded, wait_lines
from tests.support.topics import CLASSIC, DISKLESS, admin, create_topic

RACK = "rack-b"


def kind_of_new_topic(stack: Stack, prefix: str) -> str:
    """Return the kind of a new topic with this prefix and no configs of its own; write and read a record."""
    name = f"{prefix}-{uuid.uuid4().hex[:6]}"
    create_topic(stack, name, CLASSIC, rack=RACK)
    produce_to(stack.bootstrap(RACK), name, {0: samples(3, "reload", plain=True)})
    (records,) = read_partitions(stack.bootstrap(RACK), name, 1)
    assert len(records) == 3
    client, resource = admin(stack, RACK), ConfigResource(ConfigResource.Type.TOPIC, name)
    configs = client.describe_configs([resource], request_timeout=30)[resource].result(40)
    client.delete_topics([name], operation_timeout=30)[name].result(40)
    return DISKLESS if "diskless.enable" in configs and configs["diskless.enable"].value == "true" else CLASSIC


def test_a_changed_file_applies_from_then_on_and_a_bad_one_does_not(stack: Stack) -> None:
    path, process = stack.config_path(RACK), stack.process(f"proxy-{RACK}")
    pid = process.pid
    prefix = f"reloaded-{uuid.uuid4().hex[:6]}"
    assert kind_of_new_topic(stack, prefix) == CLASSIC
    changes = {
        "default_diskless_topics": [f"{prefix}-.*"],
        "limits": {"max_request_bytes_in_memory": 123_456_789},
        "leader_choice": "round_robin",
    }
    restarts = len(lines_with(process.log, NEED_RESTART))
    with reloaded(stack, RACK, changes) as (line,):
        assert "default_diskless_topics" in line
        assert "leader_choice" not in line
        assert "leader_choice" in wait_lines(process.log, NEED_RESTART, restarts + 1)[-1]
        assert Metrics(stack, RACK).value("held_request_bytes_limit") == 123_456_789
        assert kind_of_new_topic(stack, prefix) == DISKLESS

        good = path.read_text()
        path.write_text(yaml.safe_dump(yaml.safe_load(good) | {"default_diskless_topics": [], "colour": "red"}))
        (line,) = hang_up(pid, process.log, REFUSED)
        assert "colour: no such setting" in line
        assert kind_of_new_topic(stack, prefix) == DISKLESS, "nothing of the file holds"
        path.write_text(good)
    assert kind_of_new_topic(stack, prefix) == CLASSIC
    assert process.running
    assert process.pid == pid
    assert readiness(stack.admin_url(RACK)) == (200, "ready")


def test_a_proxy_that_starts_or_ends_survives_sighup(tmp_path: Path) -> None:
    ports = Ports()
    process = Process("proxy", command(tmp_path, ports, {}), tmp_path / "proxy.log")
    process.start()
    try:
        wait_not_ready(f"http://{HOST}:{ports.admin}", "redis.url")
        path = tmp_path / "proxy.yaml"
        path.write_text(yaml.safe_dump(yaml.safe_load(path.read_text()) | {"log_level": "debug", "workers": 2}))
        (line,) = hang_up(process.pid, process.log, RELOADED)
        assert "log_level" in line
        assert "workers" in wait_lines(process.log, NEED_RESTART)[-1]
        process.terminate()
        if process.running:
            os.kill(process.pid, signal.SIGHUP)
        assert process.wait_ended() == 0
    finally:
        process.kill()
