"""Connections to brokers: each client connection's own, and the proxy's service connections.

A broker answers one connection's requests in order, so the answers are matched by position: every request that is
answered leaves an `Expected` in a queue. The correlation ID is compared all the same.
"""

from __future__ import annotations

import asyncio
import os
import ssl
import struct
from collections.abc import Callable
from typing import TYPE_CHECKING, cast

import structlog

from proxy.client.slots import BrokerSlot
from proxy.security.tls import explain
from proxy.wire.errors import ProtocolError
from proxy.wire.frames import Decision, FrameReader
from proxy.wire.header import request_header, response_header_length
from proxy.wire.primitives import Buffer

if TYPE_CHECKING:
    from proxy.client.expected import Awaiting, Expected
    from proxy.process.memory import MemoryBudget

log = structlog.get_logger()
_FRAME = struct.Struct(">i")
_FRAME_BYTES = _FRAME.size
_CORRELATION = struct.Struct(">i")
_HEAD = struct.Struct(">ii")
"""Size and correlation ID."""
_SHORTEST_BYTES = _HEAD.size
_HEAD_BYTES = 4
_OWN_CORRELATION_ID = 0x6B696F


class BrokerUnreachable(Exception):
    """The broker did not accept the connection, or ended it before it answered."""


class BrokerConnection(asyncio.Protocol):
    """One connection to a broker."""

    def __init__(
        self,
        *,
        max_frame_bytes: int,
        on_lost: Callable[[], None] = lambda: None,
        on_pause: Callable[[bool], None] = lambda paused: None,
        express_lane: bool = True,
    ) -> None:
        self.expected: list[Expected] = []
        self.transport: asyncio.Transport | None = None
        self.reader = FrameReader(self, head_bytes=_HEAD_BYTES, max_frame_bytes=max_frame_bytes)
        self.node_id: int | None = None
        """The broker; None while it is not known."""
        self.lost = False
        self.host = ""
        """Host by which the broker was reached; empty before."""
        self.wrote_unanswered = False
        """Whether a request went out that the broker does not answer (acks=0): it alone knows whether it has it."""
        self.bytes_received = 0
        self._on_lost = on_lost
        self._let_go: Callable[[], None] = lambda: None
        self._on_pause = on_pause
        self._current: Expected | None = None
        self._finishing = False
        self._express_lane = express_lane

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """asyncio: connected."""
        self.transport = cast(asyncio.Transport, transport)

    def data_received(self, data: bytes) -> None:
        """asyncio: bytes of the broker."""
        size = len(data)
        self.bytes_received += size
        expected = self.expected
        if expected and self._express_lane and self.reader.between_frames and size >= _SHORTEST_BYTES:
            # One whole frame, for the oldest open request: it may pass on as it came.
            slot = expected[0]
            if isinstance(slot, BrokerSlot) and _HEAD.unpack_from(data) == (size - _FRAME_BYTES, slot.correlation_id):
                del expected[0]
                if slot.response_whole(data):
                    return
                expected.insert(0, slot)
        try:
            self.reader.feed(data)
        except ProtocolError as error:
            log.error("broker_answer_unreadable", reason=str(error))
            self.close()
        self._end_if_finished()

    def eof_received(self) -> bool | None:
        """asyncio: the broker sends no more."""
        return None

    def connection_lost(self, error: Exception | None) -> None:
        """Handle the end of the connection, whichever side closed it (called by asyncio)."""
        self.lost = True
        self._drop_answers()
        self.expected.clear()
        self._current = None
        self._let_go()
        self._on_lost()

    def pause_writing(self) -> None:
        """asyncio: the broker reads slower than is written."""
        self._on_pause(True)

    def resume_writing(self) -> None:
        """asyncio: room again."""
        self._on_pause(False)
        self._end_if_finished()

    def frame_begins(self, size: int, head: memoryview) -> Decision:
        """A frame of the broker begins: the answer to the oldest open request."""
        if self._current is None:
            if not self.expected:
                raise ProtocolError("the broker sent an answer without a request")
            correlation_id = self.expected[0].correlation_id
            if correlation_id is not None and (
                size < _HEAD_BYTES or _CORRELATION.unpack_from(head)[0] != correlation_id
            ):
                raise ProtocolError("the broker's answers are out of order")
            self._current = self.expected.pop(0)
        decision = self._current.response_begins(size)
        if decision is Decision.WAIT:
            self.pause_reading()
        return decision

    def frame_held(self, frame: memoryview) -> None:
        """The present answer is whole."""
        current, self._current = self._current, None
        assert current is not None
        current.response_held(frame)

    def frame_part(self, part: memoryview, last: bool) -> None:
        """More of the present answer."""
        current = self._current
        assert current is not None
        if last:
            self._current = None
        current.response_part(part, last)

    def pause_reading(self) -> None:
        """Read no more of the broker's answers for now."""
        if self.transport is not None and not self.transport.is_closing():
            self.transport.pause_reading()

    def resume_reading(self) -> None:
        """Go on after `pause_reading` or `Decision.WAIT`."""
        if self.transport is None or self.transport.is_closing():
            return
        try:
            self.reader.resume()
        except ProtocolError as error:
            log.error("broker_answer_unreadable", reason=str(error))
            self.close()
            return
        if not self.reader.stopped and not self.transport.is_closing():
            self.transport.resume_reading()

    def send(self, buffers: list[Buffer], expected: Expected | None) -> None:
        """Write a whole frame, with its size; `expected` is None if the broker won't answer (acks=0)."""
        if self.lost or self.transport is None:
            if expected is not None:
                expected.response_lost()
            return
        if expected is None:
            self.wrote_unanswered = True
        else:
            self.expected.append(expected)
        self.transport.writelines(buffers)

    def write(self, part: Buffer) -> None:
        """Write part of a frame whose `Expected` is already in the queue."""
        if not self.lost and self.transport is not None:
            self.transport.write(part)

    @property
    def is_idle(self) -> bool:
        """True if the broker owes no answer, and may have no request that it would not answer."""
        return not (self.lost or self.expected or self._current is not None or self.wrote_unanswered)

    @property
    def owes_the_client(self) -> bool:
        """True if an answer to a request of the client is due, or the broker alone knows whether it has one."""
        due = (*self.expected, *([] if self._current is None else [self._current]))
        return self.wrote_unanswered or not all(isinstance(one, (Question, _Dropped)) for one in due)

    def forsake(self) -> None:
        """End a connection that owes nothing, without a word to its owner."""
        self._on_lost = lambda: None
        self.close()

    def close(self) -> None:
        """End the connection; open requests are lost."""
        if self.transport is not None and not self.lost:
            self.transport.abort()

    def finish(self, within_s: float, memory: MemoryBudget, *, effects: bool) -> bool:
        """End the connection after the broker has what it would not have answered (acks=0). Return whether that waits.

        `effects` says whether answers are due to requests that change something; if so, these requests are sent too, if
        they are still here. The answers due before are read and dropped, because a socket that is closed while the
        other side still sends discards the data that waits in it. All of it counts against the memory budget until
        then, or until time is up.
        """
        if self.transport is None or self.lost:
            return False
        unsent_bytes = self.transport.get_write_buffer_size()
        # A TLS transport does not report the data that waits in the socket beneath it.
        all_sent = not unsent_bytes and self.transport.get_extra_info("ssl_object") is None
        answers_due = bool(self.expected) or self._current is not None
        waits = self.wrote_unanswered and (answers_due or not all_sent)
        if self.transport.is_closing() or not (waits or (effects and unsent_bytes)):
            self.transport.abort()
            return False
        memory.take(unsent_bytes)
        given_up = asyncio.get_running_loop().call_later(within_s, self.close)

        def let_go() -> None:
            given_up.cancel()
            memory.give_back(unsent_bytes)

        self._let_go = let_go
        self._drop_answers()
        self._finishing = True
        self.transport.set_write_buffer_limits(high=0)  # `resume_writing` is called when all is sent
        self.resume_reading()
        self._end_if_finished()
        return True

    def never_answered(self, expected: Expected) -> None:
        """The last request was cut off: the broker will not have it whole."""
        if self.expected and self.expected[-1] is expected:
            self.expected.pop()

    def _drop_answers(self) -> None:
        """Stop waiting for answers; answers that come nevertheless are read and dropped."""
        current, expected = self._current, tuple(self.expected)
        self._current = None if current is None else _Dropped(current.correlation_id)
        self.expected = [_Dropped(one.correlation_id) for one in expected]
        for one in expected if current is None else (current, *expected):
            one.response_lost()

    def _end_if_finished(self) -> None:
        if not self._finishing or self.expected or self._current is not None or self.transport is None:
            return
        if not self.transport.get_write_buffer_size():
            self.transport.close()

    async def ask(
        self,
        api_key: int,
        api_version: int,
        body: list[Buffer] | bytes,
        client_id: str | None,
        question: Awaiting | None = None,
    ) -> memoryview:
        """Send a request of the proxy's own; return the body of the answer, without its header.

        `question` receives the answer if it is not simply to be held. Raises BrokerUnreachable. After a cancellation
        the answer is read and dropped.
        """
        if question is None:
            question = Question(asyncio.get_running_loop().create_future())
        assert question.correlation_id is not None
        header = request_header(api_key, api_version, question.correlation_id, client_id)
        parts: list[Buffer] = [body] if isinstance(body, bytes) else body
        size = len(header) + sum(len(part) for part in parts)
        self.send([_FRAME.pack(size), header, *parts], question)
        try:
            frame = await question.answer
        except ConnectionError as error:
            raise BrokerUnreachable(str(error)) from None
        return frame[response_header_length(api_key, api_version, frame) :]

    async def exchange_token(self, token: Buffer) -> memoryview:
        """Send a SASL token without header; the broker's. Raises BrokerUnreachable."""
        question = Question(asyncio.get_running_loop().create_future(), correlation_id=None)
        self.send([_FRAME.pack(len(token)), token], question)
        return await question.answer


