"""A broker with an ID outside of `broker_node_ids`: clients reach it, or the operator sees that they cannot."""

from __future__ import annotations

import socket
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka.admin import AdminClient
from prometheus_client.parser import text_string_to_metric_families

from proxy.demo.admin import get
from proxy.demo.ports import HOST, ReservedPorts
from proxy.demo.proxies import merged
from proxy.demo.stack import Stack
from tests.support.checking import findings, running, settings_of_another_proxy, written
from tests.support.confluent import produce_to, read_partitions
from tests.support.readiness import readiness, wait_ready
from tests.support.records import samples
from tests.support.topics import CLASSIC, create_topic
from tests.support.waiting import wait_for

pytestmark = pytest.mark.stack


@pytest.fixture(scope="module")
def reserved() -> Iterator[ReservedPorts]:
    reserved = ReservedPorts(None, proxies=1)
    yield reserved
    reserved.release()


def gauges(admin_url: str) -> dict[str, float]:
    status, text = get(admin_url, "/metrics", 10)
    assert status == 200
    return {
        sample.name.removeprefix("diskless_proxy_"): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
        if sample.name.startswith("diskless_proxy_brokers")
    }


def port_findings(path: Path) -> list[str]:
    return [one["level"] for one in findings(path) if one["kind"] == "ports" and "broker" in one["text"]]


@pytest.mark.parametrize("workers", [1, 2])
def test_its_port_is_bound_while_the_proxy_runs(
    stack: Stack, reserved: ReservedPorts, tmp_path: Path, workers: int
) -> None:
    settings: dict[str, Any] = merged(
        settings_of_another_proxy(stack, reserved),
        {
            "proxy_id": f"joining-{workers}",
            "workers": workers,
            "brokers": {"metadata_refresh_ms": 200},
            # Other clients of the rack do not get this proxy.
            "listeners": {"name": "joining", "broker_node_ids": "1"},
        },
    )
    start, bootstrap = settings["listeners"]["broker_port_start"], settings["listeners"]["bootstrap_port"]
    admin_url = f"http://{HOST}:{settings['admin']['port']}"
    path = written(tmp_path, settings)
    clients = {"bootstrap.servers": f"{HOST}:{bootstrap}"}

    def named() -> dict[int, int]:
        return {one.id: one.port for one in AdminClient(clients).list_topics(timeout=30).brokers.values()}

    holder = socket.create_server((HOST, start + 3))
    with holder, running(path):
        wait_ready(admin_url)
        wait_for(lambda: named() == {1: start + 1, 2: start + 2}, "two brokers are named")
        status, text = readiness(admin_url)
        assert status == 200
        assert text.startswith(
            f"ready, but brokers: clients do not get the address of broker 3 (3: can't listen on {HOST}:"
        )
        assert gauges(admin_url) == {"brokers": 3, "brokers_without_port": 1, "brokers_unlisted": 1}
        # This happens as soon as a heartbeat has reported the proxy's ports.
        wait_for(lambda: port_findings(path) == ["error", "warning"], "check finds one port taken, and one unlisted")
        assert readiness(admin_url, "api/overview")[1].count("clients do not get the address of broker 3") == 1
        holder.close()
        everyone = {1: start + 1, 2: start + 2, 3: start + 3}
        # A client that hears of fewer brokers from another worker gives up its requests to the missing one.
        wait_for(lambda: all(named() == everyone for _ in range(8)), "every worker names all brokers")
        # Each worker answers for itself.
        remark = "ready, but brokers: brokers 2, 3 joined outside of listeners.broker_node_ids"
        wait_for(lambda: readiness(admin_url)[1].startswith(remark), "the remark is about the setting alone")
        all_named = {"brokers": 3, "brokers_without_port": 0, "brokers_unlisted": 2}
        # A page of metrics takes the worker that is worst off.
        wait_for(lambda: gauges(admin_url) == all_named, "every worker has bound the port")
        topic = f"joining-{uuid.uuid4().hex[:6]}"
        create_topic(stack, topic, CLASSIC, assignment=[[2], [3]])
        sent = {0: samples(5, "joining"), 1: samples(5, "joining")}
        produce_to(clients["bootstrap.servers"], topic, sent)
        read = read_partitions(clients["bootstrap.servers"], topic, 2)
        assert [[one.value for one in partition] for partition in read] == [[one.value for one in sent[0]]] * 2
