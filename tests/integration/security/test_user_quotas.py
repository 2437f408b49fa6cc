"""Quotas by user apply to diskless traffic, whatever mechanism the user authenticates with."""

from __future__ import annotations

import uuid
from collections.abc import Iterator

import pytest
from confluent_kafka import Producer, ThrottleEvent
from confluent_kafka.admin import AdminClient, NewTopic

from proxy.demo.security import ADMIN, MECHANISMS
from proxy.demo.stack import Stack
from tests.support.quotas import alter_quotas, known_limits, wait_until_known
from tests.support.waiting import wait_for

RACK = "rack-a"
LIMIT, ANOTHERS_LIMIT = 100.0, 1.0
"""Bytes per second of the user that produces, and of one that does not."""
SIZE = 11_000
TRIES = 2
TIMEOUT_S = 30.0


def alter(stack: Stack, limits: dict[tuple[str, str], float | None]) -> None:
    """Set byte rates of (user, client ID)."""
    host, _, port = stack.bootstrap(RACK).rpartition(":")

    def ask(frame: bytes) -> bytes:
        with stack.security.connect(host, int(port), TIMEOUT_S) as connection, connection.makefile("rb") as stream:
            connection.sendall(frame)
            return stream.read(int.from_bytes(stream.read(4), "big"))

    alter_quotas(ask, {(("user", user), ("client-id", name)): limit for (user, name), limit in limits.items()})


@pytest.fixture(scope="module")
def client_ids(secure_stack: Stack) -> Iterator[dict[str, list[str]]]:
    """Return a client ID for each try of each mechanism, because a burst is spent once. `admin` and `alice` have quotas
    by it."""
    ids = {mechanism: [f"{mechanism}-{uuid.uuid4().hex[:6]}" for _ in range(TRIES)] for mechanism in MECHANISMS}
    limits: dict[tuple[str, str], float | None] = {}
    for client_id in (one for several in ids.values() for one in several):
        limits |= {(ADMIN, client_id): LIMIT, ("alice", client_id): ANOTHERS_LIMIT}
    known = known_limits(secure_stack, RACK)
    try:
        alter(secure_stack, limits)
        yield ids
    finally:
        alter(secure_stack, dict.fromkeys(limits))
        wait_until_known(secure_stack, RACK, known)


@pytest.fixture(scope="module")
def topic(secure_stack: Stack, client_ids: dict[str, list[str]]) -> str:
    """Create a diskless topic, after whose creation the proxy has read the quotas."""
    security = secure_stack.security
    client = AdminClient({"bootstrap.servers": secure_stack.bootstrap(RACK), **security.client_settings(ADMIN)})
    name = f"user-quotas-{uuid.uuid4().hex[:6]}"
    new = NewTopic(name, 1, replication_factor=2, config={"diskless.enable": "true"})
    client.create_topics([new], request_timeout=30)[name].result(40)
    limits = 4 * TRIES * len(client_ids)
    wait_for(lambda: known_limits(secure_stack, RACK) >= limits, "the proxy has read the quotas")
    return name


@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_the_users_quota_applies(secure: Stack, client_ids: dict[str, list[str]], topic: str, mechanism: str) -> None:
    throttled_s: list[float] = []

    def throttled(event: ThrottleEvent) -> None:
        if event.throttle_time:
            throttled_s.append(event.throttle_time)

    settings = secure.security.client_settings(ADMIN, mechanism) | {"client.id": client_ids[mechanism].pop()}
    producer = Producer({"bootstrap.servers": secure.bootstrap(RACK), **settings, "throttle_cb": throttled})
    producer.produce(topic, bytes(SIZE))
    assert producer.flush(TIMEOUT_S) == 0
    wait_for(lambda: producer.poll(0.1) >= 0 and bool(throttled_s), "the producer gets its throttle time")
    assert throttled_s == [pytest.approx((SIZE - 10 * LIMIT) / LIMIT, rel=0.05)]
