"""What a mixed Produce holds when its client goes: the batches are with the WAL buffer, and stay charged."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from proxy.errors import NONE, REQUEST_TIMED_OUT
from proxy.produce_offload import _ClassicHalf, _PendingProduce
from proxy.wal.outcome import Outcome
from proxy.wire.produce import PartitionProduced
from tests.unit.test_connection import PRODUCE, connected, produce, turns


@pytest.mark.parametrize("timed_out", ["never", "before", "after"])
async def test_batches_stay_charged_until_they_are_settled_though_the_client_has_gone(timed_out):
    opened: list[Any] = []

    def mixed(connection, request):
        parsed: Any = SimpleNamespace(acks=-1, version=3)
        pending = _PendingProduce(connection, request, connection.open_slot(request), parsed)
        pending._open += 1  # one batch
        pending._accepted = pending._classic_awaited = True
        connection.send_upstream([request.frame], _ClassicHalf(request, pending))
        opened.append(pending)

    sent = await connected(handlers={PRODUCE: mixed})
    sent.topics.nothing_diskless = False
    sent.send(produce(1))
    (pending,) = opened
    if timed_out == "before":
        pending._time_out()
    sent.client.close()
    sent.broker.close()
    await turns()
    if timed_out == "after":
        pending._time_out()
    assert sent.memory.used_bytes == len(produce(1)) - 4
    pending._settle([PartitionProduced(0, REQUEST_TIMED_OUT)], 0, Outcome(NONE))
    assert sent.memory.used_bytes == 0
