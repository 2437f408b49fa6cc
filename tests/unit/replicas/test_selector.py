"""Whether brokers redirect clients, according to the last answer of one of them."""

from __future__ import annotations

from typing import Any

import pytest
import structlog

from proxy.brokers.broker_defaults import DefaultsRefused
from proxy.replicas import selector
from proxy.replicas.selector import ReplicaSelector

CLASS = "org.apache.kafka.common.replica.RackAwareReplicaSelector"


@pytest.mark.parametrize(("value", "redirects"), [(CLASS, True), (None, False), ("", False)])
async def test_brokers_with_a_selector_redirect(monkeypatch, value, redirects) -> None:
    async def ask(cluster: Any, names: tuple[str, ...]) -> dict[str, str | None]:
        return dict.fromkeys(names, value)

    monkeypatch.setattr(selector, "broker_configs", ask)
    one = ReplicaSelector(object(), interval_s=60)  # type: ignore[arg-type]
    assert not one.redirects
    await one.refresh()
    assert one.redirects is redirects


async def test_the_last_answer_stays_while_no_broker_can_be_asked(monkeypatch) -> None:
    answers: list[Any] = [{"replica.selector.class": CLASS}, DefaultsRefused("no"), DefaultsRefused("no")]

    async def ask(cluster: Any, names: tuple[str, ...]) -> dict[str, str | None]:
        answer = answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer

    monkeypatch.setattr(selector, "broker_configs", ask)
    one = ReplicaSelector(object(), interval_s=60)  # type: ignore[arg-type]
    with structlog.testing.capture_logs() as logged:
        for _ in range(3):
            await one.refresh()
    assert one.redirects
    assert [line["event"] for line in logged] == ["replica_selector_unknown"]
