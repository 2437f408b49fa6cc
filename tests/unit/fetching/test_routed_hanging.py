"""Brokers that hang, or are slow, while classic partitions are read near."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from proxy.client.rights import ANY_ID, READ, RIGHTS, Rights, _Known
from proxy.fetching import route
from proxy.replicas.choice import LeaderReason
from tests.unit.fetching.broker_model import NEAR, leader_reads
from tests.unit.fetching.test_routed import asked, one_partition, only_partition


async def test_after_a_slow_read_only_its_partitions_are_read_elsewhere() -> None:
    proxied, _, _ = one_partition()
    proxied.shunned.shun_s, near = 60.0, proxied.brokers[NEAR]
    near.reason, near.slow = LeaderReason.TIMED_OUT, True
    await proxied.fetch(asked(12, ("t", 0, 0)))
    assert leader_reads(proxied) == {LeaderReason.TIMED_OUT: 1}
    assert proxied.shunned.of("t", 0) == {NEAR}
    assert proxied.shunned.of("t", 1) == frozenset()
    assert proxied.shunned.brokers == frozenset()


@pytest.mark.parametrize(("grace_ms", "stands"), [(30_000, True), (0, False)])
async def test_a_cached_right_expires_while_the_leader_hangs(
    grace_ms: int, stands: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(route, "_RIGHTS_WAIT_S", 0.001)
    proxied, _, _ = one_partition()
    proxied.set("brokers", security_protocol="SASL_PLAINTEXT")
    now_s = 0.0
    proxied.now = lambda: now_s
    rights = Rights(5.0, proxied.now)
    rights._known["t"] = _Known(5.0, 0, READ, ANY_ID)
    proxied.session[RIGHTS] = rights
    questions = []

    async def ask(*question: Any) -> memoryview:
        questions.append(question)
        await asyncio.Event().wait()
        raise AssertionError

    proxied.ask = ask  # type: ignore[method-assign]
    proxied.set("fetch", replica_rights_grace_ms=grace_ms)
    now_s = 6.0
    if not stands:
        await proxied.fetch(asked(11, ("t", 0, 0)))
        assert (len(questions), proxied.brokers[NEAR].asked, len(proxied.forwarded)) == (1, [], 1)
        return
    for _ in range(3):  # it has run out, and only the first waits for the leader
        assert only_partition(await proxied.fetch(asked(11, ("t", 0, 0)))).records_length == 600
    assert (len(questions), len(proxied.brokers[NEAR].asked), proxied.forwarded) == (1, 3, [])
    now_s = 5.0 + 30.0
    await proxied.fetch(asked(11, ("t", 0, 0)))
    assert (len(questions), len(proxied.brokers[NEAR].asked), len(proxied.forwarded)) == (2, 3, 1)
