"""The life of one connection: its states, the moves between them, and the cause of its end.

    CONNECTING ◀──▶ OPEN ──────▶ DRAINING ──▶ CLOSING
        │            │               │           │
        └────────────┴───────┬───────┴───────────┘   the client has gone
                             ├──────────▶ GOES_ON
                             ▼               │
                         LINGERING ◀─────────┘
                             │
                             ▼
                           ENDED

CONNECTING: there is no broker connection yet, or no longer. OPEN: requests are handled. DRAINING: no further request is
read, and the answers that matter are given. CLOSING: the transport is closed, and its end is awaited. GOES_ON: the
client has gone, and requests that nobody waits for (acks=0) are still handled. LINGERING: nothing more is done for the
client, but the broker may still take what the client sent last. ENDED: nothing is left.
"""

from __future__ import annotations

from enum import IntEnum, StrEnum


class State(IntEnum):
    """A state of a connection; a connection never moves to a lower one, except from OPEN to CONNECTING."""

    CONNECTING = 0
    OPEN = 1
    DRAINING = 2
    CLOSING = 3
    GOES_ON = 4
    LINGERING = 5
    ENDED = 6


_MOVES = {
    State.CONNECTING: {State.OPEN, State.DRAINING, State.CLOSING, State.GOES_ON, State.LINGERING},
    State.OPEN: {State.CONNECTING, State.DRAINING, State.CLOSING, State.GOES_ON, State.LINGERING},
    State.DRAINING: {State.CLOSING, State.GOES_ON, State.LINGERING},
    State.CLOSING: {State.GOES_ON, State.LINGERING},
    State.GOES_ON: {State.LINGERING},
    State.LINGERING: {State.ENDED},
    State.ENDED: set(),
}


class EndCause(StrEnum):
    """The cause of a connection's end; the first one counts. The values are labels of a metric."""

    CLIENT_LEFT = "client_left"
    IDLE = "idle"
    """`limits.idle_timeout_ms` have passed without a request."""
    DRAINED = "drained"
    """The proxy is being stopped."""
    CUT_OFF = "cut_off"
    """The client or the broker was too slow; `connections_cut_off_total` has the reason."""
    REJECTED = "rejected"
    """The client sent what is no valid request, or is not authenticated."""
    FAILED = "failed"
    """A request met a fault of the proxy."""
    UNANSWERED = "unanswered"
    """A request could not be answered: with acks=0, or because nobody can answer it."""
    UNREADABLE = "unreadable"
    """The broker's answer could not be rewritten."""
    BROKER_UNREACHABLE = "broker_unreachable"
    """No broker accepted a connection for the client."""
    BROKER_LOST = "broker_lost"
    """The broker ended its connection."""
    NOT_ANY_BROKER = "not_any_broker"
    """Another broker stood in, and could not take the client's request; or the client has to authenticate again."""


class Life:
    """The state of one connection, and the cause of its end once there is one."""

    __slots__ = ("cause", "state")

    def __init__(self) -> None:
        self.state = State.CONNECTING
        self.cause: EndCause | None = None

    @property
    def over(self) -> bool:
        """True if nothing more is done for the client."""
        return self.state >= State.LINGERING

    def move(self, to: State) -> bool:
        """Move to a state. False, and nothing happens, if the present one does not lead there."""
        if to not in _MOVES[self.state]:
            return False
        self.state = to
        return True

    def blame(self, cause: EndCause) -> None:
        """Note why the connection ends, unless another cause came first."""
        if self.cause is None:
            self.cause = cause
