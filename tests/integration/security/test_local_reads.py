"""Reads that the proxy makes in its own rack, with its own credentials: the client's rights and quota still apply.

The clients connect to the proxy of `rack-b` and use the listener of broker 1, which leads and is in `rack-a`.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import KafkaException
from confluent_kafka.admin import (
    AclBinding,
    AclOperation,
    AclPermissionType,
    AdminClient,
    ResourcePatternType,
    ResourceType,
)
from kio.index import load_request_schema

from proxy.demo.ports import HOST
from proxy.demo.security import ADMIN, SERVICE
from proxy.demo.stack import Stack
from proxy.wire.cold import milliseconds, nested
from tests.support.acls import GROUP, Acls
from tests.support.java_tools import JavaTools
from tests.support.local_reads import Filled, Oracle, filled_topic, read_at_home, whole
from tests.support.quotas import alter_quotas, known_limits
from tests.support.waiting import wait_for
from tests.support.whole_topics import FETCH, confluent_kafka
from tests.support.wire import TIMEOUT_SECONDS, Wire

FAR_RACK, LEADER = "rack-b", 1
TOPIC_AUTHORIZATION_FAILED = 29
GROUP_NAME = "unused"
NAMED_VERSIONS = (4, 10, 12)
LIMIT = 1 << 18
"""Bytes per second. A client that reads more slowly, because others need the machine, is not throttled."""
TOLERANCE = 0.15
BURST_BYTES = 10 * LIMIT
MEASURED_S = 4.0
WINDOWS = 3
"""Number of measurements: a machine that stalls moves bytes from one window into the next."""
FETCH_BYTES = 65_536
"""Size of a fetch; a rate is steady only if an answer is small compared with it."""


@pytest.fixture(scope="module")
def acls(secure_stack: Stack) -> Acls:
    return Acls(secure_stack)


@pytest.fixture(scope="module")
def classic(secure_stack: Stack, acls: Acls) -> Filled:
    """Create a topic that the proxies may read, and alice may not."""
    acls.revoke("alice")
    topic = filled_topic(secure_stack, "secure-local", secure_stack.security.client_settings(ADMIN))
    acls.allow(SERVICE, AclOperation.READ, topic.name)
    return topic


@pytest.fixture
def alice(secure: Stack, acls: Acls) -> Iterator[str]:
    """Give the user only the right to the group that librdkafka needs; remove all rights at the end."""
    acls.revoke("alice")
    acls.allow("alice", AclOperation.READ, GROUP_NAME, GROUP)
    yield "alice"
    acls.revoke("alice")


def far_wire(stack: Stack, user: str) -> Wire:
    """Connect to the leader's listener in the other rack."""
    port = stack.ports.broker_port_start(list(stack.proxies).index(FAR_RACK)) + LEADER
    return Wire(stack.security.connect(HOST, port, TIMEOUT_SECONDS, user))


def fetch(wire: Wire, version: int, topic: Filled) -> tuple[Any, list[Any]]:
    """Return the answer, and its partitions: those that broker 1 leads, from their beginnings."""
    topic_type = nested(load_request_schema(FETCH, version), "topics")
    partition_type = nested(topic_type, "partitions")
    values = {
        "fetch_offset": 0,
        "current_leader_epoch": -1,
        "last_fetched_epoch": -1,
        "log_start_offset": -1,
        "partition_max_bytes": FETCH_BYTES,
    }
    partitions = tuple(
        partition_type(**of(partition_type, {"partition": index, **values}))
        for index, leader in enumerate(topic.leaders)
        if leader == LEADER
    )
    schema: Any = load_request_schema(FETCH, version)
    asked = {
        "replica_id": -1,
        "max_wait": milliseconds(500),
        "min_bytes": 1,
        "max_bytes": FETCH_BYTES,
        "isolation_level": 0,
        "session_id": 0,
        "session_epoch": -1,
        "topics": (topic_type(topic=topic.name, partitions=partitions),),
        "forgotten_topics_data": (),
        "rack_id": "",
    }
    answer = wire.ask(FETCH, version, **of(schema, asked))
    return answer, [one for topic in answer.responses for one in topic.partitions]


def of(entity: Any, values: dict[str, Any]) -> dict[str, Any]:
    """Return the fields that the version has."""
    return {name: value for name, value in values.items() if name in entity.__dataclass_fields__}


def error_codes(wire: Wire, version: int, topic: Filled) -> set[int]:
    """Return the error codes of all partitions."""
    return {int(one.error_code) for one in fetch(wire, version, topic)[1]}


def wait_until_read_near(stack: Stack, tools: JavaTools, topic: Filled) -> None:
    """Wait until the proxy reads near for users who may read everything: brokers learn of an ACL a little later."""

    def near() -> bool:
        oracle = Oracle(stack, tools, topic.name)
        assert error_codes(wire, 4, topic) == {0}
        return list(oracle.by_rack()) == [FAR_RACK]

    with far_wire(stack, ADMIN) as wire:
        wait_for(near, "records come from the rack of the proxy")


