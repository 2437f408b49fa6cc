"""One client's connection as the rest of the process sees it: its figures, and its end."""

from __future__ import annotations

from typing import TYPE_CHECKING

from proxy.connection.gate import CLIENT_FULL
from proxy.connection.life import EndCause

if TYPE_CHECKING:
    from proxy.client.session import Session
    from proxy.connection.answers import Answers
    from proxy.connection.broker_side import BrokerSide
    from proxy.connection.charges import Charges
    from proxy.connection.client_side import ClientSide
    from proxy.connection.reading import Reading
    from proxy.connection.requests import Requests


class OpenConnection:
    """The base of `ClientConnection`, which has the tasks and the timers."""

    session: Session
    client: Requests
    """The client as its handlers see it."""
    client_side: ClientSide
    broker_side: BrokerSide
    answers: Answers
    reading: Reading
    opened_ms: int
    """Time since 1970 at which the client came; 0 before."""
    received_bytes: int
    last_active_s: float
    _charges: Charges

    def drain(self, cause: EndCause = EndCause.DRAINED) -> None:
        """Read no further request; close when every answer that matters is given."""
        raise NotImplementedError

    def close(self, cause: EndCause = EndCause.UNANSWERED) -> None:
        """End at once; what is written is still sent."""
        raise NotImplementedError

    def abort(self, cause: EndCause = EndCause.CUT_OFF) -> None:
        """End at once; what is not sent is lost."""
        raise NotImplementedError

    @property
    def requests(self) -> int:
        """Requests that were read so far."""
        return self.client.count

    @property
    def host(self) -> str:
        """The client's IP address."""
        return self.session.host

    @property
    def address(self) -> str:
        """The client's address as `host:port`; the host alone when it has gone."""
        port = self.client_side.port
        return self.session.host if port is None else f"{self.session.host}:{port}"

    @property
    def busy(self) -> bool:
        """True if an answer is due."""
        return bool(self.answers.slots)

    @property
    def requests_underway(self) -> int:
        """Requests whose answers are due."""
        return len(self.answers.slots)

    @property
    def sent_bytes(self) -> int:
        """Bytes that were written to the client."""
        return self.client_side.sent_bytes

    @property
    def unsent_bytes(self) -> int:
        """Bytes that were written and have not left the process, as the client does not take them."""
        return self.client_side.unsent_bytes

    @property
    def unread_bytes(self) -> int:
        """Bytes of whole answers that have not left the process."""
        return self.client_side.unsent_bytes + self.answers.held_bytes

    @property
    def read_bytes(self) -> int:
        """Bytes that the client has taken so far."""
        return self.client_side.sent_bytes - self.client_side.unsent_bytes

    @property
    def held_up_bytes(self) -> int:
        """Bytes that the broker has yet to take, if bytes of the memory budget wait for that.

        None while the client takes no answers: then it is the client that holds them up.
        """
        held_up = self._charges.forwarded_bytes and not self.reading.gate.causes & CLIENT_FULL
        return self.broker_side.unsent_bytes if held_up else 0

    @property
    def unwatched_descriptor(self) -> int | None:
        """The client's socket if it is not read from, so that its end is not noticed; otherwise None.

        A request that is not answered (acks=0) goes on when its client has left: that one is not looked for.
        """
        return None if self.client.does_unanswered else self.client_side.unwatched_descriptor
