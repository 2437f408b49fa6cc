"""The queue of answers: written in the order of the requests, counted while they wait, let go of once."""

from __future__ import annotations

from collections import Counter
from typing import Any

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from proxy.client.slots import BrokerSlot, Slot
from proxy.connection.answers import Answers

UNUSED: Any = None
MAX_HELD_BYTES = 100
METADATA, HEARTBEAT, SYNC_GROUP, OFFSET_COMMIT = 3, 12, 14, 8


class Client:
    """The connection, as far as answers need it: a client that takes everything at once, until it goes."""

    def __init__(self) -> None:
        self.written = bytearray()
        self.counted = 0
        self.lost = False
        self.over = False
        self.answers = Answers(
            MAX_HELD_BYTES,
            UNUSED,
            write=UNUSED,
            pass_whole=UNUSED,
            slot_finished=self.finished,
            go_on=UNUSED,
            broker_answer_unreadable=UNUSED,
            count_answer=self.count,
        )

    def count(self, api_key: int, seconds: float) -> None:
        assert seconds >= 0
        self.counted += 1

    def write(self, buffers: list[Any], size: int) -> None:
        data = b"".join(buffers)
        assert len(data) == size
        self.written += data

    def finished(self, slot: Slot) -> None:
        if self.answers.is_head(slot):
            self.lost = not self.answers.flush(self.write)
        elif self.over:
            self.answers.forget(slot)


class AnyOrder(RuleBasedStateMachine):
    """Answers that come in any order."""

    def __init__(self) -> None:
        super().__init__()
        self.client = Client()
        self.opened: list[Slot] = []
        self.filled: dict[Slot, bytes] = {}
        self.let_go: Counter[Slot] = Counter()

    def slot(self, at: int) -> Slot:
        return self.opened[at % len(self.opened)]

    @rule(of_broker=st.booleans())
    def a_request_comes(self, of_broker: bool) -> None:
        if self.client.over:
            return
        make = BrokerSlot if of_broker else Slot
        slot = make(self.client.answers, HEARTBEAT, 0, len(self.opened))
        self.client.answers.slots.append(slot)
        self.opened.append(slot)

    @precondition(lambda self: self.opened)
    @rule(at=st.integers(0), size=st.integers(0, 60))
    def an_answer_comes(self, at: int, size: int) -> None:
        slot = self.slot(at)
        if slot.done:
            return
        slot.let_go = lambda: self.let_go.update([slot])
        slot.fill([bytes(size)])
        self.filled[slot] = (8 + size - 4).to_bytes(4, "big") + slot.correlation_id.to_bytes(4, "big") + bytes(size)

    @precondition(lambda self: self.opened)
    @rule(at=st.integers(0))
    def an_answer_is_lost(self, at: int) -> None:
        self.slot(at).lose()

    @rule()
    def the_client_takes_all(self) -> None:
        self.client.answers.let_go()
        assert not self.client.answers.not_taken

    @rule()
    def the_client_goes(self) -> None:
        if not self.client.over:
            self.client.over = True
            self.client.answers.end()
            assert not self.client.answers.slots
            assert all(slot.done for slot in self.opened if isinstance(slot, BrokerSlot))

    @invariant()
    def what_is_due_is_written_in_order(self) -> None:
        """Up to the first answer that is not there."""
        if self.client.over:
            return
        due = []
        for slot in self.opened:
            if slot not in self.filled:
                break
            due.append(self.filled[slot])
        assert self.client.written == b"".join(due)
        assert self.client.counted == len(due)
        waiting = sum(map(len, self.filled.values())) - sum(map(len, due))
        assert self.client.answers.held_bytes == waiting
        assert self.client.answers.too_many_held == (waiting > MAX_HELD_BYTES)
        assert self.client.answers.may_hold_response(10) == (waiting + 10 <= MAX_HELD_BYTES or not waiting)

    @invariant()
    def nothing_is_let_go_twice(self) -> None:
        assert set(self.let_go.values()) <= {1}

    def teardown(self) -> None:
        self.the_client_goes()
        for slot in self.opened:
            slot.finish()
        assert set(self.let_go) == set(self.filled)


TestAnyOrder = AnyOrder.TestCase


def queue(*slots: Slot) -> Answers:
    answers = Client().answers
    answers.slots.extend(slots)
    return answers


def test_a_drain_waits_for_answers_unless_all_are_long_waits() -> None:
    heartbeat, commit = (Slot(UNUSED, key, 0, 0) for key in (HEARTBEAT, OFFSET_COMMIT))
    assert queue().all_may_be_cut
    assert queue(heartbeat).all_may_be_cut
    assert not queue(heartbeat, commit).all_may_be_cut


def test_effects_are_due_from_the_broker_only_and_not_for_a_request_that_is_cut_off() -> None:
    metadata, commit = (BrokerSlot(UNUSED, key, 0, 0) for key in (METADATA, OFFSET_COMMIT))
    assert not queue(metadata, Slot(UNUSED, OFFSET_COMMIT, 0, 0)).await_effects(None)
    assert queue(metadata, commit).await_effects(None)
    assert not queue(metadata, commit).await_effects(commit)


def test_another_slot_in_the_place_has_the_memory_and_the_beginning() -> None:
    before, into, last = (Slot(UNUSED, SYNC_GROUP, 0, number) for number in range(3))
    before.charge_bytes, before.began_s = 500, 1.0
    answers = queue(before, last)
    answers.replace(before, into)
    assert list(answers.slots) == [into, last]
    assert (into.charge_bytes, before.charge_bytes, into.began_s) == (500, 0, 1.0)