class Question:
    """Waits for the answer to a request of the proxy's own."""

    __slots__ = ("answer", "correlation_id")

    def __init__(self, answer: asyncio.Future[memoryview], correlation_id: int | None = _OWN_CORRELATION_ID) -> None:
        self.answer = answer
        self.correlation_id = correlation_id

    def response_begins(self, size: int) -> Decision:
        """Always held."""
        return Decision.HOLD

    def response_held(self, frame: memoryview) -> None:
        """Done."""
        if not self.answer.done():
            self.answer.set_result(frame)

    def response_part(self, part: memoryview, last: bool) -> None:
        """Never streamed."""
        raise AssertionError("a question's answer is held")

    def response_lost(self) -> None:
        """No answer comes."""
        if not self.answer.done():
            self.answer.set_exception(BrokerUnreachable("the broker closed the connection"))
            self.answer.exception()


class _Dropped:
    """Receives an answer that nobody waits for any more."""

    __slots__ = ("correlation_id",)

    def __init__(self, correlation_id: int | None) -> None:
        self.correlation_id = correlation_id

    def response_begins(self, size: int) -> Decision:
        """Never held."""
        return Decision.STREAM

    def response_held(self, frame: memoryview) -> None:
        """Its holding had begun before."""

    def response_part(self, part: memoryview, last: bool) -> None:
        """Drop the part."""

    def response_lost(self) -> None:
        """Do nothing."""


