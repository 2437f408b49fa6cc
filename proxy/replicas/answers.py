"""An answer of a replica, held whole: the memory for it is taken when it begins and given back when it has gone on."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from proxy.brokers.upstream import BrokerConnection
from proxy.process.memory import MemoryBudget
from proxy.replicas.choice import LeaderReason
from proxy.wire.frames import Decision
from proxy.wire.primitives import INT32

CORRELATION_ID = 0x6E656172
_SMALL_SHARE = 4096
"""Share of the memory budget below which answers (64 KiB by default) are always let in, however many clients wait."""


class ReplicaUnavailable(Exception):
    """A replica gave no answer that can be used; the leader is to be asked. `reason` says why, the text more of it.

    `slow`: the broker took the read and did not answer it in time.
    """

    def __init__(self, reason: LeaderReason, text: str = "", *, slow: bool = False) -> None:
        super().__init__(text or reason.value)
        self.reason = reason
        self.slow = slow


class TimeOver(Exception):
    """An answer did not begin in time, or stopped coming."""


class ReplicaAnswer:
    """The body of a Fetch response (without its header), and the memory that it takes until `release`."""

    __slots__ = ("_charge_bytes", "_memory", "body", "throttle_ms")

    def __init__(self, body: memoryview, memory: MemoryBudget, charge_bytes: int) -> None:
        """`charge_bytes` of `memory` are taken already."""
        self.body = body
        self.throttle_ms: int = INT32.unpack_from(body)[0] if len(body) >= INT32.size else 0
        """Time for which the broker throttles the client, in milliseconds; the connection itself rests for that
        time."""
        self._memory = memory
        self._charge_bytes = charge_bytes

    def release(self) -> None:
        """Give the memory back: the body has gone on to the client, or is not needed. Repeatable."""
        charge_bytes, self._charge_bytes = self._charge_bytes, 0
        if charge_bytes:
            self._memory.give_back(charge_bytes)


class AwaitedAnswer:
    """An expected answer on a connection to a replica (`upstream.Awaiting`), held within the memory budget.

    `answer` is its whole frame, from the correlation ID on; ConnectionError if the connection ended first.
    """

    __slots__ = ("_charge_bytes", "_granted", "_memory", "_resume", "_waits", "answer", "correlation_id")

    def __init__(self, memory: MemoryBudget, resume: Callable[[], None]) -> None:
        """`resume` lets the connection go on reading when there is memory."""
        self.answer: asyncio.Future[memoryview] = asyncio.get_running_loop().create_future()
        self.correlation_id: int | None = CORRELATION_ID
        self._memory = memory
        self._resume = resume
        self._charge_bytes = 0
        self._waits = False
        self._granted = False

    @property
    def waits_for_memory(self) -> bool:
        """Return whether the answer is there and can't be taken in."""
        return self._waits and not self._granted

    def response_begins(self, size: int) -> Decision:
        """Hold the answer as soon as there is memory for it; drop it if nobody waits for it any more."""
        if self.answer.done():
            return Decision.STREAM
        self._charge_bytes = size
        if not self._waits and not self._granted:
            if size * _SMALL_SHARE <= self._memory.limit_bytes:
                self._memory.take(size)
                self._granted = True
            else:
                self._granted = self._memory.try_take(size, self._memory_granted)
                self._waits = not self._granted
        return Decision.HOLD if self._granted else Decision.WAIT

    def response_held(self, frame: memoryview) -> None:
        """Take the whole answer. If nobody waits for it any more, its memory is returned."""
        if self.answer.done():
            self.give_up()
        else:
            self.answer.set_result(frame)

    def response_part(self, part: memoryview, last: bool) -> None:
        """Drop a part: only answers that nobody waits for are streamed."""

    def response_lost(self) -> None:
        """No answer comes."""
        if self.answer.done():
            return  # the code that took or gave up the answer has its memory
        self.give_up()
        self.answer.set_exception(ConnectionError("the broker closed the connection"))
        self.answer.exception()

    def take(self) -> int:
        """Return the bytes of memory that are taken for the answer; the caller has to return them."""
        charge_bytes, self._charge_bytes = self._charge_bytes, 0
        return charge_bytes

    def give_up(self) -> None:
        """Return the memory of an answer that nobody waits for any more. Repeatable."""
        if self._granted:
            self._memory.give_back(self.take())
        elif self._waits:
            self._waits = False
            self._memory.withdraw(self._memory_granted)
            self.answer.get_loop().call_soon(self._resume)  # the answer is dropped, and others come behind it
        self._charge_bytes = 0

    def _memory_granted(self) -> bool:
        if self.answer.done() or not self._charge_bytes:
            return False
        self._granted = True
        # In a step of its own: the code that made room must not read our answer.
        self.answer.get_loop().call_soon(self._resume)
        return True


class ReadWatch:
    """Ends a read whose answer does not begin by its time, or stops coming then: one timer, without a task."""

    __slots__ = ("_answer", "_broker", "_grace_s", "_last_s", "_loop", "_seen_bytes", "_timer")

    def __init__(
        self, broker: BrokerConnection, awaited: AwaitedAnswer, *, due_s: float, grace_s: float, longest_s: float
    ) -> None:
        """`due_s`: the loop's time by which it is to begin; bytes are to come every `grace_s` then, for `longest_s`."""
        self._loop = asyncio.get_running_loop()
        self._broker = broker
        self._answer = awaited.answer
        self._grace_s = grace_s
        self._last_s = due_s + longest_s
        self._seen_bytes = broker.bytes_received
        self._timer = self._loop.call_at(due_s, self._look)

    def end(self) -> None:
        """The read is over."""
        self._timer.cancel()

    def _look(self) -> None:
        if self._answer.done():
            return
        received_bytes, now_s = self._broker.bytes_received, self._loop.time()
        if received_bytes == self._seen_bytes or now_s >= self._last_s:
            self._answer.set_exception(TimeOver())
            return
        self._seen_bytes = received_bytes
        self._timer = self._loop.call_at(min(now_s + self._grace_s, self._last_s), self._look)
