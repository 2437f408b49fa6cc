"""A client whose broker ends the connection, or is down, continues as long as any broker can answer its requests."""

from __future__ import annotations

import asyncio
import time

import pytest

from proxy.brokers.upstream import BrokerConnection
from proxy.client.request import Request
from proxy.client.slots import Slot
from proxy.connection import broker_side, stand_in
from proxy.connection.connection import ClientConnection
from tests.unit.connection.test_last_words import until
from tests.unit.connection_double import (
    FETCH,
    HEARTBEAT,
    METADATA,
    PRODUCE,
    FakeTransport,
    Held,
    Sent,
    connected,
    produce,
    request,
    response,
    turns,
)

OWN, OTHER = 1, 2
FIND_COORDINATOR = 10


async def client(*, diskless: bool = True, foreign: bool = False, handlers=None) -> Sent:
    """A client of broker 1's listener."""
    forwarded = {
        key: lambda connection, one: connection.forward(one) for key in (PRODUCE, FETCH, METADATA, FIND_COORDINATOR)
    }
    sent = await connected(handlers=forwarded | (handlers or {}))
    sent.any_broker_serves, sent.foreign = diskless, foreign
    sent.produce_is_held = True
    sent.now_s = 1_000.0
    return sent


async def lose_broker(sent: Sent, *, down: bool) -> FakeTransport:
    """Let the broker end the connection, and with `down` accept no other; return the new transport."""
    if down:
        sent.cluster.down.add(OWN)
    sent.broker.close()
    await turns()
    return sent.broker


@pytest.mark.parametrize(("diskless", "foreign"), [(True, False), (False, True)])
async def test_an_idle_broker_connection_that_ends_is_made_again(diskless: bool, foreign: bool) -> None:
    """Brokers end idle ones (`connections.max.idle.ms`), while the proxy serves the client itself."""
    sent = await client(diskless=diskless, foreign=foreign)
    await lose_broker(sent, down=False)
    assert sent.cluster.asked == [OWN, OWN]
    assert not sent.client.closing
    sent.send(request(HEARTBEAT, 7))
    assert len(sent.broker.frames()) == 1
    sent.answer(response(7, b"alive"))
    assert sent.client.frames() == [response(7, b"alive")[4:]]
    assert not sent.connection.broker_side.stands_in


@pytest.mark.parametrize("steps", range(6))
async def test_a_broker_that_ends_the_new_connection_at_once_is_noticed(steps: int) -> None:
    """At whatever moment: else requests would wait for answers that never come."""
    sent = await client()
    connect = sent.cluster.connect

    async def connect_for_a_moment(node_id, protocol):
        await connect(node_id, protocol)
        transport = sent.broker

        def lose(left: int) -> None:
            if left:
                asyncio.get_running_loop().call_soon(lose, left - 1)
            else:
                transport.closing = True
                protocol.connection_lost(None)

        lose(steps)

    sent.cluster.connect = connect_for_a_moment
    await lose_broker(sent, down=False)
    await turns(40)
    assert sent.client.closing or not sent.connection.broker_side.lost


async def test_a_client_of_classic_topics_is_disconnected_when_its_broker_is_gone() -> None:
    sent = await client(diskless=False)
    await lose_broker(sent, down=False)
    assert sent.client.closing


@pytest.mark.parametrize("why", ["owes an answer", "was sent what it does not answer", "SASL", "just made again"])
async def test_the_connection_ends_where_the_client_may_miss_something(why: str) -> None:
    sent = await client()
    if why == "owes an answer":
        sent.send(request(HEARTBEAT, 1))
    elif why == "was sent what it does not answer":
        sent.produce_is_held = False
        sent.send(produce(1, acks=0))
    elif why == "SASL":
        sent.require_sasl()
    else:
        for _ in range(2):
            await lose_broker(sent, down=False)
            assert not sent.client.closing
    await lose_broker(sent, down=False)
    assert sent.client.closing


