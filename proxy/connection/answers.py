"""The answers of one connection: a queue in the order of its requests, which is flushed from its head.

An answer that is whole before its turn is held. An answer that is written may hold something (`Slot.let_go`) until the
client has taken it, or never will.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from time import perf_counter
from typing import TYPE_CHECKING, Any

from proxy.client.slots import BrokerSlot
from proxy.protocol import api_keys

if TYPE_CHECKING:
    from proxy.client.slots import Slot
    from proxy.process.turns import Turns
    from proxy.wire.primitives import Buffer
    from proxy.wire.steps import Result, Steps

_MAY_BE_CUT = frozenset(
    {
        api_keys.FETCH,
        api_keys.JOIN_GROUP,
        api_keys.HEARTBEAT,
        api_keys.SYNC_GROUP,
        api_keys.CONSUMER_GROUP_HEARTBEAT,
        api_keys.SHARE_GROUP_HEARTBEAT,
        api_keys.SHARE_FETCH,
        api_keys.STREAMS_GROUP_HEARTBEAT,
    }
)
"""Long waits without effect, which a drain does not wait for."""

_ASKS_ONLY = frozenset(
    {
        api_keys.FETCH,
        api_keys.LIST_OFFSETS,
        api_keys.METADATA,
        api_keys.OFFSET_FETCH,
        api_keys.FIND_COORDINATOR,
        api_keys.JOIN_GROUP,
        api_keys.HEARTBEAT,
        api_keys.SYNC_GROUP,
        api_keys.API_VERSIONS,
    }
)
"""Nothing is lost if nobody gets the answer. The newer heartbeats may be a leave."""


class Answers:
    """The queue of one connection's slots, and their `AnswerQueue`.

    Five calls of slots need the connection, and go straight to it: `write`, `pass_whole`, `slot_finished`, `go_on` and
    `broker_answer_unreadable`. `count_answer` gets the API key and the seconds of each answer that is written.
    """

    __slots__ = (
        "_max_held_bytes",
        "_turns",
        "broker_answer_unreadable",
        "count_answer",
        "go_on",
        "held_bytes",
        "not_taken",
        "pass_whole",
        "slot_finished",
        "slots",
        "write",
    )

    def __init__(
        self,
        max_held_bytes: int,
        turns: Turns,
        *,
        write: Callable[[Buffer], None],
        pass_whole: Callable[[BrokerSlot, bytes], bool],
        slot_finished: Callable[[Slot], None],
        go_on: Callable[[Coroutine[Any, Any, None]], None],
        broker_answer_unreadable: Callable[[Slot, Exception], None],
        count_answer: Callable[[int, float], None],
    ) -> None:
        self._max_held_bytes = max_held_bytes
        self._turns = turns
        self.write = write
        self.go_on = go_on
        self.pass_whole = pass_whole
        self.slot_finished = slot_finished
        self.broker_answer_unreadable = broker_answer_unreadable
        self.count_answer = count_answer
        self.slots: list[Slot] = []
        """The slots whose answers are due, the oldest request's first: few, and an empty deque takes 700 bytes."""
        self.held_bytes = 0
        """Bytes of whole answers that wait for their turn."""
        self.not_taken: list[Callable[[], None]] = []
        """`Slot.let_go` of answers that are written, and that the client may not have taken."""

    def is_head(self, slot: Slot) -> bool:
        """Return whether no earlier answer is due."""
        slots = self.slots
        return bool(slots) and slots[0] is slot

    def may_hold_response(self, size: int) -> bool:
        """Return whether one more answer may wait for earlier ones."""
        return self.held_bytes + size <= self._max_held_bytes or not self.held_bytes

    def hold_response(self, slot: Slot) -> None:
        """Count a whole answer, until it is written in its turn."""
        self.held_bytes += sum(map(len, slot.buffers))

    async def in_turns(self, steps: Steps[Result]) -> Result:
        """Do long work in turns with other work, and return its result."""
        return await self._turns.run(steps)

    @property
    def too_many_held(self) -> bool:
        """True if more bytes wait for their turn than may."""
        return self.held_bytes > self._max_held_bytes

    def replace(self, slot: Slot, into: Slot) -> None:
        """Put another slot into the place of one that is in the queue, with its memory and its beginning."""
        self.slots[self.slots.index(slot)] = into
        into.charge_bytes, slot.charge_bytes = slot.charge_bytes, 0
        into.began_s = slot.began_s

    def flush(self, write: Callable[[list[Buffer], int], None]) -> bool:
        """Write what is due, as buffers and their size. False if the next answer is lost: the client must not wait."""
        slots = self.slots
        while slots:
            head = slots[0]
            if head.lost:
                return False
            if head.buffers:
                buffers, head.buffers = head.buffers, []
                size = sum(map(len, buffers))
                self.held_bytes -= size
                write(buffers, size)
            if not head.done:
                break
            slots.pop(0)
            self.count_answer(head.api_key, perf_counter() - head.began_s)
            if head.let_go is not None:
                self.not_taken.append(head.let_go)
        return True

    def let_go(self) -> None:
        """Let go of what the written answers hold: the client has taken them."""
        not_taken, self.not_taken = self.not_taken, []
        for let_go in not_taken:
            let_go()

    @property
    def all_may_be_cut(self) -> bool:
        """True if no answer is due that a drain has to wait for."""
        return all(slot.api_key in _MAY_BE_CUT for slot in self.slots)

    @property
    def any_lost(self) -> bool:
        """True if an answer is due that will never come."""
        return any(slot.lost for slot in self.slots)

    def await_effects(self, streamed: BrokerSlot | None) -> bool:
        """Return whether the broker owes an answer to a request that does more than ask, except for `streamed`."""
        return any(
            isinstance(slot, BrokerSlot) and slot is not streamed and slot.api_key not in _ASKS_ONLY
            for slot in self.slots
        )

    def end(self) -> None:
        """Lose what the broker still owes, forget the rest, and let go of everything: there is no client."""
        for owed in [slot for slot in self.slots if isinstance(slot, BrokerSlot)]:
            owed.lose()
        for slot in self.slots:
            self.forget(slot)
        self.slots.clear()
        self.held_bytes = 0
        self.let_go()

    def forget(self, slot: Slot) -> None:
        """Let go of what a slot's answer holds: it will not be written."""
        let_go, slot.let_go = slot.let_go, None
        if let_go is not None:
            let_go()
