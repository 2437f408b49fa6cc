"""DescribeQuorum (API key 55): the controllers' own listeners (v2, KIP-853) are not shown.

Behaviour: to clients every address is the proxy's, and no client connects to a controller. All else stays, with the
directory IDs that `kafka-metadata-quorum` needs.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from proxy.wire.endpoints import hide_controller_listeners

if TYPE_CHECKING:
    from proxy.client.client import Client
    from proxy.client.request import Request


def describe_quorum(client: Client, request: Request) -> None:
    """Rewrite the answer."""
    client.forward(request, lambda body: hide_controller_listeners.steps(body, request.api_version))
