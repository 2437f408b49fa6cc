"""The gate between a client and its requests: the reasons why reading is paused, and what each one means.

Causes are bits of an integer, because the gate is looked at for every request.
"""

from __future__ import annotations

from typing import NamedTuple

CONNECTING = 1
BARRIER = 2
IN_FLIGHT = 4
BROKER_FULL = 8
CLIENT_FULL = 16
MEMORY = 32
ENDING = 64
ANSWERS_WAIT = 128
THROTTLED = 256


class Meaning(NamedTuple):
    """The effect of one cause."""

    why: str
    stops_in_frame: bool
    """True if not even the rest of a request is read whose beginning is with the broker already.

    Every other cause lets the request through to its end, because otherwise the broker would wait for it forever.
    """
    ends_alone: bool
    """True if the cause ends also when the client has gone."""
    needs_reader: bool
    """True if the cause ends only when the client takes answers."""


CAUSES = {
    CONNECTING: Meaning("there is no broker connection yet", True, True, False),
    BARRIER: Meaning("the handler of the last request has to wait", False, False, False),
    IN_FLIGHT: Meaning("limits.max_in_flight_requests answers are due", False, False, True),
    BROKER_FULL: Meaning("the broker takes no more requests", True, True, False),
    CLIENT_FULL: Meaning("the client takes no more answers", False, False, True),
    MEMORY: Meaning("the next request waits for memory", False, True, False),
    ENDING: Meaning("the connection ends when its answers are given", False, False, False),
    ANSWERS_WAIT: Meaning("too many bytes of answers wait for an earlier answer", False, False, True),
    THROTTLED: Meaning("the client is over its quota (KIP-219)", False, True, False),
}


def _bits(field: str) -> int:
    return sum(cause for cause, meaning in CAUSES.items() if getattr(meaning, field))


_STOPS_IN_FRAME = _bits("stops_in_frame")
_ENDS_ALONE = _bits("ends_alone")
_NEVER_ALONE = _bits("needs_reader") | ENDING


class Gate:
    """The causes that keep one connection's gate closed; it begins as CONNECTING."""

    __slots__ = ("causes",)

    def __init__(self) -> None:
        self.causes = CONNECTING
        """The causes as bits; 0 if requests are let through."""

    def pause(self, cause: int) -> None:
        """Let no further request through, as long as this cause is there."""
        self.causes |= cause

    def resume(self, cause: int) -> bool:
        """Drop a cause. False if it was not there."""
        if not self.causes & cause:
            return False
        self.causes &= ~cause
        return True

    def reads(self, in_frame: bool) -> bool:
        """Return whether the client is read from; `in_frame`: within a request that has been let through."""
        return not self.causes or (in_frame and not self.causes & _STOPS_IN_FRAME)

    def opens_alone(self, *, kept_back: bool, granted: bool, stopped: bool) -> bool:
        """Return whether requests that have come go on without the client.

        `kept_back`: there are bytes of such requests. `granted`: one of them has its memory. `stopped`: they go on in
        the next step of the loop, as the last cause has ended just now.
        """
        if self.causes & _NEVER_ALONE:
            return False
        ends = self.causes & _ENDS_ALONE if self.causes else stopped
        return granted or (bool(ends) and kept_back)
