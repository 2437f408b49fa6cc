"""Memory behind an answer is released when the client has received it, or never will."""

from __future__ import annotations

from proxy.connection.connection import ClientConnection
from tests.unit.connection.test_connection import FETCH, HEARTBEAT, connected, request, turns


class Holding:
    """A handler whose answers hold memory."""

    def __init__(self) -> None:
        self.let_go = 0
        self.slots = []

    def __call__(self, connection: ClientConnection, request) -> None:
        slot = connection.open_slot(request)
        slot.let_go = self.count
        self.slots.append(slot)

    def count(self) -> None:
        self.let_go += 1


async def test_an_answer_that_is_sent_at_once_is_released_at_once():
    holding = Holding()
    sent = await connected(handlers={FETCH: holding})
    sent.send(request(FETCH, 1, version=4))
    assert not holding.let_go
    holding.slots[0].fill([b"answer"])
    assert holding.let_go == 1
    sent.client.close()
    await turns()
    assert holding.let_go == 1


async def test_an_answer_that_waits_for_its_turn_is_held():
    holding = Holding()
    sent = await connected(handlers={FETCH: holding})
    sent.send(request(HEARTBEAT, 1) + request(FETCH, 2, version=4))
    holding.slots[0].fill([b"answer"])
    assert not holding.let_go
    sent.client.close()
    await turns()
    assert holding.let_go == 1


async def test_a_slow_client_holds_its_answer_until_it_has_taken_it():
    holding = Holding()
    sent = await connected(handlers={FETCH: holding})
    sent.send(request(FETCH, 1, version=4) + request(FETCH, 2, version=4))
    sent.connection.pause_writing()
    holding.slots[0].fill([b"answer"])
    assert not holding.let_go
    sent.connection.resume_writing()
    assert holding.let_go == 1
    sent.connection.pause_writing()
    holding.slots[1].fill([b"answer"])
    sent.client.close()
    await turns()
    assert holding.let_go == 2


async def test_an_answer_for_a_client_that_has_gone_is_let_go():
    holding = Holding()
    sent = await connected(handlers={FETCH: holding})
    sent.send(request(FETCH, 1, version=4))
    sent.client.close()
    await turns()
    assert holding.let_go == 1