async def test_another_broker_answers_what_any_broker_can() -> None:
    held = Held()
    sent = await client(handlers={PRODUCE: held})
    sent.send(request(PRODUCE, 1, bytes(20), version=3))
    other = await lose_broker(sent, down=True)
    assert sent.cluster.asked == [OWN, OWN, OTHER]
    held.fill(b"stored")
    assert sent.client.frames() == [response(1, b"stored")[4:]], "what the proxy does itself goes on"
    for correlation_id, key in enumerate((METADATA, FIND_COORDINATOR), 2):
        sent.send(request(key, correlation_id))
        assert len(other.frames()) == 1
        sent.answer(response(correlation_id, b"answer"))
    assert [frame[4:] for frame in sent.client.frames()] == [b"answer", b"answer"]
    assert not sent.client.closing


@pytest.mark.parametrize("key", [HEARTBEAT, FETCH])
async def test_a_request_that_only_its_own_broker_can_answer_ends_the_connection(key: int) -> None:
    """A follower would answer a Fetch of classic partitions as if it were the leader, also OFFSET_OUT_OF_RANGE."""
    held = Held()
    sent = await client(handlers={PRODUCE: held})
    other = await lose_broker(sent, down=True)
    sent.send(request(PRODUCE, 1, bytes(20), version=3) + request(key, 2, bytes(30), version=4 if key == FETCH else 0))
    await turns()
    assert other.frames() == []
    assert not sent.client.closing, "what it was accepted for is answered first"
    held.fill(b"stored")
    await turns()
    assert sent.client.frames() == [response(1, b"stored")[4:]]
    assert sent.client.closing


async def test_a_question_for_rights_is_asked_again_of_the_broker_that_stands_in() -> None:
    answers = []

    async def ask(connection: ClientConnection, one: Request, slot: Slot) -> None:
        answers.append(bytes(await connection.ask(one, METADATA, 0, b"rights?")))
        slot.fill([b"stored"])

    sent = await client(handlers={PRODUCE: lambda connection, one: ask(connection, one, connection.open_slot(one))})
    sent.send(request(PRODUCE, 1, bytes(20), version=3))
    await turns()
    assert len(sent.broker.frames()) == 1
    other = await lose_broker(sent, down=True)
    (asked,) = other.frames()
    sent.answer(response(int.from_bytes(asked[4:8], "big"), b"yes"))
    await turns()
    assert (answers, sent.client.frames()) == ([b"yes"], [response(1, b"stored")[4:]])


@pytest.mark.parametrize("at_once", [False, True])
async def test_a_broker_that_is_killed_and_takes_one_more_connection_is_stood_in_for(at_once: bool) -> None:
    """Its port closes after its connections; `at_once`: the one more ends before the proxy has begun to use it."""

    async def ask(connection: ClientConnection, one: Request, slot: Slot) -> None:
        slot.fill([bytes(await connection.ask(one, METADATA, 0, b"rights?"))])

    sent = await client(handlers={PRODUCE: lambda connection, one: ask(connection, one, connection.open_slot(one))})
    connect = sent.cluster.connect

    async def ends(node_id: int, protocol: BrokerConnection) -> None:
        await connect(node_id, protocol)
        if at_once and node_id == OWN:
            sent.broker.close()
            await turns(2)

    sent.cluster.connect = ends
    sent.send(request(PRODUCE, 1, bytes(20), version=3))
    await turns()
    other = await lose_broker(sent, down=False)
    if not at_once:
        other = await lose_broker(sent, down=False)
    await turns()
    assert sent.cluster.asked == [OWN, OWN, OTHER]
    await until(lambda: bool(other.written))
    (asked,) = other.frames()
    sent.answer(response(int.from_bytes(asked[4:8], "big"), b"yes"))
    await turns()
    assert sent.client.frames() == [response(1, b"yes")[4:]]


async def stood_in() -> tuple[Sent, FakeTransport]:
    """Return a client for whose broker another one stands in, and that broker's transport."""
    sent = await client()
    other = await lose_broker(sent, down=True)
    await turns()
    assert sent.connection.broker_side.stands_in
    return sent, other


def ask_metadata(sent: Sent, correlation_id: int) -> None:
    """Send a request that any broker answers, and the answer."""
    sent.send(request(METADATA, correlation_id))
    sent.answer(response(correlation_id, b"answer"))


