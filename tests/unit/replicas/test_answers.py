"""Answers of replicas and the memory for them, which is always returned, whatever happens in between."""

from __future__ import annotations

import asyncio
import struct
from collections.abc import Iterator
from typing import Any
from unittest.mock import Mock

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from proxy.brokers.upstream import BrokerConnection
from proxy.process.memory import MemoryBudget
from proxy.replicas.answers import CORRELATION_ID, AwaitedAnswer, ReplicaAnswer
from proxy.wire.frames import Decision

LIMIT = 10
FRAME = memoryview(b"\0\0\0\0" + b"\0\0\0\7" + b"rest")
LOOP = asyncio.new_event_loop()
numbers = st.integers(0, 2)


@pytest.fixture(scope="module", autouse=True)
def _loop() -> Iterator[None]:
    yield
    LOOP.close()


class AnswersModel(RuleBasedStateMachine):
    """Three connections, each with one read, and a budget that holds about one answer."""

    def __init__(self) -> None:
        super().__init__()
        self.loop = LOOP
        self.budget = MemoryBudget(LIMIT)
        self.reads: list[dict[str, Any]] = [{} for _ in range(3)]
        self.answers: list[ReplicaAnswer] = []

    def teardown(self):
        for number in range(3):
            self.lose(number)
        for answer in self.answers:
            answer.release()
        self.settle()
        assert self.budget.used_bytes == 0

    def settle(self) -> None:
        """Run the callbacks that were scheduled."""

        async def step() -> None:
            await asyncio.sleep(0)
            await asyncio.sleep(0)

        self.loop.run_until_complete(step())

    @rule(number=numbers, size=st.integers(1, 2 * LIMIT))
    def ask(self, number, size):
        if self.reads[number]:
            return

        async def make() -> AwaitedAnswer:
            return AwaitedAnswer(self.budget, lambda: self.begin(number))

        self.reads[number] = {"size": size, "awaited": self.loop.run_until_complete(make()), "let_in": False}

    @rule(number=numbers)
    def begin(self, number):
        read = self.reads[number]
        if read and not read["let_in"]:
            decision = read["awaited"].response_begins(read["size"])
            assert decision in (Decision.HOLD, Decision.WAIT)
            assert read["awaited"].waits_for_memory is (decision is Decision.WAIT)
            read["let_in"] = decision is Decision.HOLD

    @rule(number=numbers)
    def end(self, number):
        read = self.reads[number]
        if read and read["let_in"]:
            read["awaited"].response_held(FRAME)
            assert read["awaited"].answer.result() == FRAME
            self.answers.append(ReplicaAnswer(FRAME[4:], self.budget, read["awaited"].take()))
            self.reads[number] = {}

    @rule(number=numbers)
    def lose(self, number):
        if self.reads[number]:
            self.reads[number]["awaited"].response_lost()
            assert isinstance(self.reads[number]["awaited"].answer.exception(), ConnectionError)
            self.reads[number] = {}

    @rule(number=numbers, held=st.booleans())
    def cancel(self, number, held):
        """The client goes away; as the read ends, or before."""
        read = self.reads[number]
        if not read:
            return
        if held and read["let_in"]:
            read["awaited"].response_held(FRAME)
        else:
            read["awaited"].answer.cancel()
        read["awaited"].give_up()
        read["awaited"].response_lost()
        self.reads[number] = {}

    @rule(number=st.integers(0, 5))
    def release(self, number):
        if number < len(self.answers):
            self.answers.pop(number).release()

    @rule()
    def go_on(self):
        self.settle()

    @invariant()
    def no_more_is_held_than_the_limit_or_one_answer(self):
        assert self.budget.used_bytes >= 0
        held = sum(bool(read) and read["let_in"] for read in self.reads) + len(self.answers)
        assert self.budget.used_bytes <= LIMIT or held <= 1

    @invariant()
    def nobody_waits_while_nothing_is_held(self):
        assert self.budget.used_bytes or not self.budget.contended


TestAnswers = AnswersModel.TestCase


async def test_the_throttle_time_is_read_and_release_is_repeatable() -> None:
    budget = MemoryBudget(LIMIT)
    budget.take(8)
    answer = ReplicaAnswer(FRAME[4:], budget, 8)
    assert answer.throttle_ms == 7
    answer.release()
    answer.release()
    assert budget.used_bytes == 0


@pytest.mark.parametrize("waits", [False, True])
async def test_an_answer_that_nobody_waits_for_any_more_is_dropped_and_the_next_is_read(waits: bool) -> None:
    """On a client's own connection to its broker, which lives on."""
    transport = Mock(is_closing=lambda: False)
    connection = BrokerConnection(max_frame_bytes=1 << 20)
    connection.connection_made(transport)
    budget = MemoryBudget(1000)
    budget.take(900)
    awaited = AwaitedAnswer(budget, connection.resume_reading)
    question = asyncio.create_task(connection.ask(1, 12, b"", None, awaited))
    following = asyncio.create_task(connection.ask(3, 9, b"", None))
    await asyncio.sleep(0)
    first = struct.pack(">ii", 504, CORRELATION_ID) + bytes(500)
    if waits:
        connection.data_received(first[:100])
        assert awaited.waits_for_memory
    question.cancel()
    awaited.give_up()
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    connection.data_received(first[100:] if waits else first)
    assert transport.resume_reading.called is waits
    header = connection.expected[0].correlation_id
    connection.data_received(struct.pack(">iiB", 9, header, 0) + b"next")
    assert bytes(await following) == b"next"
    assert (budget.used_bytes, budget.contended) == (900, False)