def test_the_clients_rights_decide_and_its_records_come_from_its_rack(
    secure: Stack, tools: JavaTools, acls: Acls, classic: Filled, alice: str, tmp_path: Path
) -> None:
    wait_until_read_near(secure, tools, classic)
    with far_wire(secure, alice) as wire:
        oracle = Oracle(secure, tools, classic.name)
        for version in NAMED_VERSIONS:
            assert error_codes(wire, version, classic) == {TOPIC_AUTHORIZATION_FAILED}
        acls.allow(alice, AclOperation.DESCRIBE, classic.name)
        for version in NAMED_VERSIONS:
            assert error_codes(wire, version, classic) == {TOPIC_AUTHORIZATION_FAILED}
        assert oracle.by_rack() == {}

        acls.allow(alice, AclOperation.READ, classic.name)
        wait_for(lambda: error_codes(wire, 4, classic) == {0}, "alice may read")
        settings = secure.security.client_settings(alice)
        what = whole(secure, FAR_RACK, classic, tools, tmp_path, settings=settings)
        read_at_home(secure, tools, classic.name, FAR_RACK, lambda: confluent_kafka(what), classic.records)

        # A revoked right is denied on the same connection.
        acls.revoke(alice)
        wait_for(lambda: error_codes(wire, 4, classic) == {TOPIC_AUTHORIZATION_FAILED}, "alice may not read")
        oracle = Oracle(secure, tools, classic.name)
        for version in NAMED_VERSIONS:
            assert error_codes(wire, version, classic) == {TOPIC_AUTHORIZATION_FAILED}
        assert oracle.by_rack() == {}


def test_a_client_library_gets_the_authorization_error(
    secure: Stack, tools: JavaTools, acls: Acls, classic: Filled, alice: str, tmp_path: Path
) -> None:
    wait_until_read_near(secure, tools, classic)
    acls.allow(alice, AclOperation.DESCRIBE, classic.name)
    settings = secure.security.client_settings(alice)
    oracle = Oracle(secure, tools, classic.name)
    with pytest.raises((AssertionError, KafkaException), match="TOPIC_AUTHORIZATION_FAILED"):
        confluent_kafka(whole(secure, FAR_RACK, classic, tools, tmp_path, settings=settings))
    assert oracle.by_rack() == {}


def test_if_the_proxy_itself_may_not_read_leaders_serve_and_are_counted(
    secure: Stack, tools: JavaTools, acls: Acls, alice: str, tmp_path: Path
) -> None:
    settings = secure.security.client_settings(ADMIN)
    topic = filled_topic(secure, "secure-refused", settings)
    refuse(secure, topic.name)
    acls.allow(alice, AclOperation.READ, topic.name)
    with far_wire(secure, alice) as wire:
        wait_for(lambda: error_codes(wire, 4, topic) == {0}, "alice may read")
    oracle = Oracle(secure, tools, topic.name)
    asked = whole(secure, FAR_RACK, topic, tools, tmp_path, settings=secure.security.client_settings(alice))
    assert confluent_kafka(asked) == topic.records
    assert oracle.by_rack()["rack-a"] == oracle.leader_bytes()


def refuse(stack: Stack, topic: str) -> None:
    """Deny the proxies' principal to read the topic; return when its replicas obey."""
    client = AdminClient({"bootstrap.servers": stack.direct_bootstrap, **stack.security.client_settings(ADMIN)})
    binding = AclBinding(
        ResourceType.TOPIC,
        topic,
        ResourcePatternType.LITERAL,
        f"User:{SERVICE}",
        "*",
        AclOperation.READ,
        AclPermissionType.DENY,
    )
    client.create_acls([binding], request_timeout=30)[binding].result(40)


@pytest.fixture
def limited(secure: Stack, acls: Acls, classic: Filled, alice: str) -> Iterator[str]:
    """Give alice the right to read, and a quota of LIMIT by user name, which the proxy has read."""
    acls.allow(alice, AclOperation.READ, classic.name)
    known = known_limits(secure, FAR_RACK)
    alter(secure, {(("user", alice),): float(LIMIT)})
    try:
        wait_for(lambda: known_limits(secure, FAR_RACK) == known + 2, "the proxy has read the quota")
        yield alice
    finally:
        alter(secure, {(("user", alice),): None})
        wait_for(lambda: known_limits(secure, FAR_RACK) == known, "the proxy has forgotten the quota")


def alter(stack: Stack, limits: dict[Any, float | None]) -> None:
    """Alter quotas of entities, as the administrator."""
    host, _, port = stack.bootstrap(FAR_RACK).rpartition(":")
    connect: Callable[..., Any] = stack.security.connect

    def ask(frame: bytes) -> bytes:
        with connect(host, int(port), TIMEOUT_SECONDS) as connection, connection.makefile("rb") as stream:
            connection.sendall(frame)
            read: bytes = stream.read(int.from_bytes(stream.read(4), "big"))
            return read

    alter_quotas(ask, limits)


def test_a_limited_user_gets_its_rate_although_the_proxy_reads(
    secure: Stack, tools: JavaTools, classic: Filled, limited: str
) -> None:
    wait_until_read_near(secure, tools, classic)
    oracle = Oracle(secure, tools, classic.name)
    throttled_ms: list[float] = []
    rates: list[float] = []
    size = 0

    def take(wire: Wire) -> None:
        nonlocal size
        answer, partitions = fetch(wire, 4, classic)
        throttled_ms.append(answer.throttle_time.total_seconds() * 1000)
        size += sum(len(one.records or b"") for one in partitions)

    with far_wire(secure, limited) as wire:
        wait_for(lambda: error_codes(wire, 4, classic) == {0}, "alice may read")
        deadline = time.monotonic() + 2 * TIMEOUT_SECONDS
        while size < BURST_BYTES or not any(throttled_ms):
            take(wire)
            assert time.monotonic() < deadline, "nobody throttles"
        while len(rates) < WINDOWS and pytest.approx(LIMIT, rel=TOLERANCE) not in rates:
            began_s, before = time.monotonic(), size
            while time.monotonic() < began_s + MEASURED_S:
                take(wire)
            rates.append((size - before) / (time.monotonic() - began_s))
    assert pytest.approx(LIMIT, rel=TOLERANCE) in rates
    served = oracle.by_rack()
    assert served.pop(FAR_RACK) > BURST_BYTES
    assert sum(served.values()) == oracle.leader_bytes()
