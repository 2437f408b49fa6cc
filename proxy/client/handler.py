"""The handlers of requests, as a connection calls them."""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Mapping
from dataclasses import dataclass
from typing import Any

from proxy.client.client import Client
from proxy.client.request import Request
from proxy.client.slots import Slot
from proxy.wire.frames import Decision

Handler = Callable[[Client, Request], Coroutine[Any, Any, None] | None]
"""Handles a request that is held whole. It opens the slot of the answer before it returns. What must wait is done in
the coroutine that it returns; no further request of the client is looked at until that ends."""
Begin = Callable[[Client, int, memoryview], Decision]
"""Decides about a request from its size and the part of it that has come. HOLD gives it to the handler, whole."""
PassToken = Callable[[Client, bytes, Slot], Coroutine[Any, Any, None]]
"""Handles a SASL token without header, whose answer goes to the slot."""


@dataclass(frozen=True, slots=True)
class Handlers:
    """The handlers of one process."""

    handle: Mapping[int, Handler]
    """Handlers by API key."""
    begin: Mapping[int, Begin]
    """The same for requests that need not be held."""
    token: PassToken
