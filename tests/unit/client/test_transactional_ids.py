"""The right to a transactional ID: an EndTxn that changes nothing shows it, and the answer is kept for a short time."""

from __future__ import annotations

from typing import Any

import pytest

from proxy.client.transactional_ids import TransactionalIds
from proxy.protocol.errors import (
    CONCURRENT_TRANSACTIONS,
    COORDINATOR_LOAD_IN_PROGRESS,
    COORDINATOR_NOT_AVAILABLE,
    INVALID_PRODUCER_ID_MAPPING,
    INVALID_REQUEST,
    NONE,
    NOT_COORDINATOR,
    TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
)
from proxy.wire.errors import ProtocolError
from tests.support.questions import filled
from tests.unit.client_double import ClientDouble, request_of
from tests.unit.wire.trees import decode, encode, request_type, response_type

PRODUCE, END_TXN = 0, 26
DENIED = TRANSACTIONAL_ID_AUTHORIZATION_FAILED


class Asking:
    """A client whose broker answers EndTxn with `error_code`."""

    def __init__(self) -> None:
        self.now_s = 100.0
        self.ids = TransactionalIds(5.0, lambda: self.now_s)
        self.error_code = NOT_COORDINATOR
        self.asked: list[dict[str, Any]] = []

    async def ask(self, transactional_id: str) -> None:
        client: Any = ClientDouble(self._broker)
        await self.ids.ask(client, request_of(PRODUCE, 11, b""), transactional_id)

    def _broker(self, api_key: int, version: int, body: bytes) -> bytes:
        assert (api_key, version) == (END_TXN, 3)
        self.asked.append(decode(request_type(api_key, version), body))
        entity = response_type(api_key, version)
        return encode(entity, filled(entity, {"error_code": self.error_code}))


@pytest.mark.parametrize(
    "error_code",
    [
        NOT_COORDINATOR,
        INVALID_PRODUCER_ID_MAPPING,
        COORDINATOR_LOAD_IN_PROGRESS,
        COORDINATOR_NOT_AVAILABLE,
        CONCURRENT_TRANSACTIONS,
    ],
)
async def test_an_error_after_the_check_shows_the_right(error_code: int) -> None:
    asking = Asking()
    asking.error_code = error_code
    assert (asking.ids.is_known("orders"), asking.ids.error("orders")) == (False, DENIED)
    await asking.ask("orders")
    assert (asking.ids.is_known("orders"), asking.ids.error("orders")) == (True, NONE)
    assert asking.asked == [{"transactional_id": "orders", "producer_id": -1, "producer_epoch": -1, "committed": False}]


async def test_a_client_without_the_right_is_denied() -> None:
    asking = Asking()
    asking.error_code = DENIED
    await asking.ask("orders")
    assert (asking.ids.is_known("orders"), asking.ids.error("orders")) == (True, DENIED)


async def test_an_answer_is_kept_for_some_time() -> None:
    asking = Asking()
    await asking.ask("orders")
    asking.now_s += 5
    assert (asking.ids.is_known("orders"), asking.ids.error("orders")) == (False, NONE)
    asking.error_code = DENIED
    await asking.ask("orders")
    assert asking.ids.error("orders") == DENIED


@pytest.mark.parametrize("error_code", [NONE, INVALID_REQUEST])
async def test_any_other_answer_shows_nothing(error_code: int) -> None:
    asking = Asking()
    asking.error_code = error_code
    with pytest.raises(ProtocolError):
        await asking.ask("orders")
    assert asking.ids.error("orders") == DENIED


async def test_memory_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    asking = Asking()
    monkeypatch.setattr("proxy.client.transactional_ids._MAX_KNOWN", 2)
    for name in ("a", "b", "c"):
        await asking.ask(name)
    assert [asking.ids.is_known(name) for name in ("a", "b", "c")] == [False, True, True]
