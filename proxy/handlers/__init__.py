"""The handlers of all APIs that are rewritten or intercepted, one file per API, built by `proxy/assembly/`.

A handler opens the request's response slot before it returns. What must wait is done in the coroutine that it returns.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Mapping
from typing import TYPE_CHECKING, Any

from proxy import fetch_router, produce_offload
from proxy.handlers.sasl import sasl_authenticate, sasl_handshake
from proxy.protocol.apis import API_TABLE, Treatment

if TYPE_CHECKING:
    from proxy.client.client import Client
    from proxy.client.request import Request

Handler = Callable[["Client", "Request"], Coroutine[Any, Any, None] | None]

HANDLERS: dict[int, Handler] = {
    0: produce_offload.produce,
    1: fetch_router.fetch,
    17: sasl_handshake,
    36: sasl_authenticate,
}
"""Handlers that are not given their parts yet."""


def check_handlers(handlers: Mapping[int, Handler]) -> None:
    """Check that the APIs that the table rewrites or intercepts have a handler each. Raises AssertionError."""
    wanted = {key for key, api in API_TABLE.items() if api.treatment in (Treatment.REWRITE, Treatment.INTERCEPT)}
    assert wanted == handlers.keys(), f"the API table and the handlers differ: {sorted(wanted ^ handlers.keys())}"
