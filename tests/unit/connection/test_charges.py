"""Charges: under any order of events, the budget has exactly what the connections hold, and gets all of it back."""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, invariant, multiple, rule

from proxy.client.slots import Slot
from proxy.connection.charges import Charges
from proxy.process.memory import MemoryBudget

LIMIT_BYTES = 100
SIZES = st.integers(1, 2 * LIMIT_BYTES)
NOBODY: Any = None


class Charged:
    """One connection's charges, and a ledger of the bytes that it should have."""

    def __init__(self, memory: MemoryBudget) -> None:
        self.charges = Charges(memory, self.take_grant)
        self.wanted_bytes = 0
        self.granted_bytes = 0
        self.frame_bytes = 0
        self.forwarded_bytes = 0
        self.ended = False

    def take_grant(self) -> None:
        assert not self.ended, "an ended connection takes no grant"
        assert self.wanted_bytes, "each wish is granted once"
        self.granted_bytes, self.wanted_bytes = self.wanted_bytes, 0

    @property
    def held_bytes(self) -> int:
        return self.granted_bytes + self.frame_bytes + self.forwarded_bytes


class AnyOrder(RuleBasedStateMachine):
    """Two connections that share a budget."""

    def __init__(self) -> None:
        super().__init__()
        self.memory = MemoryBudget(LIMIT_BYTES)
        self.all = (Charged(self.memory), Charged(self.memory))
        self.slots: list[tuple[Charged, Slot]] = []

    filled = Bundle("filled")
    which = st.integers(0, 1)

    @rule(number=which, size=SIZES)
    def a_frame_begins(self, number: int, size: int) -> None:
        one = self.all[number]
        if one.wanted_bytes or one.frame_bytes:
            return
        size = one.granted_bytes or size
        if not one.charges.granted:
            one.wanted_bytes = 0 if one.ended else size
        if one.charges.hold(size):
            assert not one.ended
            one.frame_bytes, one.granted_bytes, one.wanted_bytes = size, 0, 0

    @rule(target=filled, number=which)
    def its_handler_opens_a_slot(self, number: int) -> Any:
        one = self.all[number]
        if not one.frame_bytes:
            return multiple()
        slot = Slot(NOBODY, 0, 0, 0)
        one.charges.frame_to_slot(slot)
        assert slot.charge_bytes == one.frame_bytes
        self.slots.append((one, slot))
        one.frame_bytes = 0
        return len(self.slots) - 1

    @rule(number=which)
    def a_full_broker_connection_has_it(self, number: int) -> None:
        one = self.all[number]
        one.charges.frame_to_broker()
        one.forwarded_bytes += one.frame_bytes
        one.frame_bytes = 0
        assert one.charges.forwarded_bytes == one.forwarded_bytes

    @rule(number=which)
    def the_broker_has_room_again(self, number: int) -> None:
        self.all[number].forwarded_bytes = 0
        self.all[number].charges.give_back_forwarded()

    @rule(number=which)
    def nothing_holds_the_frame(self, number: int) -> None:
        self.all[number].frame_bytes = 0
        self.all[number].charges.give_back_frame()

    @rule(at=filled)
    def a_slot_is_finished(self, at: int) -> None:
        """A second time, too: then it holds nothing."""
        one, slot = self.slots[at]
        one.charges.give_back_slot(slot)
        assert slot.charge_bytes == 0

    @rule(number=which)
    def a_connection_ends(self, number: int) -> None:
        """A second time, too."""
        one = self.all[number]
        one.ended = True
        one.wanted_bytes = one.granted_bytes = one.frame_bytes = one.forwarded_bytes = 0
        one.charges.end()

    @invariant()
    def the_budget_has_what_they_hold(self) -> None:
        in_slots = sum(slot.charge_bytes for _, slot in self.slots)
        assert self.memory.used_bytes == in_slots + sum(one.held_bytes for one in self.all)

    @invariant()
    def a_wish_waits_only_for_a_reason(self) -> None:
        assert self.memory.used_bytes or not any(one.wanted_bytes for one in self.all)

    def teardown(self) -> None:
        for number in (0, 1):
            self.a_connection_ends(number)
        for one, slot in self.slots:
            one.charges.give_back_slot(slot)
        assert self.memory.used_bytes == 0
        assert not self.memory.contended


TestAnyOrder = AnyOrder.TestCase
