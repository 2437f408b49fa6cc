"""Response slots: one per request that is answered, in the order of arrival; the head of the queue is flushed.

The broker fills a slot (`BrokerSlot`, streamed at the head of the queue), or the proxy itself does (`Slot.fill`). So a
connection's answers keep Kafka's order, whether they come from the broker or the proxy, and diskless produces can be
pipelined (decision 0002).
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Coroutine, Generator
from time import perf_counter
from typing import TYPE_CHECKING, Any, Protocol

from proxy.protocol.api_keys import FETCH
from proxy.wire.errors import ProtocolError
from proxy.wire.fetch import FIRST_FLEXIBLE
from proxy.wire.fetch_stream import FetchEndpointStream, count_plain
from proxy.wire.frames import Decision
from proxy.wire.header import response_header, response_header_length
from proxy.wire.primitives import Buffer
from proxy.wire.steps import Result, Rewrite, Steps, begin

if TYPE_CHECKING:
    from proxy.wire.metadata import AddressOf
    from proxy.wire.topic_walk import CountTopic

_SIZE = struct.Struct(">i")
_CORRELATION = struct.Struct(">i")
_HEAD_BYTES = 8
"""Frame size and correlation ID."""
_TAGGED_HEAD_BYTES = 9
"""The same with the empty tagged fields of response header v1."""


class AnswerQueue(Protocol):
    """The answers of one client in the order of its requests, as the slots in the queue see it."""

    def is_head(self, slot: Slot) -> bool:
        """Return whether no earlier answer is due."""

    def may_hold_response(self, size: int) -> bool:
        """Return whether one more answer may wait for earlier ones."""

    def hold_response(self, slot: Slot) -> None:
        """Count a whole answer that waits for its turn."""

    def write(self, part: Buffer, /) -> None:
        """Write bytes of the head's answer at once."""

    def pass_whole(self, slot: BrokerSlot, frame: bytes, /) -> bool:
        """Write the whole answer of the head, and finish its slot. False if the slot is not the head."""

    def slot_finished(self, slot: Slot, /) -> None:
        """Flush: a slot has all of its answer, or never will have it."""

    def go_on(self, work: Coroutine[Any, Any, None], /) -> None:
        """Do work for an answer until it ends, or the client's connection does. The work raises nothing."""

    async def in_turns(self, steps: Steps[Result]) -> Result:
        """Do long work in turns with other work, and return its result."""

    def broker_answer_unreadable(self, slot: Slot, error: Exception, /) -> None:
        """End the client: the broker's answer can't be rewritten, and must not pass as it is."""


class Slot:
    """The place of one answer. `charge_bytes` of the memory budget are given back when it is finished.

    `rewrite` is of a `BrokerSlot`: there is one of these for each request, and a second constructor costs time.
    """

    __slots__ = (
        "_rewrite",
        "answers",
        "api_key",
        "api_version",
        "began_s",
        "buffers",
        "charge_bytes",
        "correlation_id",
        "done",
        "let_go",
        "lost",
    )

    def __init__(
        self,
        answers: AnswerQueue,
        api_key: int,
        api_version: int,
        correlation_id: int,
        rewrite: Rewrite | None = None,
    ) -> None:
        self.answers = answers
        self.api_key = api_key
        self.api_version = api_version
        self.correlation_id = correlation_id
        self._rewrite = rewrite
        self.began_s = perf_counter()
        """For the metrics: the loop's own clock stands still within a step of it."""
        self.buffers: list[Buffer] = []
        self.charge_bytes = 0
        self.let_go: Callable[[], None] | None = None
        """Called, where it is set before `fill`, when the client has taken the answer, or never will."""
        self.done = False
        self.lost = False

    def fill(self, body: list[Buffer]) -> None:
        """The proxy's own answer: the body, without header. A second call is ignored."""
        if self.done:
            return
        header = response_header(self.api_key, self.api_version, self.correlation_id)
        size = len(header) + sum(map(len, body))
        self.buffers = [_SIZE.pack(size) + header, *body]
        self.answers.hold_response(self)
        self.finish()

    def fill_frame(self, frame: Buffer) -> None:
        """An answer of the broker's that has no header (a SASL token of the oldest clients)."""
        self.buffers = [_SIZE.pack(len(frame)), frame]
        self.answers.hold_response(self)
        self.finish()

    def finish(self) -> None:
        """Nothing more comes; give memory back and flush."""
        if not self.done:
            self.done = True
            self.answers.slot_finished(self)

    def lose(self) -> None:
        """There will be no answer: the connection ends when it is this slot's turn."""
        if not self.done:
            self.lost = True
            self.finish()


