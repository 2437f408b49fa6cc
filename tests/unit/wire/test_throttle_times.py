"""The throttle time of a merged answer is the longer of the broker's and the proxy's."""

from __future__ import annotations

from typing import Any

import pytest

from proxy.wire import cold, fetch_response, produce
from proxy.wire.fetch_response import TopicFetched
from proxy.wire.fetch_walk import walk_fetch_response
from proxy.wire.produce import PartitionProduced, TopicProduced

PAIRS = [(0, 0, 0), (70, 0, 70), (0, 30, 30), (70, 30, 70), (30, 70, 70)]
PRODUCE, FETCH = 0, 1


def throttle_ms(response: Any) -> int:
    return int(response.throttle_time.total_seconds() * 1000)


@pytest.mark.parametrize("version", range(produce.LOWEST_VERSION, produce.HIGHEST_VERSION + 1))
@pytest.mark.parametrize(("brokers_ms", "own_ms", "told_ms"), PAIRS)
def test_produce(version, brokers_ms, own_ms, told_ms):
    first, second = (bytes([number]) * 16 if version >= produce.FIRST_TOPIC_ID else f"t{number}" for number in (1, 2))
    broker = produce.build_produce_response(version, [TopicProduced(first, [PartitionProduced(0, 0)])], brokers_ms)
    own = [TopicProduced(second, [PartitionProduced(1, 0)])]
    merged = b"".join(produce.merge_produce_response(broker, version, own, own_ms))
    response = cold.read_response(PRODUCE, version, merged)
    assert throttle_ms(response) == told_ms
    assert len(response.responses) == 2
    whole = cold.read_response(PRODUCE, version, produce.build_produce_response(version, own, own_ms))
    assert throttle_ms(whole) == own_ms


@pytest.mark.parametrize("version", range(fetch_response.LOWEST_VERSION, fetch_response.HIGHEST_VERSION + 1))
def test_fetch(version):
    topic: str | bytes = bytes(16) if version >= fetch_response.FIRST_TOPIC_ID else "classic"
    body = b"".join(fetch_response.build_fetch_response(version, 0, [TopicFetched(topic, [])], 70))
    assert walk_fetch_response(body, version).throttle_ms == 70
    response = cold.read_response(FETCH, version, body)
    assert throttle_ms(response) == 70
    assert len(response.responses) == 1
