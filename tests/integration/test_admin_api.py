"""The admin port's JSON, and the commands that read it, for a client whose rack is wrong at a real proxy."""

from __future__ import annotations

import json
import subprocess
import sys
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from confluent_kafka import Producer

from proxy.demo.stack import Stack
from tests.support.admin import ask, ask_ok
from tests.support.confluent import produce, read
from tests.support.raw import Raw
from tests.support.records import samples
from tests.support.topics import CLASSIC, DISKLESS, create_topic, delete_topic, new_topic
from tests.support.waiting import wait_for

RACK = "rack-a"
CLIENT_ID = "astray[bold]\x1b[31m\u202e"
FAR = f"admin-api-far-{uuid.uuid4().hex[:6]}"
COUNT = 50


def command(*arguments: str) -> str:
    """Return the output of a command; it must succeed."""
    done = subprocess.run(
        [sys.executable, "-m", "proxy", *arguments], capture_output=True, text=True, timeout=100, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


@contextmanager
def astray(stack: Stack) -> Iterator[Producer]:
    """Connect a client that reads a topic whose leader is in another rack than the proxy."""
    producer = Producer({"bootstrap.servers": stack.bootstrap(RACK), "client.id": CLIENT_ID})
    for _ in range(COUNT):
        producer.produce(FAR, b"x" * 1_000)
    assert producer.flush(60) == 0
    yield producer
    producer.flush(1)


@pytest.fixture
def far_topic(stack: Stack) -> Iterator[None]:
    create_topic(stack, FAR, CLASSIC, assignment=[[3, 1, 2]])
    yield
    delete_topic(stack, FAR)


@pytest.mark.usefixtures("far_topic")
def test_connections_that_cross_are_listed_with_bytes_rate_and_cost(stack: Stack) -> None:
    url = stack.admin_url(RACK)
    diskless = new_topic(stack, "admin-api", DISKLESS)
    sent = samples(COUNT, "admin-api", plain=True)
    produce(stack.bootstrap(RACK), diskless, sent)
    assert len(read(stack.bootstrap(RACK), diskless)) == COUNT
    with astray(stack):
        connections = ask_ok(url, "connections?contains=ASTRAY")
        rows = [row for row in connections["connections"] if row["crossed_bytes"]]
        # There are several if the client had to reconnect.
        assert sum(row["crossed_bytes"] for row in rows) > COUNT * 1_000
        row = rows[0]
        assert row["client_id"] == "astray[bold]\\x1b[31m\\u202e"
        assert row["received_bytes"] > row["crossed_bytes"]
        assert (row["rack"], row["rack_from"], row["worker"]) == (RACK, "proxy", None)
        assert row["listener"] == "default broker 3"
        assert "librdkafka" in row["software"] or "rdkafka" in row["software"]
        assert row["requests"] >= 2
        shown = command("connections", "--admin", url, "--crossing", "--contains", "astray")
        assert "astray[bold]\\x1b[31m" in shown
        assert "\x1b" not in shown

    def named() -> dict[str, dict[str, Any]]:
        found = {topic["name"]: topic for topic in ask_ok(url, "topics?contains=admin-api")["topics"]}
        return found if FAR in found else {}

    topics = wait_for(named, "the brokers have not said which topic's bytes they were")
    # Bytes that the client resends cross again.
    assert topics[FAR]["crossed_bytes"] >= topics[FAR]["produced_bytes"] > COUNT * 1_000
    assert topics[FAR]["diskless"] is False
    assert (topics[diskless]["diskless"], topics[diskless]["partitions"]) == (True, 1)
    assert topics[diskless]["crossed_bytes"] == 0
    assert topics[diskless]["fetched_bytes"] >= topics[diskless]["produced_bytes"] > 0
    overview = ask_ok(url, "overview")
    flow = next(
        flow
        for flow in overview["flows"]
        if (flow["kind"], flow["direction"]) == ("classic", "produce")
        and (flow["client_rack"], flow["serving_rack"]) == (RACK, "rack-c")
    )
    assert flow["crosses"]
    assert flow["cost_usd"] > 0
    # The newest may still wait for its commit.
    segments = [one for one in ask_ok(url, "segments")["segments"] if one["commit_ms"] is not None]
    assert segments[0]["bytes"] > 0
    assert segments[0]["commit_ms"] >= 0
    wait_for(lambda: bool(ask_ok(url, "history")["samples"]), "a point of the plots")
    assert ask_ok(url, "history")["samples"][-1].keys() >= {"time_ms", "produce_p99_ms", "cross_rack_usd_per_hour"}


def test_the_port_and_the_coordinator_list_the_fleet(stack: Stack) -> None:
    fleet = ask_ok(stack.admin_url(RACK), "fleet")
    assert {proxy["rack"] for proxy in fleet["proxies"]} == set(stack.proxies)
    (this,) = [proxy for proxy in fleet["proxies"] if proxy["this"]]
    assert (this["rack"], this["serving"]) == (RACK, True)
    assert this["version"]
    assert this["age_ms"] >= 0
    assert [(broker["node_id"], broker["rack"]) for broker in fleet["brokers"]] == [
        (node, rack) for node, rack in sorted(stack.kafka.racks.items())
    ]
    listed = json.loads(command("fleet", "--config", str(stack.config_path(RACK)), "--json"))["proxies"]
    assert [(proxy["rack"], proxy["state"]) for proxy in listed] == [(rack, "ready") for rack in sorted(stack.proxies)]
    assert f"http://{listed[0]['admin']}" == stack.admin_url(RACK)


def test_errors_are_folded_with_their_cause(stack: Stack) -> None:
    url = stack.admin_url(RACK)

    def rejected() -> list[dict[str, Any]]:
        # One error per second is logged; it may be another test's.
        with Raw(stack.bootstrap(RACK)) as client:
            client.send(b"GET / HTTP/1.1\r\n\r\n")
            assert client.answer() is None
        return [one for one in ask_ok(url, "errors")["errors"] if "HTTP" in one["text"]]

    wait_for(lambda: bool(rejected()), "the error is reported")
    first, second = rejected()[0], rejected()[0]
    assert first["event"] == "client_rejected"
    assert second["count"] >= first["count"] >= 1
    assert "Recent errors" in command("top", "--admin", url)


def test_without_a_token_nothing_changes(stack: Stack) -> None:
    url = stack.admin_url(RACK)
    for path, method, body in (("drain", "POST", None), ("log-level", "PUT", {"level": "debug"})):
        status, answer = ask(url, path, method, token="guess", body=body)
        assert status == 403
        assert "admin.token_file" in answer["error"]
    assert ask_ok(url, "overview")["state"] == "ready"
