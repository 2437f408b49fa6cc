"""The limit that applies to a client, who shares it, its value at the brokers, and a client that exceeds it."""

from __future__ import annotations

import asyncio
import struct
from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from structlog.testing import capture_logs

from proxy.brokers.upstream import BrokerUnreachable
from proxy.client.principal import ANONYMOUS
from proxy.quotas import quotas as quotas_module
from proxy.quotas.quotas import DEFAULT, ClientQuota, Quotas, QuotasRefused
from proxy.wire.errors import ProtocolError
from proxy.wire.primitives import INT16, INT32, write_count, write_string

PRECEDENCE = [
    ("alice", "app"),
    ("alice", DEFAULT),
    ("alice", None),
    (DEFAULT, "app"),
    (DEFAULT, DEFAULT),
    (DEFAULT, None),
    (None, "app"),
    (None, DEFAULT),
]
"""The most specific first, as Kafka's ClientQuotaManager lists them."""


class Clock:
    def __init__(self) -> None:
        self.now_s = 100.0

    def __call__(self) -> float:
        return self.now_s


def described(*entries, error_code=0):
    """A DescribeClientQuotas v0 response: each entry is (entity by type, value by key)."""
    out = INT32.pack(0) + INT16.pack(error_code) + write_string(None, False) + write_count(len(entries), False)
    for entity, values in entries:
        out += write_count(len(entity), False)
        for kind, name in entity.items():
            out += write_string(kind, False) + write_string(name, False)
        out += write_count(len(values), False)
        for key, value in values.items():
            out += write_string(key, False) + struct.pack(">d", value)
    return out


@given(st.sets(st.sampled_from(PRECEDENCE), min_size=1))
def test_the_most_specific_limit_holds(entities):
    quota = ClientQuota(Clock())
    quota.limits = {entity: 1000.0 + PRECEDENCE.index(entity) for entity in entities}
    first = min(entities, key=PRECEDENCE.index)
    assert quota.available_bytes("alice", "app") == 10 * quota.limits[first]


@pytest.mark.parametrize(
    ("entity", "shares"),
    [
        (("alice", "app"), set()),
        (("alice", DEFAULT), set()),
        (("alice", None), {("alice", "other")}),
        ((DEFAULT, "app"), set()),
        ((DEFAULT, DEFAULT), set()),
        ((DEFAULT, None), {("alice", "other")}),
        ((None, "app"), {("bob", "app")}),
        ((None, DEFAULT), {("bob", "app")}),
    ],
)
def test_clients_that_share_a_limit(entity, shares):
    for other in [("alice", "other"), ("bob", "app"), ("bob", "other")]:
        quota = ClientQuota(Clock())
        quota.limits = {entity: 100.0}
        assert quota.take("alice", "app", 1000) == 0
        assert (quota.take(*other, 1000) > 0) == (other in shares)


@pytest.mark.parametrize(("user", "client_id"), [("alice", None), ("alice", ""), ("", "app"), ("", None)])
def test_nobody_is_limited_by_a_name_that_he_does_not_have(user, client_id):
    quota = ClientQuota(Clock())
    quota.limits = {entity: 1000.0 + place for place, entity in enumerate(PRECEDENCE)}
    by_user, by_client_id = 1002.0, 1006.0
    limit = by_user if user else by_client_id if client_id else float("inf")
    assert quota.available_bytes(user, client_id) == 10 * limit


def test_a_fetch_that_is_not_answered_is_not_counted():
    quota = ClientQuota(Clock())
    quota.limits = {(None, "app"): 100.0}
    assert quota.take_if_any("", "app", 1200) == 0
    assert quota.take_if_any("", "app", 200) == quota.take_if_any("", "app", 200) == pytest.approx(2.0)


def test_clients_that_have_stopped_are_removed():
    clock = Clock()
    quotas = Quotas(clock, {})
    quotas.learn(described(({"client-id": None}, {"producer_byte_rate": 100.0})))
    for number in range(50):
        quotas.produce.take("", f"app-{number}", 500)
    clock.now_s += 4
    quotas.produce.take("", "app-0", 500)
    clock.now_s += 1.5
    quotas.produce.forget_idle()
    assert list(quotas.produce._buckets) == [("", "app-0")]


