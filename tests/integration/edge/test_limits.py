"""Clients that read nothing, and a process that runs out of file descriptors."""

from __future__ import annotations

import os
import resource
import threading
import time
import uuid
from contextlib import ExitStack
from pathlib import Path

from confluent_kafka import Producer

from benchmarks.measure import cpu_seconds, memory_mib
from proxy.demo.ports import HOST
from proxy.demo.stack import Stack
from proxy.demo.waiting import wait_until
from proxy.wire.metadata import build_metadata_request
from tests.support.bad_input import API_VERSIONS, METADATA, fetch
from tests.support.metrics import Metrics
from tests.support.raw import Raw, request
from tests.support.topics import CLASSIC, DISKLESS, create_topic, offsets

RACK = "rack-a"
BROKER = 1
VALUE_BYTES = 500_000
RECORDS = 30
PIPELINED = 60
CLIENTS = 4
"""Clients of each kind. If the proxy held everything that they request, it would take gigabytes."""
CLASSIC_MIB, DISKLESS_MIB, METADATA_MIB = 2, 16, 24
"""Memory that one client may cost: a piece of a stream, one answer, or one answer with its request before and after the
rewrite."""


def listener(stack: Stack) -> str:
    """Return BROKER's listener on the rack's proxy."""
    return f"{HOST}:{stack.ports.broker_port_start(0) + BROKER}"


def fill(stack: Stack, name: str, kind: str) -> None:
    """Create a topic with 15 MB."""
    create_topic(stack, name, kind, assignment=[[BROKER, 2, 3]] if kind == CLASSIC else None)
    producer = Producer({"bootstrap.servers": stack.bootstrap(RACK), "compression.type": "none"})
    for _ in range(RECORDS):
        producer.produce(name, os.urandom(VALUE_BYTES))
    assert not producer.flush(60)
    assert offsets(stack, name) == (0, RECORDS)


def test_clients_that_read_nothing_cost_no_more_than_their_buffers(stack: Stack) -> None:
    pid = stack.pid(f"proxy-{RACK}")
    metadata = request(METADATA, 9, build_metadata_request(9, [f"unknown-{number}" for number in range(20_000)]))
    names = {kind: f"read-nothing-{kind}-{uuid.uuid4().hex[:6]}" for kind in (DISKLESS, CLASSIC)}
    asked = {kind: fetch([name], [0]) for kind, name in names.items()}
    for kind, name in names.items():
        fill(stack, name, kind)
    for data in (*asked.values(), metadata):  # the cache's contents and first-time costs do not count
        with Raw(listener(stack)) as raw:
            raw.send(data)
            assert raw.answer()
    others = Metrics(stack, RACK).value("connections")  # connections of earlier tests' clients
    with ExitStack() as opened:
        for data, limit_mib in (
            (asked[CLASSIC], CLASSIC_MIB),
            (asked[DISKLESS], DISKLESS_MIB),
            (metadata, METADATA_MIB),
        ):
            before_mib, highest_mib, asks = memory_mib(pid), 0.0, data * PIPELINED
            silent = [opened.enter_context(Raw(listener(stack), receive_buffer_bytes=4096)) for _ in range(CLIENTS)]
            sent = [0] * CLIENTS
            for _ in range(20):
                for number, raw in enumerate(silent):
                    sent[number] += raw.send_some(asks[sent[number] :])
                time.sleep(0.1)
                highest_mib = max(highest_mib, memory_mib(pid))
            print(f"{limit_mib}: {before_mib:.1f} to {highest_mib:.1f} MiB")
            assert highest_mib - before_mib <= CLIENTS * limit_mib
            with Raw(listener(stack)) as raw:
                raw.send(asked[CLASSIC])
                assert len(raw.answer() or b"") > VALUE_BYTES
        assert Metrics(stack, RACK).value("connections") >= 3 * CLIENTS
    wait_until(
        lambda: "" if Metrics(stack, RACK).value("connections") <= others else "connections are left",
        30,
        threading.Event(),
        str,
    )


def open_descriptors(pid: int) -> int:
    """Return the number of descriptors of a process."""
    return len(list(Path(f"/proc/{pid}/fd").iterdir()))


def test_a_proxy_without_descriptors_says_so_and_recovers(stack: Stack) -> None:
    pid, log = stack.pid(f"proxy-{RACK}"), stack.process(f"proxy-{RACK}").log
    logged = log.stat().st_size
    limit = resource.prlimit(pid, resource.RLIMIT_NOFILE)
    with ExitStack() as opened:
        resource.prlimit(pid, resource.RLIMIT_NOFILE, (open_descriptors(pid) + 11, limit[1]))
        opened.callback(resource.prlimit, pid, resource.RLIMIT_NOFILE, limit)
        crowd = [opened.enter_context(Raw(listener(stack))) for _ in range(60)]
        answered = [raw for raw in crowd if raw.send(request(API_VERSIONS, 0, b"")) and raw.answer()]
        assert 1 <= len(answered) < 10
        cpu, began_s = cpu_seconds([pid]), time.monotonic()
        time.sleep(2)
        assert (cpu_seconds([pid]) - cpu) / (time.monotonic() - began_s) < 0.5, "it spins"
        for raw in answered:  # connected clients notice nothing
            assert raw.send(request(API_VERSIONS, 0, b""))
            assert raw.answer()
    with Raw(listener(stack)) as raw:
        assert raw.send(request(API_VERSIONS, 0, b""))
        assert raw.answer()
    text = log.read_text(errors="replace")[logged:]
    assert "ulimit -n" in text
    assert "Traceback" not in text