class BrokerSlot(Slot):
    """A slot that the broker fills; it is also what the broker connection expects (`expected.Expected`).

    `rewrite`, where given, turns the answer's body into what the client gets; such an answer is held whole.
    """

    __slots__ = ()

    def response_whole(self, frame: bytes) -> bool:
        """Pass a whole answer, with its size, to the client as it came. False if it needs the ordinary path."""
        pass_whole = self.answers.pass_whole
        return self._rewrite is None and not self.done and pass_whole(self, frame)

    def response_begins(self, size: int) -> Decision:
        """Streamed when nothing is ahead of it."""
        if self.answers.is_head(self):
            return Decision.STREAM if self._rewrite is None else Decision.HOLD
        return Decision.HOLD if self.answers.may_hold_response(size) else Decision.WAIT

    def response_part(self, part: memoryview, last: bool) -> None:
        """Bytes for the client, at once."""
        self.answers.write(part)
        if last:
            self.finish()

    def response_held(self, frame: memoryview) -> None:
        """A whole answer."""
        if self._rewrite is None:
            self.buffers = [_SIZE.pack(len(frame)), frame]
        else:
            at = response_header_length(self.api_key, self.api_version, frame)
            try:
                body = self._rewrite(frame[at:])
                if isinstance(body, Generator):
                    body = begin(body)
            except Exception as error:
                self.answers.broker_answer_unreadable(self, error)
                return
            if isinstance(body, Generator):
                self.answers.go_on(self._rewrite_in_turns(frame[:at], body))
                return
            self.buffers = [_SIZE.pack(at + sum(map(len, body))), frame[:at], *body]
        self.answers.hold_response(self)
        self.finish()

    async def _rewrite_in_turns(self, header: memoryview, steps: Steps[list[Buffer]]) -> None:
        try:
            body = await self.answers.in_turns(steps)
        except Exception as error:
            self.answers.broker_answer_unreadable(self, error)
            return
        self.buffers = [_SIZE.pack(len(header) + sum(map(len, body))), header, *body]
        self.answers.hold_response(self)
        self.finish()

    def response_lost(self) -> None:
        """The broker connection ended."""
        self.lose()


class StreamedFetchSlot(BrokerSlot):
    """A Fetch answer that is looked through as it streams: its records are counted, its node endpoints rewritten.

    Small answers, and those of one partition, are most often plain, and need no stream (`wire.fetch_stream`).
    """

    __slots__ = ("_address_of", "_count", "_head", "_head_bytes", "_plain", "_stream")

    def __init__(
        self,
        answers: AnswerQueue,
        api_version: int,
        correlation_id: int,
        address_of: AddressOf,
        count: CountTopic,
    ) -> None:
        super().__init__(answers, FETCH, api_version, correlation_id)
        self._address_of = address_of
        self._count = count
        self._stream: FetchEndpointStream | None = None
        self._plain = False
        self._head = b""
        self._head_bytes = _TAGGED_HEAD_BYTES if api_version >= FIRST_FLEXIBLE else _HEAD_BYTES

    def response_part(self, part: memoryview, last: bool) -> None:
        """Bytes for the client, through the stream; none once it could not be read."""
        if self.done:
            return
        stream = self._stream
        if stream is None:
            if not self._plain and not self._head and len(part) > _SIZE.size:
                (size,) = _SIZE.unpack_from(part)
                self._plain = self._is_plain(part[_SIZE.size :], size)
            passes = self._plain
        else:
            passes = not last and stream.is_within_records(part)
        if passes:
            self.answers.write(part)
            if last:
                self.finish()
            return
        try:
            for buffer in self._through(part):
                self.answers.write(buffer)
            if last:
                self._end()
        except ProtocolError as error:
            self.answers.broker_answer_unreadable(self, error)
            return
        if last:
            self.finish()

    def response_whole(self, frame: bytes) -> bool:
        """Pass a whole answer as it came, and count its records; False if it is not plain, or waits for its turn."""
        if self._stream is not None or self._head or self._plain or self.done or not self.answers.is_head(self):
            return False
        if not self._is_plain(memoryview(frame)[_SIZE.size :], len(frame) - _SIZE.size):
            return False
        return self.answers.pass_whole(self, frame)

    def response_held(self, frame: memoryview) -> None:
        """A whole answer that had to wait for an earlier one."""
        if self._is_plain(frame, len(frame)):
            self.buffers = [_SIZE.pack(len(frame)), frame]
        else:
            try:
                self.buffers = [*self._through(memoryview(_SIZE.pack(len(frame)))), *self._through(frame)]
                self._end()
            except ProtocolError as error:
                self.answers.broker_answer_unreadable(self, error)
                return
        self.answers.hold_response(self)
        self.finish()

    def finish(self) -> None:
        """Nothing more comes, also where the answer is not whole: count what has come."""
        if not self.done and self._stream is not None:
            self._stream.count()
        super().finish()

    def _is_plain(self, frame: memoryview, size: int) -> bool:
        """Whether an answer may pass as it is, by what has come of its `size` bytes; then it is counted."""
        at = self._head_bytes - _SIZE.size
        if at > len(frame) or (self._head_bytes == _TAGGED_HEAD_BYTES and frame[at - 1]):
            return False
        return count_plain(frame[at:], size - at, self.api_version, self._count)

    def _through(self, part: memoryview) -> list[Buffer]:
        """Size and header as they are, then the body through the stream."""
        if self._stream is not None:
            return self._stream.feed(part)
        missing = self._head_bytes - len(self._head)
        self._head += bytes(part[:missing])
        if len(self._head) < self._head_bytes:
            return []
        if self._head_bytes == _TAGGED_HEAD_BYTES and self._head[-1]:
            raise ProtocolError("the broker put tagged fields into a Fetch response header")
        self._stream = FetchEndpointStream(self.api_version, self._address_of, self._count)
        return [self._head, *self._stream.feed(part[missing:])]

    def _end(self) -> None:
        if self._stream is None:
            raise ProtocolError("the Fetch response ends too early")
        self._stream.finish()
