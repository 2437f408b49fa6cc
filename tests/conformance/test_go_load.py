"""The load of the Go client's program: every record that it reports as acknowledged can be read."""

from __future__ import annotations

import json

import pytest

from proxy.demo import servers
from proxy.demo.stack import Stack
from tests.conformance.clients.programs import run
from tests.support.topics import KINDS, new_topic

PARTITIONS = 3


@pytest.mark.parametrize("kind", KINDS)
def test_numbers_are_acknowledged_and_read(stack: Stack, kind: str) -> None:
    topic = new_topic(stack, "go-load", kind, PARTITIONS)
    flags = ["-partitions", str(PARTITIONS), "-rate", "150", "-duration", "1s", "-key", "load", "-value-bytes", "100"]
    acknowledged = go(stack, "rack-a", "produce", topic, *flags)
    assert {event["event"] for event in acknowledged} == {"acked"}
    stored = sorted((event["partition"], event["offset"], event["number"]) for event in acknowledged)
    count = len(stored)
    assert count > PARTITIONS
    assert all(offset == number for _, offset, number in stored)
    read = go(stack, "rack-b", "consume", topic, "-numbers", "-count", str(count), "-group", f"{topic}-readers")
    numbers = [event for event in read if event["event"] == "number"]
    assert sorted((event["partition"], event["offset"], event["number"]) for event in numbers) == stored
    assert {event["key"] for event in numbers} == {"load"}


def test_an_error_that_surfaces_is_printed_and_sets_the_exit_code(stack: Stack) -> None:
    topic = new_topic(stack, "go-load-refused", "classic")
    command = [servers.kafka_go_client(), "produce", "-bootstrap", stack.bootstrap("rack-a"), "-topic", topic]
    done = run(command, b'{"partition": 7, "value": "dg=="}\n')
    assert done.returncode == 1
    assert json.loads(done.stdout)["event"] == "error"


def go(stack: Stack, rack: str, mode: str, topic: str, *flags: str) -> list[dict[str, object]]:
    """Return the events that the program printed; it must exit with code 0."""
    done = run([servers.kafka_go_client(), mode, "-bootstrap", stack.bootstrap(rack), "-topic", topic, *flags])
    assert done.returncode == 0, done.stdout.decode() + done.stderr.decode()
    return [json.loads(line) for line in done.stdout.splitlines()]
