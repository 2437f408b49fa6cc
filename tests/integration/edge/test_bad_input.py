"""The proxy answers bad input exactly as a broker does; if a broker closes the connection, so does the proxy."""

from __future__ import annotations

import time

import pytest

from proxy.demo.ports import HOST
from proxy.demo.stack import Stack
from tests.support.bad_input import CLOSED, KINDS, Bad
from tests.support.raw import Raw
from tests.support.topics import CLASSIC, DISKLESS, create_topic, offsets

RACK = "rack-a"
BROKER = 1
DIFFERENT = {"a partition twice in Produce": {DISKLESS: [(0, 42)]}}
"""Intended differences. A broker silently drops all but the last batch of such a partition; the proxy takes only the
first one."""


@pytest.fixture(scope="module")
def topics(running_stack: Stack) -> dict[str, str]:
    """Create one topic of either kind, led by BROKER."""
    names = {kind: f"bad-input-{kind}" for kind in (CLASSIC, DISKLESS)}
    create_topic(running_stack, names[CLASSIC], CLASSIC, assignment=[[BROKER, 2, 3]])
    create_topic(running_stack, names[DISKLESS], DISKLESS)
    for name in names.values():
        offsets(running_stack, name)
    return names


def addresses(stack: Stack) -> tuple[str, str]:
    """Return the addresses of the broker itself, and of its listener on the proxy."""
    return stack.kafka.address(BROKER), f"{HOST}:{stack.ports.broker_port_start(0) + BROKER}"


def outcome(address: str, bad: Bad, topic: str) -> object:
    """Return the comparable part of the answers, or CLOSED."""
    with Raw(address) as raw:
        raw.send(bad.data(topic))
        answers: list[object] = []
        for _ in range(bad.answers or 1):
            answer = raw.answer()
            if answer is None:
                return CLOSED
            answers.append(bad.read(answer))
        return answers


@pytest.mark.parametrize("bad", KINDS, ids=lambda bad: bad.name)
def test_the_proxy_answers_like_a_broker(stack: Stack, topics: dict[str, str], bad: Bad) -> None:
    direct, proxied = addresses(stack)
    broker = outcome(direct, bad, topics[CLASSIC])
    assert (broker == CLOSED) == (not bad.answers)
    kinds = [DISKLESS] if bad.is_large else [CLASSIC, DISKLESS]
    found = {kind: outcome(proxied, bad, topics[kind]) for kind in kinds}
    assert found == dict.fromkeys(kinds, broker) | DIFFERENT.get(bad.name, {})


@pytest.mark.parametrize(
    ("name", "cause"),
    [
        ("a TLS handshake", "a TLS handshake came on a plaintext listener"),
        ("HTTP", "an HTTP request came on a Kafka listener"),
        ("the largest length", "more than limits.max_frame_bytes"),
        ("an API of brokers among themselves", "LeaderAndIsr, which brokers use among themselves"),
    ],
)
def test_the_log_names_the_likely_cause_at_most_once_a_second(stack: Stack, name: str, cause: str) -> None:
    (bad,) = [kind for kind in KINDS if kind.name == name]
    _, proxied = addresses(stack)
    log = stack.process(f"proxy-{RACK}").log
    logged, tries, began_s = log.stat().st_size, 0, time.monotonic()
    while cause not in log.read_text(errors="replace")[logged:]:
        assert outcome(proxied, bad, "") == CLOSED
        tries += 1
        assert time.monotonic() < began_s + 30
    for _ in range(50):
        outcome(proxied, bad, "")
    lines = log.read_text(errors="replace")[logged:].count("client_rejected")
    assert 1 <= lines <= time.monotonic() - began_s + 2
