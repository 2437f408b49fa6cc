"""The broker's side of a client connection: reached, lost, reached again, or another broker that stands in."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable, Coroutine
from typing import TYPE_CHECKING, Any

from proxy.brokers.upstream import BrokerConnection, BrokerUnreachable
from proxy.connection.stand_in import (
    ANSWERS_WITHIN_S,
    LEAST_PAUSE_S,
    SASL_ANSWERS_WITHIN_S,
    reach,
    reach_again,
    wait_in_steps,
)
from proxy.process.unfinished import drop
from proxy.protocol.api_keys import FETCH, METADATA

if TYPE_CHECKING:
    from proxy.brokers.cluster import Cluster
    from proxy.client.expected import Awaiting, Expected
    from proxy.client.request import Request
    from proxy.client.session import Session
    from proxy.process.memory import MemoryBudget
    from proxy.wire.primitives import Buffer

_MAX_FRAME_BYTES = 2**31 - 1
_NEVER_S = float("-inf")


class BrokerSide:
    """The connection to the broker that serves one client.

    `others_serve` returns whether another broker may stand in for the client's; `with_sasl` says that clients
    authenticate, so that the connection to that broker must be a new one of the client. `on_lost` is called when that
    connection has ended, `on_pause` when the broker takes no more, or takes bytes again.
    """

    def __init__(
        self,
        cluster: Cluster,
        session: Session,
        now: Callable[[], float],
        *,
        with_sasl: bool,
        others_serve: Callable[[], bool],
        on_lost: Callable[[], None],
        on_pause: Callable[[bool], None],
        express_lane: bool = True,
    ) -> None:
        self._cluster = cluster
        self._session = session
        self._now = now
        self._answers_within_s = SASL_ANSWERS_WITHIN_S if with_sasl else ANSWERS_WITHIN_S
        self._others_serve = others_serve
        self._on_lost = on_lost
        self._on_pause = on_pause
        self._express_lane = express_lane
        self.upstream: BrokerConnection | None = None
        """None before the first broker is reached; afterwards it stays, also when it is lost."""
        self.stands_in = False
        """True if `upstream` leads to another broker than the listener's, which is down (`stand_in`)."""
        self.connecting: asyncio.Task[None] | None = None
        """The task that reaches a broker, for the first time or again; None when it has ended."""
        self._left_silent: int | None = None
        """The broker that did not answer, and was left last: the client's own, or one that stood in for it."""
        self._reached_again_s = _NEVER_S
        """Time when a broker was reached again last."""
        self._tried_own_s = _NEVER_S
        """Time of the last attempt to return from a broker that stands in."""

    def _make(self) -> BrokerConnection:
        def lost() -> None:
            if made is self.upstream:  # Otherwise it was lost while it was being made: `reach` sees that.
                self._on_lost()

        made = BrokerConnection(
            max_frame_bytes=_MAX_FRAME_BYTES,
            on_lost=lost,
            on_pause=self._on_pause,
            express_lane=self._express_lane,
        )
        return made

    def reach_in(self, task: asyncio.Task[None]) -> None:
        """Let questions wait until this task, which reaches a broker, has ended. It is not kept any longer."""
        self.connecting = task
        task.add_done_callback(self._forget)

    def _forget(self, task: asyncio.Task[None]) -> None:
        if self.connecting is task:
            self.connecting = None

    async def reach(self) -> str:
        """Connect to the client's own broker, or to one that stands in. Raises BrokerUnreachable.

        Return why another one stands in; empty if the client's own broker was reached.
        """
        own = not (self._was_just_reached_again or self._was_silent)
        others = self._others_serve()
        upstream, failure = await reach(
            self._cluster, self._session.node_id, self._make, others=others, own=own, last=self._left_silent
        )
        if upstream.lost:
            raise BrokerUnreachable("the broker took the connection and ended it")  # while nobody looked
        self.stands_in = bool(failure)
        if self.upstream is not None:
            self._reached_again_s = self._now()
        self.upstream = upstream
        return failure

    def may_be_replaced(self, *, reads_near: bool) -> bool:
        """Return whether another connection is as good as the one that is lost: it owed nothing to the client.

        The broker may have closed an idle one, while the proxy served the client itself (diskless topics, for which any
        broker will do; `reads_near`: replicas in the proxy's rack), or the broker is down.
        """
        if self.upstream is None or self.upstream.wrote_unanswered:
            return False
        if self._was_just_reached_again:
            # A broker that is killed may still take a connection before its port is closed: then another is asked.
            return self._others_serve() and self._session.node_id is not None and not self.stands_in
        return self._others_serve() or reads_near

    @property
    def _was_silent(self) -> bool:
        return self._left_silent is not None and self._left_silent == self._session.node_id

    @property
    def _was_just_reached_again(self) -> bool:
        return self._now() < self._reached_again_s + LEAST_PAUSE_S

    def should_try_own(self) -> bool:
        """Return whether it is time to try the client's own broker again: at most once in `LEAST_PAUSE_S`."""
        now_s = self._now()
        if now_s < self._tried_own_s + LEAST_PAUSE_S:
            return False
        self._tried_own_s = now_s
        return True

    async def reach_own(self) -> BrokerConnection | None:
        """Connect to the client's own broker, for `return_to`; None if it does not accept, or the other owes an answer.

        Otherwise a client would be answered NOT_LEADER_OR_FOLLOWER forever after its broker is back and leads again.
        """
        left = self.upstream
        own = await reach_again(self._cluster, self._session.node_id, self._make, was_silent=self._was_silent)
        if own is None:
            return None
        if left is None or left is not self.upstream or not left.is_idle or own.lost:
            own.forsake()
            return None
        return own

    def return_to(self, own: BrokerConnection) -> None:
        """Leave the broker that stands in, which owes nothing, for the client's own."""
        left, self.upstream, self.stands_in, self._left_silent = self.upstream, own, False, None
        self._reached_again_s = self._now()
        if left is not None:
            left.forsake()

    def send(self, buffers: list[Buffer], expected: Expected | None) -> None:
        """Send a whole frame; the answer goes to `expected`. None is expected of a request without acknowledgement.

        If the broker has gone, such a request is lost, and only the end of the connection says so.
        """
        if self.upstream is None:
            return
        if expected is None and self.upstream.lost:
            self._on_lost()
        else:
            self.upstream.send(buffers, expected)

    def pause_reading(self) -> None:
        """Read no more of the broker's answers for now."""
        if self.upstream is not None:
            self.upstream.pause_reading()

    def resume_reading(self) -> None:
        """Read the broker's answers again."""
        if self.upstream is not None:
            self.upstream.resume_reading()

    def close(self) -> None:
        """End the connection; what is open is lost."""
        if self.upstream is not None:
            self.upstream.close()

    def finish(self, within_s: float, memory: MemoryBudget, streamed: Expected | None, *, effects: bool) -> bool:
        """End the connection as `BrokerConnection.finish`; `streamed` expects the answer to a request that is cut off.

        Return whether the broker has yet to take what the client sent last.
        """
        if self.upstream is None:
            return False
        if streamed is not None:
            self.upstream.never_answered(streamed)
        return self.upstream.finish(within_s, memory, effects=effects)

    @property
    def lost(self) -> bool:
        """True if the last connection has ended."""
        return self.upstream is not None and self.upstream.lost

    @property
    def unsent_bytes(self) -> int:
        """Bytes of requests that the broker has yet to take."""
        transport = self.upstream.transport if self.upstream is not None else None
        return transport.get_write_buffer_size() if transport is not None else 0

    async def ask(
        self,
        request: Request,
        api_key: int,
        api_version: int,
        body: list[Buffer] | bytes,
        question: Awaiting | None,
        check: Callable[[], None] | None,
    ) -> memoryview:
        """Ask the broker something as the client. Raises BrokerUnreachable. See `Client.ask`.

        Metadata, by which rights are asked for, is asked again of the broker that stands in, if the broker ends the
        connection. A broker that does not answer it in time, and owes the client nothing, is left if others serve.
        """
        if self.connecting is not None:
            await asyncio.wait([self.connecting])
        if self.stands_in and api_key == FETCH:
            raise BrokerUnreachable("the client's broker is down, and another one must not answer for it")
        if self.upstream is None:
            raise BrokerUnreachable("the client's connection is ending")
        if self._session.authentication.under_way:
            # The broker would take it for a token, and close the connection.
            raise BrokerUnreachable("the client is authenticating")
        upstream = self.upstream
        if check is not None:
            check()
        while True:
            try:
                asking = upstream.ask(api_key, api_version, body, request.client_id, question)
                leaves = api_key == METADATA and self._others_serve()
                return await (self._left_if_silent(upstream, asking) if leaves else asking)
            except BrokerUnreachable:
                if api_key != METADATA:
                    raise
                if self.connecting is not None:
                    await asyncio.wait([self.connecting])
                if self.upstream is upstream:
                    raise
            upstream = self.upstream

    async def _left_if_silent(self, upstream: BrokerConnection, asking: Coroutine[Any, Any, memoryview]) -> memoryview:
        """Wait for the answer; a broker that is silent loses the connection. Raises BrokerUnreachable.

        One that must not be left yet may be, once the pause after the last one is over.
        """
        task = asyncio.get_running_loop().create_task(asking)
        received = upstream.bytes_received
        try:
            for _ in range(1 + math.ceil(LEAST_PAUSE_S / self._answers_within_s)):
                await wait_in_steps(task, self._answers_within_s)
                if task.done() or upstream.bytes_received != received:
                    break
                if upstream.node_id is not None and self._may_leave(upstream):
                    self._left_silent = upstream.node_id
                    if self._session.node_id is None:
                        self._cluster.silent.note(upstream.node_id)  # of all brokers, another one is tried first then
                    upstream.close()
                    break
            return await task
        finally:
            drop(task)

    def _may_leave(self, upstream: BrokerConnection) -> bool:
        """Return whether another broker will be asked in the place of this one, and the client misses nothing."""
        if upstream.owes_the_client or not self.may_be_replaced(reads_near=False):
            return False
        others = self._cluster.view.brokers.keys() - {
            upstream.node_id,
            self._session.node_id if self.stands_in else None,
        }
        return any(node not in self._cluster.silent for node in others)

    async def exchange_token(self, token: bytes) -> memoryview:
        """Send a SASL token without header to the broker, and return its answer. Raises BrokerUnreachable."""
        if self.upstream is None:
            raise BrokerUnreachable("the client's connection is ending")
        return await self.upstream.exchange_token(token)
