"""Every answer is timed once, under its API; requests whose answers are due are visible."""

from __future__ import annotations

from tests.unit.connection_double import HEARTBEAT, METADATA, PRODUCE, Held, connected, request, response, turns


async def test_answers_of_the_broker_and_of_the_proxy_are_timed_when_they_go_out() -> None:
    held = Held()
    sent = await connected(handlers={METADATA: held})
    sent.send(request(METADATA, 1) + request(HEARTBEAT, 2))
    await turns()
    assert sent.connection.requests_underway == 2
    sent.answer(response(2, b"alive"))
    await turns()
    # The broker has answered, but it is not that answer's turn.
    assert sent.stats.api_seconds == {}
    held.fill()
    await turns()
    assert {api: counted.count for api, counted in sent.stats.api_seconds.items()} == {METADATA: 1, HEARTBEAT: 1}
    assert all(counted.total > 0 for counted in sent.stats.api_seconds.values())
    assert sent.connection.requests_underway == 0


async def test_a_request_that_is_never_answered_is_not_timed() -> None:
    held = Held()
    sent = await connected(handlers={METADATA: held})
    sent.send(request(METADATA, 1))
    await turns()
    sent.client.abort()
    await turns()
    held.fill()
    await turns()
    assert PRODUCE not in sent.stats.api_seconds
    assert METADATA not in sent.stats.api_seconds
