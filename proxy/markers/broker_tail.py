"""The shadows of one broker that this proxy follows.

One connection has a fetch session with long polls, which return as soon as a marker is readable. A partition that joins
would have to wait until the poll that is under way ends. So a second connection reads partitions that have joined, in
shorter polls, until the next request of the session includes them.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Iterable

from proxy.brokers.service import ServiceConnection
from proxy.brokers.upstream import BrokerUnreachable
from proxy.coordinator.interface import CoordinatorUnavailable
from proxy.coordinator.interface_transactions import ShadowPosition
from proxy.markers.epochs import to_compare
from proxy.markers.leaders import Log, ShadowLeaders
from proxy.markers.messages import FETCH_VERSION, Fetched, Place, fetch_answer, fetch_request
from proxy.markers.reader import MarkerReader, Outcome
from proxy.markers.session import FetchSession
from proxy.process.waiting import wait_at_most
from proxy.protocol.api_keys import FETCH
from proxy.protocol.errors import NONE
from proxy.wire.errors import ProtocolError

POLL_MS = 250
"""Time that a broker waits for a marker before it answers without one."""
JOIN_POLL_MS = 25
"""The same for partitions that have joined: others may join meanwhile."""
_PAUSE_S = 0.25
"""Pause after a failure, of one shadow or of the broker."""

Failures = dict[Log, str]


class BrokerTail:
    """Follows shadows at one leader. It keeps their `positions` up to date."""

    def __init__(
        self,
        connections: tuple[ServiceConnection, ServiceConnection],
        reader: MarkerReader,
        leaders: ShadowLeaders,
        positions: dict[Log, ShadowPosition],
        report: Callable[[Iterable[Log], Failures, set[Log]], None],
    ) -> None:
        """`report` is called after each answer with the shadows that were read, those that failed, with reasons, and
        those whose logs are gone."""
        self._session_connection, self._join_connection = connections
        self._reader = reader
        self._leaders = leaders
        self._positions = positions
        self._report = report
        self._session = FetchSession()
        self.logs: set[Log] = set()
        """Shadows to follow."""
        self._joining: set[Log] = set()
        """Shadows that no request of the session has named yet."""
        self._paused_until_s: dict[Log, float] = {}
        self._woken = asyncio.Event()

    def join(self, log: Log) -> None:
        """Follow a shadow, whose position is known, from now on."""
        self.logs.add(log)
        self._joining.add(log)
        self._woken.set()

    def leave(self, log: Log) -> None:
        """Follow a shadow no more."""
        self.logs.discard(log)
        self._joining.discard(log)
        self._paused_until_s.pop(log, None)

    async def follow(self) -> None:
        """Follow forever. Cancelled, both connections are closed."""
        polls = [asyncio.ensure_future(self._poll_session()), asyncio.ensure_future(self._poll_joining())]
        try:
            await asyncio.gather(*polls)
        finally:
            for poll in polls:
                poll.cancel()
            await asyncio.gather(*polls, return_exceptions=True)
            self._session_connection.close()
            self._join_connection.close()

    async def _poll_session(self) -> None:
        while True:
            await self._compare(self._session_connection, self.logs)
            places = self._places(self.logs)
            if not places:
                await self._idle()
                continue
            named, session = self._session.request(places)
            self._joining -= places.keys()
            body = fetch_request(named, wait_ms=POLL_MS, session=session)
            answer = await self._ask(self._session_connection, body, places)
            if answer is None:
                self._session.reset()
                continue
            self._session.answered(answer)
            await self._take(self._session_connection, answer, places)

    async def _poll_joining(self) -> None:
        while True:
            await self._compare(self._join_connection, self._joining)
            places = self._places(self._joining)
            if not places:
                await self._idle()
                continue
            body = fetch_request(places.values(), wait_ms=JOIN_POLL_MS)
            answer = await self._ask(self._join_connection, body, places)
            if answer is not None:
                await self._take(self._join_connection, answer, places)

    def _readable(self, logs: Iterable[Log]) -> dict[Log, ShadowPosition]:
        """Return the positions of those that are not paused."""
        now_s = asyncio.get_running_loop().time()
        return {
            log: position
            for log in logs
            if (position := self._positions.get(log)) is not None and self._paused_until_s.get(log, now_s) <= now_s
        }

    async def _compare(self, connection: ServiceConnection, logs: Iterable[Log]) -> None:
        """Compare positions with the logs of a new leader."""
        positions = to_compare(self._readable(logs), self._leaders)
        if not positions:
            return
        try:
            outcome = await self._reader.compare(connection, positions)
        except (CoordinatorUnavailable, BrokerUnreachable, ProtocolError) as error:
            self._fail(positions, str(error))
            await asyncio.sleep(_PAUSE_S)
            return
        self._note(outcome, positions)

    def _places(self, logs: Iterable[Log]) -> dict[Log, Place]:
        """Return where to read those that are not paused, and whose positions are of the present leader's log."""
        positions = self._readable(logs)
        older = to_compare(positions, self._leaders)
        return {
            log: Place(log, position.next_offset, leader.epoch)
            for log, position in positions.items()
            if log not in older and (leader := self._leaders.of(log)) is not None
        }

    async def _idle(self) -> None:
        """Wait until a shadow joins, or a pause may be over."""
        self._woken.clear()
        await wait_at_most(self._woken, _PAUSE_S)

    async def _ask(self, connection: ServiceConnection, body: bytes, places: dict[Log, Place]) -> Fetched | None:
        """Return the answer; None after a failure, and a pause."""
        try:
            answer = fetch_answer(await connection.ask(FETCH, FETCH_VERSION, body))
        except (BrokerUnreachable, ProtocolError) as error:
            for log in places:
                self._leaders.stale(log)
            self._fail(places, str(error))
            await asyncio.sleep(_PAUSE_S)
            return None
        if answer.throttle_ms:
            await asyncio.sleep(answer.throttle_ms / 1000)
        return answer

    async def _take(self, connection: ServiceConnection, answer: Fetched, places: dict[Log, Place]) -> None:
        if answer.error_code != NONE:
            # Most likely the broker has dropped the session; the next request begins a new one.
            await asyncio.sleep(JOIN_POLL_MS / 1000)
            return
        positions = {
            log: position._replace(next_offset=place.offset)
            for log, place in places.items()
            if (position := self._positions.get(log)) is not None
        }
        try:
            outcome = await self._reader.take(connection, answer.partitions, positions)
        except (CoordinatorUnavailable, BrokerUnreachable, ProtocolError) as error:
            self._fail(answer.partitions, str(error))
            await asyncio.sleep(_PAUSE_S)
            return
        self._note(outcome, places)

    def _fail(self, logs: Iterable[Log], why: str) -> None:
        self._report((), dict.fromkeys(logs, why), set())

    def _note(self, outcome: Outcome, asked: Collection[Log]) -> None:
        """Take over an outcome of the shadows that were asked for."""
        # The other connection may have read further: then the next answer from here corrects the position.
        self._positions.update((log, one) for log, one in outcome.positions.items() if log in self._positions)
        until_s = asyncio.get_running_loop().time() + _PAUSE_S
        kept = {log: paused_s for log, paused_s in self._paused_until_s.items() if log not in asked}
        self._paused_until_s = kept | dict.fromkeys(outcome.failed, until_s)
        self._report(set(asked) - outcome.failed.keys(), outcome.failed, outcome.gone)
