"""The shadows of one broker that this proxy follows.

One connection has a fetch session with long polls, which return as soon as a marker is readable. A partition that joins
would have to wait until the poll that is under way ends. So a second connection reads partitions that have joined, in
shorter polls, until the next request of the session includes them.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable

from proxy.brokers.service import ServiceConnection
from proxy.brokers.upstream import BrokerUnreachable
from proxy.coordinator.interface import CoordinatorUnavailable
from proxy.coordinator.interface_transactions import ShadowPosition
from proxy.markers.leaders import Log, ShadowLeaders
from proxy.markers.messages import FETCH_VERSION, Fetched, Place, fetch_answer, fetch_request
from proxy.markers.reader import MarkerReader
from proxy.markers.session import FetchSession
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
        """Those that no request of the session has named yet."""
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
            if answer.error_code == NONE:
                await self._take(self._session_connection, answer, places)

    async def _poll_joining(self) -> None:
        while True:
            places = self._places(self._joining)
            if not places:
                await self._idle()
                continue
            body = fetch_request(places.values(), wait_ms=JOIN_POLL_MS)
            answer = await self._ask(self._join_connection, body, places)
            if answer is not None and answer.error_code == NONE:
                await self._take(self._join_connection, answer, places)

    def _places(self, logs: Iterable[Log]) -> dict[Log, Place]:
        now_s = asyncio.get_running_loop().time()
        places = {}
        for log in logs:
            leader, position = self._leaders.of(log), self._positions.get(log)
            if leader is None or position is None or self._paused_until_s.get(log, now_s) > now_s:
                continue
            places[log] = Place(log, position.next_offset, leader.epoch)
        return places

    async def _idle(self) -> None:
        """Wait until a shadow joins, or a pause may be over."""
        self._woken.clear()
        try:
            async with asyncio.timeout(_PAUSE_S):
                await self._woken.wait()
        except TimeoutError:
            pass

    async def _ask(self, connection: ServiceConnection, body: bytes, places: dict[Log, Place]) -> Fetched | None:
        """Return the answer; None after a failure, and a pause."""
        try:
            answer = fetch_answer(await connection.ask(FETCH, FETCH_VERSION, body))
        except (BrokerUnreachable, ProtocolError) as error:
            for log in places:
                self._leaders.stale(log)
            self._report((), dict.fromkeys(places, str(error)), set())
            await asyncio.sleep(_PAUSE_S)
            return None
        if answer.throttle_ms:
            await asyncio.sleep(answer.throttle_ms / 1000)
        return answer

    async def _take(self, connection: ServiceConnection, answer: Fetched, places: dict[Log, Place]) -> None:
        positions = {
            log: position._replace(next_offset=place.offset)
            for log, place in places.items()
            if (position := self._positions.get(log)) is not None
        }
        try:
            outcome = await self._reader.take(connection, answer.partitions, positions)
        except (CoordinatorUnavailable, BrokerUnreachable, ProtocolError) as error:
            self._report((), dict.fromkeys(answer.partitions, str(error)), set())
            await asyncio.sleep(_PAUSE_S)
            return
        # The other connection may have read further: then the next answer from here corrects the position.
        self._positions.update((log, one) for log, one in outcome.positions.items() if log in self._positions)
        until_s = asyncio.get_running_loop().time() + _PAUSE_S
        self._paused_until_s = {log: until_s for log in outcome.failed} | {
            log: paused_s for log, paused_s in self._paused_until_s.items() if log not in places
        }
        self._report(places.keys() - outcome.failed.keys(), outcome.failed, outcome.gone)
