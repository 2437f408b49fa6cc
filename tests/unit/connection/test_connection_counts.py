"""Counts of a connection, and its records that cross racks."""

from __future__ import annotations

from typing import Any

import pytest

from proxy.accounting.accounting import Accounts
from proxy.telemetry.stats import Stats
from proxy.wire.metadata import Broker
from tests.unit.brokers_double import Brokers
from tests.unit.connection_double import METADATA, connected, produce, request, response
from tests.unit.sessions import session


class InRack:
    """Every client is in one rack."""

    def __init__(self, rack: str) -> None:
        self._rack = rack

    def counted(self, *_: object) -> str:
        return self._rack


async def test_requests_and_bytes_are_the_connections_own() -> None:
    sent = await connected()
    asked, answered = request(METADATA, 1), response(1, b"answer")
    sent.send(asked)
    sent.answer(answered)
    connection = sent.connection
    assert (connection.requests, connection.session.client_id) == (1, "app")
    assert (connection.received_bytes, connection.sent_bytes) == (len(asked), len(answered))
    assert connection.address == "10.0.0.1:50000"
    assert connection.opened_ms > 0
    streamed = produce(2)
    sent.send(streamed)
    assert connection.requests == 2
    assert connection.received_bytes == len(asked) + len(streamed) == sent.stats.client_bytes_received
    connection.abort()
    connection.connection_lost(None)
    assert connection.address == "10.0.0.1"


@pytest.mark.parametrize(
    ("client_rack", "broker_rack", "crossed_times"),
    [
        ("rack-a", "rack-a", 0),
        ("rack-a", "rack-b", 1),
        ("rack-b", "rack-a", 1),
        ("rack-b", "rack-b", 2),
        ("rack-b", "rack-c", 2),
        ("", "", 0),
    ],
)
def test_records_count_for_each_time_that_they_cross(client_rack: str, broker_rack: str, crossed_times: int) -> None:
    stats = Stats()
    racks: Any = InRack(client_rack)
    cluster: Any = Brokers({1: Broker(1, "broker", 9092, broker_rack)})
    accounts, client = Accounts("rack-a", cluster=cluster, racks=racks, stats=stats), session(node_id=1)
    count = accounts.classic(client, "app", "produce")
    count("orders", 10)
    count("payments", 1)
    assert client.crossed_bytes == 11 * crossed_times
    accounts.fetched(client, "app", "classic", broker_rack)("orders", 100)
    assert client.crossed_bytes == 111 * crossed_times
    accounts.diskless(client, "app", "fetch")("events", 1_000)
    in_other_rack = client_rack not in ("rack-a", "")
    assert client.crossed_bytes == 111 * crossed_times + 1_000 * in_other_rack
    assert sum(size for _, _, size in stats.all_record_bytes()) == 1_111