def test_however_many_client_ids_come_the_memory_is_bounded(monkeypatch):
    monkeypatch.setattr(quotas_module, "_MAX_BUCKETS", 10)
    quota = ClientQuota(Clock())
    quota.limits = {(None, DEFAULT): 100.0}
    for number in range(50):
        quota.take("", f"app-{number}", 1)
    assert len(quota._buckets) == 10


def test_the_brokers_answer_is_taken_over():
    quotas = Quotas(Clock(), {})
    quotas.learn(
        described(
            ({"user": "alice", "client-id": None}, {"producer_byte_rate": 1.5, "request_percentage": 50.0}),
            ({"user": None}, {"consumer_byte_rate": 2.0}),
            ({"client-id": "app"}, {"producer_byte_rate": 3.0, "consumer_byte_rate": 4.0}),
            ({"ip": "10.0.0.1"}, {"connection_creation_rate": 5.0}),
            ({"user": "free"}, {"producer_byte_rate": 0.0}),
        )
    )
    assert quotas.produce.limits == {("alice", DEFAULT): 1.5, (None, "app"): 3.0}
    assert quotas.fetch.limits == {(DEFAULT, None): 2.0, (None, "app"): 4.0}
    quotas.learn(described())
    assert not quotas.produce.limits
    assert not quotas.fetch.limits


def test_an_error_changes_nothing():
    quotas = Quotas(Clock(), {})
    quotas.learn(described(({"client-id": "app"}, {"producer_byte_rate": 3.0})))
    with pytest.raises(QuotasRefused, match="CLUSTER_AUTHORIZATION_FAILED"):
        quotas.learn(described(error_code=31))
    with pytest.raises(ProtocolError):
        quotas.learn(b"\0")
    assert quotas.produce.limits == {(None, "app"): 3.0}


def test_throttle_times_of_a_client_over_its_quotas():
    seconds = {"produce": 0.0, "fetch": 0.0}
    quotas = Quotas(Clock(), seconds)
    quotas.learn(described(({"user": "alice"}, {"producer_byte_rate": 100.0, "consumer_byte_rate": 100.0})))
    alice, other = "alice", ANONYMOUS
    assert quotas.throttle_produce(alice, "app", 1000) == 0
    assert quotas.throttle_produce(alice, "app", 150) == 1500
    assert quotas.throttle_fetch(alice, "app", 1050) == 0
    assert quotas.throttle_fetch(alice, "app", 150) == 500
    assert quotas.throttle_fetch(alice, "app", 0) == 0
    assert quotas.throttle_produce(other, "app", 1_000_000) == 0
    assert seconds == {"produce": 1.5, "fetch": 0.5}


class Brokers:
    """Answers as the test says, and ends the waiting after the last answer."""

    def __init__(self, *answers: bytes | Exception) -> None:
        self.answers = list(answers)
        self.done = asyncio.Event()
        self.asked = 0

    async def ask(self, api_key, api_version, body):
        self.asked += 1
        answer = self.answers.pop(0)
        if not self.answers:
            self.done.set()
        if isinstance(answer, Exception):
            raise answer
        return memoryview(answer)


async def kept_fresh(quotas, brokers, *, wanted=lambda: True):
    task = asyncio.create_task(quotas.keep_fresh(brokers.ask, wanted, 0.0))
    await brokers.done.wait()
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)


async def test_a_failure_is_logged_once_and_what_was_read_stays():
    good = described(({"client-id": "app"}, {"producer_byte_rate": 3.0}))
    refused = described(error_code=31)
    quotas = Quotas(Clock(), {})
    unreachable = BrokerUnreachable("gone")
    with capture_logs() as logs:
        await kept_fresh(quotas, Brokers(good, refused, unreachable, b"", good, unreachable, unreachable))
    assert [(entry["event"], entry.get("remedy")) for entry in logs] == [
        ("quotas_unreadable", "allow the proxy's own principal DescribeConfigs on Cluster"),
        ("quotas_readable_again", None),
        ("quotas_unreadable", "see the brokers' logs"),
    ]
    assert quotas.produce.limits == {(None, "app"): 3.0}


async def test_no_quota_is_requested_while_no_topic_is_diskless():
    looks = SimpleNamespace(left=5)

    def wanted():
        looks.left -= 1
        return looks.left < 0

    brokers = Brokers(described())
    await kept_fresh(Quotas(Clock(), {}), brokers, wanted=wanted)
    assert brokers.asked == 1
    assert looks.left == -1