async def test_requests_lead_back_to_the_clients_own_broker_when_it_is_back() -> None:
    """The broker that stands in says of the own broker's partitions that it does not lead them, forever."""
    sent, other = await stood_in()
    ask_metadata(sent, 1)
    await turns()
    assert sent.connection.broker_side.stands_in, "the own broker is still down"
    sent.cluster.down.clear()
    ask_metadata(sent, 2)
    await turns()
    assert sent.connection.broker_side.stands_in, "it is tried once a second"
    assert sent.now_s is not None
    sent.now_s += stand_in.LEAST_PAUSE_S
    ask_metadata(sent, 3)
    await turns()
    assert (sent.connection.broker_side.stands_in, other.closing, sent.client.closing) == (False, True, False)
    sent.send(request(HEARTBEAT, 4))
    assert len(sent.broker.frames()) == 1, "what only its own broker answers"
    sent.answer(response(4, b"alive"))
    assert [frame[4:] for frame in sent.client.frames()] == [b"answer"] * 3 + [b"alive"]
    assert sent.cluster.asked == [OWN, OWN, OTHER, OWN, OWN]


async def test_a_broker_that_owes_an_answer_is_not_left() -> None:
    sent, other = await stood_in()
    sent.cluster.down.clear()
    sent.send(request(METADATA, 1))
    await turns()
    assert (sent.connection.broker_side.stands_in, other.closing, sent.broker.closing) == (True, False, True)
    other.protocol.data_received(response(1, b"answer"))
    assert sent.client.frames() == [response(1, b"answer")[4:]]


async def test_a_client_that_authenticated_is_sent_to_its_own_broker_when_that_is_back() -> None:
    sent, _ = await stood_in()
    sent.require_sasl()
    sent.cluster.down.clear()
    ask_metadata(sent, 1)
    await turns()
    assert sent.client.frames() == [response(1, b"answer")[4:]]
    assert sent.client.closing


async def test_a_new_client_of_a_broker_that_is_down_finds_another_one() -> None:
    sent = await client()
    sent.cluster.down.add(OWN)
    sent.connect()
    await turns()
    assert sent.cluster.asked == [OWN, OWN, OTHER]
    assert sent.connection.broker_side.stands_in
    sent.cluster.down.update((OTHER, 3))
    newest = sent.connect()
    await turns()
    assert newest.closing


async def test_a_broker_that_does_not_accept_is_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stand_in, "_OWN_WITHIN_S", 0.001)
    sent = await client()
    connect = sent.cluster.connect

    async def hangs(node_id: int, protocol: BrokerConnection) -> None:
        if node_id == OWN:
            await asyncio.Event().wait()
        await connect(node_id, protocol)

    sent.cluster.connect = hangs
    sent.connect()
    assert sent.connection.broker_side.connecting is not None
    await asyncio.wait([sent.connection.broker_side.connecting])
    assert sent.connection.broker_side.stands_in
    assert len(sent.cluster.transports) == 2


def stand_still() -> None:
    time.sleep(0.2)


async def test_a_loop_that_is_busy_is_not_taken_for_a_broker_that_does_not_accept(monkeypatch) -> None:
    monkeypatch.setattr(stand_in, "_OWN_WITHIN_S", 0.05)

    async def accepted() -> None:
        await asyncio.sleep(0.001)

    waiting = asyncio.create_task(stand_in._within_steps(accepted()))
    await asyncio.sleep(0)
    stand_still()  # both the end of a step and the connection are due when the loop continues
    await waiting


