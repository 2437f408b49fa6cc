"""The express lane as handlers see it: what they have learnt from the last request of an API (decision 0120).

Most requests of a client differ from the last one of the same API in a few fields only. A handler that has read a
request may keep, in the client's session, an `Express` that recognizes the next one by its bytes. The connection asks
that one first (`connection/express.py`). It decides by the present state of everything, never by an earlier verdict.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from proxy.client.slots import BrokerSlot

CLIENT_ID_AT = 12
"""Position of the client ID in a request, counted from the frame's size."""
SIZE_BYTES = 4


class Express(Protocol):
    """Recognizes requests of one API and version of one client that may go to the broker as they came."""

    api_version: int
    held: bool
    """True if the ordinary path would have held the last request that was taken, in the memory budget."""

    def take(self, data: bytes, correlation_id: int) -> BrokerSlot | None:
        """Count a request, and return the place of its answer. None if the request needs the ordinary path.

        `data` is a whole frame with its size, of the API and version.
        """
