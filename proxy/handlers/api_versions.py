"""ApiVersions (API key 18): what the brokers offer, as far as the proxy's table knows it.

Behaviour: the broker's answer is cut down to `proxy.apis`; an API or version that nobody here has classified is not
offered, so a new broker release can't make clients send what would pass unexamined.

Version notes: a request newer than the table's is answered here, with UNSUPPORTED_VERSION in a v0 body and the versions
of ApiVersions itself, as KIP-511 says; the client then asks again.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from proxy.apis import API_TABLE
from proxy.wire.api_versions import clamp_api_versions, unsupported_api_versions_response

_CORRELATION_BYTES = 4

if TYPE_CHECKING:
    from proxy.connection import ClientConnection
    from proxy.request import Request


def api_versions(connection: ClientConnection, request: Request) -> None:
    """Answer or rewrite."""
    if request.api_version > API_TABLE[request.api_key].highest_version:
        connection.open_slot(request).fill(
            [unsupported_api_versions_response(request.correlation_id)[_CORRELATION_BYTES:]]
        )
        return
    kip1163_api = connection.context.settings.kip1163_api
    connection.forward(request, lambda body: clamp_api_versions(body, request.api_version, kip1163_api=kip1163_api))
