"""Run every scenario with every able client: a client observes the same through the proxies as at the brokers."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from proxy.demo import servers
from proxy.demo.errors import StackError
from proxy.demo.stack import Stack
from tests.conformance import scenarios
from tests.conformance.clients import CLIENTS
from tests.conformance.differences import DOCUMENTED, without_differences
from tests.conformance.model import Client
from tests.conformance.scenario import SCENARIOS, Scenario
from tests.conformance.ways import DIRECT, DISKLESS, ways_of

assert scenarios
CASES = [(scenario, client) for scenario in SCENARIOS for client in CLIENTS if scenario.needs <= client.abilities]
PAGE = Path(__file__).resolve().parents[2] / "docs" / "differences.md"


@pytest.mark.timeout(300)
@pytest.mark.parametrize(("scenario", "client"), CASES, ids=lambda one: one.name.replace(" ", "-"))
def test_a_client_observes_the_same_through_the_proxies_as_at_the_brokers(
    stack: Stack, scenario: Scenario, client: Client
) -> None:
    _needs_program(client)
    ways = [way for way in ways_of(stack) if way.name in (DIRECT, *scenario.kinds)]
    with ThreadPoolExecutor(len(ways)) as pool:
        running = {way.name: pool.submit(scenario.act, client, way) for way in ways}
    observed = {name: future.result() for name, future in running.items()}
    direct = observed.pop(DIRECT)
    for name, through in observed.items():
        if name == DISKLESS:
            assert without_differences(through) == without_differences(direct)
        else:
            assert through == direct


def test_every_difference_is_documented() -> None:
    text = PAGE.read_text()
    assert [difference for difference in DOCUMENTED if difference not in text] == []


def _needs_program(client: Client) -> None:
    if client.name.startswith("kcat"):
        try:
            servers.kcat()
        except StackError as missing:
            pytest.skip(str(missing))
