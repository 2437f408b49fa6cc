"""Sessions of clients without a connection."""

from __future__ import annotations

from proxy.client.authentication import Authentication
from proxy.client.session import Session
from proxy.config import Listeners


def session(host: str = "10.0.0.1", *, node_id: int | None = 1, rack: str = "", sasl: bool = False) -> Session:
    """Return the session of a client that came in by the port of a broker; `rack` is that of the port."""
    authentication = Authentication(sasl, lambda: 0.0, max_bytes=1 << 20, max_requests=100)
    made = Session(Listeners(rack=rack), node_id, authentication)
    made.host = host
    return made
