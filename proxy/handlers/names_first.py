"""Large requests that the broker answers unless they name a diskless topic: their names are read first, in turns.

Such a request is forwarded as it came, however much it names. One that names a diskless topic is rejected in part by
its handler, which reads it whole. No client needs that to be large, so it may have MAX_REJECTED_ELEMENTS.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from typing import Any, NamedTuple

from proxy.client.client import Client
from proxy.client.handler import Handler
from proxy.client.request import Request
from proxy.client.slots import Slot
from proxy.handlers.in_parts import Part
from proxy.process.turns import Turns
from proxy.topics.topics import Topics
from proxy.wire.cold_names import names_in
from proxy.wire.primitives import MAX_REJECTED_ELEMENTS, check_elements
from proxy.wire.steps import LARGE_BYTES, Rewrite, Steps, in_slices


class Names(NamedTuple):
    """How the names of an API's requests are found and judged."""

    fields: tuple[str, ...]
    """The fields with the topics' names or IDs, as kio calls them."""
    is_passed: Callable[[Topics, str | bytes], bool]
    """Whether the broker may get a topic of this name."""
    rewrite: Callable[[Client, Request], Rewrite] | None = None
    """Makes the rewrite of the broker's answer to a forwarded request."""


class NamesFirst:
    """Makes handlers that read the names first if a request is large."""

    def __init__(self, *, topics: Topics, turns: Turns) -> None:
        self._topics = topics
        self._turns = turns

    def of(self, handler: Handler, names: Names) -> Handler:
        """Return the handler for requests of any size."""

        def handle(client: Client, request: Request) -> Coroutine[Any, Any, None] | None:
            if len(request.body) <= LARGE_BYTES:
                return handler(client, request)
            return self._look(client, request, client.open_slot(request), handler, names)

        return handle

    async def _look(self, client: Client, request: Request, slot: Slot, handler: Handler, names: Names) -> None:
        """Raises BrokerUnreachable and ProtocolError."""
        turns, topics = self._turns, self._topics
        reading = names_in.steps(request.api_key, request.api_version, request.body, names.fields)
        named = await turns.run(reading)
        known = None
        while known != topics.version:
            # A topic may become diskless between two turns.
            known = topics.version
            all_pass = await turns.run(_all_pass(topics, named.topics, names))
        if all_pass:
            rewrite = names.rewrite(client, request) if names.rewrite is not None else None
            client.forward_opened(request, slot, rewrite)
            return
        check_elements(named.elements, MAX_REJECTED_ELEMENTS)
        slot.fill([await Part(client, request, turns).answer(handler)])


def _all_pass(topics: Topics, named: list[str | bytes], names: Names) -> Steps[bool]:
    for some in in_slices(named):
        if not all(names.is_passed(topics, name) for name in some):
            return False
        yield
    return True