async def asking_client() -> Sent:
    """Return a client whose Produce asks a broker for rights; the broker is silent."""

    async def ask(connection: ClientConnection, one: Request, slot: Slot) -> None:
        slot.fill([bytes(await connection.ask(one, METADATA, 0, b"rights?"))])

    return await client(handlers={PRODUCE: lambda connection, one: ask(connection, one, connection.open_slot(one))})


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Wait for an answer for a short time."""
    monkeypatch.setattr(broker_side, "ANSWERS_WITHIN_S", 0.01)
    monkeypatch.setattr(stand_in, "_OWN_WITHIN_S", 0.05)


@pytest.mark.usefixtures("impatient")
async def test_a_broker_that_hangs_is_stood_in_for() -> None:
    """A machine that is gone closes no connection: it just does not answer."""
    sent = await asking_client()
    own = sent.broker
    sent.send(request(PRODUCE, 1, bytes(20), version=3))
    await until(lambda: sent.broker is not own)
    await turns()
    assert (sent.cluster.asked, own.closing) == ([OWN, OTHER], True)
    (asked,) = sent.broker.frames()
    sent.answer(response(int.from_bytes(asked[4:8], "big"), b"yes"))
    await turns()
    assert sent.client.frames() == [response(1, b"yes")[4:]]
    assert sent.connection.broker_side.stands_in
    assert OWN not in sent.cluster.silent, "it may be slow: new clients are led to it"
    other = sent.broker
    sent.send(request(METADATA, 2))
    other.protocol.data_received(response(2, b"answer"))
    await until(lambda: OWN in sent.cluster.silent)
    assert sent.connection.broker_side.stands_in, "it takes connections, and does not answer"
    newest = sent.connect()
    await turns()
    assert sent.cluster.asked == [OWN, OTHER, OWN, OTHER], "new clients do not wait for it"
    assert not newest.closing


@pytest.mark.usefixtures("impatient")
async def test_a_broker_that_was_silent_must_answer_before_requests_lead_back_to_it() -> None:
    sent = await asking_client()
    sent.cluster.silent.note(OWN)
    sent.client = sent.connect()
    await turns()
    assert sent.connection.broker_side.stands_in
    other = sent.broker
    ask_metadata(sent, 1)
    await until(lambda: sent.broker is not other and sent.broker.closing)
    assert sent.connection.broker_side.stands_in, "it takes connections, and does not answer"
    assert sent.now_s is not None
    sent.now_s += stand_in.LEAST_PAUSE_S
    sent.send(request(METADATA, 2))
    other.protocol.data_received(response(2, b"answer"))
    await until(lambda: not sent.broker.closing and bool(sent.broker.written))
    (asked,) = sent.broker.frames()
    sent.answer(response(int.from_bytes(asked[4:8], "big"), b"versions"))
    await turns()
    assert (sent.connection.broker_side.stands_in, other.closing, sent.client.closing) == (False, True, False)
    assert OWN not in sent.cluster.silent


@pytest.mark.usefixtures("impatient")
@pytest.mark.parametrize("why", ["owes an answer", "no other broker answers", "answers late", "SASL"])
async def test_a_broker_that_is_slow_is_waited_for(why: str) -> None:
    sent = await asking_client()
    if why == "owes an answer":
        sent.send(request(HEARTBEAT, 1))
    elif why == "no other broker answers":
        for node in (OTHER, 3):
            sent.cluster.silent.note(node)
    elif why == "SASL":  # the client's connection would end
        sent.connection.broker_side._answers_within_s = broker_side.SASL_ANSWERS_WITHIN_S
    sent.send(request(PRODUCE, 2, bytes(20), version=3))
    await turns()
    if why == "answers late":
        frame = response(int.from_bytes(sent.broker.frames()[0][4:8], "big"), b"yes")
        sent.answer(frame[:6])
    await asyncio.sleep(0.1)
    assert (len(sent.cluster.transports), sent.client.closing, sent.broker.closing) == (1, False, False)


@pytest.mark.usefixtures("impatient")
@pytest.mark.parametrize("third", [True, False])
async def test_a_broker_that_stands_in_and_is_slow_is_left_only_if_another_one_may_be_asked(third: bool) -> None:
    """Right after a broker was reached no other one is: to leave it then would end the client's connection."""
    sent = await asking_client()
    if not third:
        del sent.cluster.view.brokers[3]
    sent.send(request(PRODUCE, 1, bytes(20), version=3))
    await turns()
    other = await lose_broker(sent, down=True)
    assert sent.connection.broker_side.stands_in
    await until(lambda: bool(other.written))
    await asyncio.sleep(0.05)
    assert (sent.client.closing, other.closing) == (False, False)
    assert sent.now_s is not None
    sent.now_s += stand_in.LEAST_PAUSE_S
    if third:
        await until(lambda: sent.broker is not other and bool(sent.broker.written))
    else:
        await asyncio.sleep(0.05)
    assert sent.cluster.asked == [OWN, OWN, OTHER, *([OWN, 3] if third else [])]
    (asked,) = sent.broker.frames()
    sent.answer(response(int.from_bytes(asked[4:8], "big"), b"yes"))
    await turns()
    assert (sent.client.frames(), sent.client.closing) == ([response(1, b"yes")[4:]], False)
