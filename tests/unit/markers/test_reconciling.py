"""Brokers' answers are the end of an open transaction only if they are about no other one."""

from __future__ import annotations

import pytest

from proxy.coordinator.interface_transactions import OpenTransaction
from proxy.markers.reconciling import is_end_of
from proxy.wire.transaction_state import TransactionState

OPEN = OpenTransaction(bytes(16), 0, 70, 4, 100, 3, 10_000)
ENDED = TransactionState(0, "id", "CompleteCommit", 70, 4, {}, 9_000)


@pytest.mark.parametrize(
    "state",
    [
        ENDED,
        ENDED._replace(state="CompleteAbort"),
        ENDED._replace(producer_epoch=5),
        ENDED._replace(start_ms=10_000),
    ],
)
def test_the_end_of_the_transaction(state: TransactionState) -> None:
    assert is_end_of(OPEN, state)


@pytest.mark.parametrize(
    "state",
    [
        ENDED._replace(state="Ongoing"),
        ENDED._replace(state="PrepareCommit"),
        ENDED._replace(state="Empty", start_ms=-1),
        ENDED._replace(start_ms=-1),
        ENDED._replace(producer_id=71),
        ENDED._replace(producer_epoch=3),
        ENDED._replace(producer_epoch=6),
        ENDED._replace(start_ms=10_001),
    ],
    ids=["ongoing", "prepared", "empty", "unknown-start", "producer", "lower-epoch", "later-epoch", "later-start"],
)
def test_no_guess(state: TransactionState) -> None:
    assert not is_end_of(OPEN, state)
