"""One fetch session with one broker (KIP-227): a request names only the partitions that have changed. Sans-io."""

from __future__ import annotations

from collections.abc import Mapping

from proxy.markers.leaders import Log
from proxy.markers.messages import Fetched, Place, Session
from proxy.protocol.errors import NONE

_LAST_EPOCH = 2**31 - 1
_NO_SESSION_ID = 0
_BEGIN, _FIRST = 0, 1
"""Epoch of a request that begins a session, and of the next one."""


class FetchSession:
    """The partitions that a broker knows from earlier requests of the session.

    Use it for one request after the other: `request`, then `answered`, or `reset` if there is no answer.
    """

    def __init__(self) -> None:
        self._session_id = _NO_SESSION_ID
        self._epoch = _BEGIN
        self._known: dict[Log, Place] = {}
        """Partitions of the session, as the broker knows them."""
        self._asked: dict[Log, Place] = {}
        """Partitions of the session after the request that is under way."""

    def request(self, places: Mapping[Log, Place]) -> tuple[list[Place], Session]:
        """Return the partitions to name in a request that reads exactly `places`, and the session's fields."""
        self._asked = dict(places)
        if self._epoch == _BEGIN:
            return list(places.values()), Session(_NO_SESSION_ID, _BEGIN)
        changed = [place for log, place in places.items() if self._known.get(log) != place]
        forgotten = tuple(log for log in self._known if log not in places)
        return changed, Session(self._session_id, self._epoch, forgotten)

    def answered(self, answer: Fetched) -> None:
        """Note the answer. A broker that has no room for a session answers without one."""
        if answer.error_code != NONE or answer.session_id == _NO_SESSION_ID:
            self.reset()
            return
        self._session_id = answer.session_id
        self._epoch = _FIRST if self._epoch in (_BEGIN, _LAST_EPOCH) else self._epoch + 1
        self._known = self._asked

    def reset(self) -> None:
        """Begin a new session with the next request."""
        self._session_id, self._epoch, self._known = _NO_SESSION_ID, _BEGIN, {}