async def connect_broker(
    host: str, port: int, protocol: BrokerConnection, timeout_s: float, tls: ssl.SSLContext | None = None
) -> BrokerConnection:
    """Connect `protocol`, with TLS if a context is given. Raises BrokerUnreachable, naming address and cause."""
    loop = asyncio.get_running_loop()
    protocol.host = host
    server_name = None if tls is None else host
    handshake_timeout_s = None if tls is None else timeout_s
    try:
        async with asyncio.timeout(timeout_s):
            await loop.create_connection(
                lambda: protocol,
                host,
                port,
                ssl=tls,
                server_hostname=server_name,
                ssl_handshake_timeout=handshake_timeout_s,
            )
    except TimeoutError:
        raise BrokerUnreachable(f"{host}:{port} did not accept a connection within {timeout_s:g} s") from None
    except (ssl.SSLError, ConnectionResetError) as error:
        if tls is None:
            raise BrokerUnreachable(f"{host}:{port}: {error.strerror or error}") from error
        raise BrokerUnreachable(
            f"{host}:{port}: {explain(error)}; check brokers.tls, and that this is a port of brokers.security_protocol"
        ) from error
    except OSError as error:
        # asyncio puts the address into the text; it is named already.
        reason = os.strerror(error.errno) if error.errno and error.errno > 0 else error.strerror or error
        raise BrokerUnreachable(f"{host}:{port}: {reason}") from error
    return protocol
