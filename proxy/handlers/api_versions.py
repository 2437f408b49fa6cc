"""ApiVersions (API key 18): what the brokers offer, as far as the proxy's table knows it.

Behaviour: the broker's answer is cut down to `proxy.protocol.apis`. An API or version that is not classified is not
offered, so a new broker release can't make clients send what would pass unexamined. If near replicas are read, an
unresponsive broker of another rack is not waited for: a new connection gets the last answer of any broker, without its
throttle time, which belongs to one client. If the proxy may not add partitions to transactions of version 2, or shall
not, clients are held at version 1 (`transactions/client_version.py`).

Version notes: a request of a version outside of the table's, also a negative one, is answered here: UNSUPPORTED_VERSION
in a v0 body, with the versions of ApiVersions itself, as KIP-511 says. The client then asks again.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any

from proxy.client.client import Client
from proxy.client.request import Request
from proxy.client.slots import Slot
from proxy.config import Settings
from proxy.protocol.apis import API_TABLE
from proxy.protocol.errors import NONE
from proxy.replicas.near import NearBrokers
from proxy.transactions.client_version import ClientVersion
from proxy.wire.api_versions import (
    FIRST_WITH_FEATURES,
    clamp_api_versions,
    client_software,
    transaction_version,
    unsupported_api_versions_response,
)
from proxy.wire.primitives import INT16, INT32, Buffer

_CORRELATION_BYTES = 4
_LONGEST_SOFTWARE = 100
"""Longest name and version of the software, in characters, because they are kept with the connection."""
_FIRST_THROTTLE_VERSION = 1
"""From here on a throttle time follows the ranges."""


class ApiVersions:
    """Handler of ApiVersions."""

    def __init__(self, settings: Settings, *, near_brokers: NearBrokers, client_version: ClientVersion) -> None:
        self._settings = settings
        self._near_brokers = near_brokers
        self._client_version = client_version
        self._learnt: dict[int, bytes] = {}
        """Body of the last answer without error, by version, as it was sent to clients."""

    def api_versions(self, client: Client, request: Request) -> Coroutine[Any, Any, None] | None:
        """Answer or rewrite."""
        version = request.api_version
        api = API_TABLE[request.api_key]
        if not api.lowest_version <= version <= api.highest_version:
            client.open_slot(request).fill(
                [unsupported_api_versions_response(request.correlation_id)[_CORRELATION_BYTES:]]
            )
            return None
        client.session.software = client_software(request.body, version)[:_LONGEST_SOFTWARE]
        fetch = self._settings.fetch
        learnt = self._learnt.get(version)
        if learnt is not None and fetch.read_near_replicas and self._near_brokers.is_foreign(client.session.node_id):
            return self._in_time(client, request, client.open_slot(request), learnt, fetch.api_versions_wait_ms / 1000)
        if not self._client_version.is_known:
            return self._learn(client, request, client.open_slot(request))
        client.forward(request, lambda body: self._clamp(body, version))
        return None

    async def _learn(self, client: Client, request: Request, slot: Slot) -> None:
        """Answer after it is known which transaction version clients may use. Raises BrokerUnreachable and
        ProtocolError."""
        body = await client.ask(request, request.api_key, request.api_version, [request.body])
        slot.fill(await self._learnt_answer(body, request.api_version))

    async def _learnt_answer(self, body: memoryview, version: int) -> list[Buffer]:
        is_asked = version >= FIRST_WITH_FEATURES and INT16.unpack_from(body)[0] == NONE
        if is_asked and not self._client_version.is_known:
            await self._client_version.learn(transaction_version(body, version))
        return self._clamp(body, version)

    async def _in_time(self, client: Client, request: Request, slot: Slot, learnt: bytes, wait_s: float) -> None:
        """The broker's answer, or what was learnt. Raises BrokerUnreachable and ProtocolError."""
        try:
            async with asyncio.timeout(wait_s):
                body = await client.ask(request, request.api_key, request.api_version, [request.body])
        except TimeoutError:
            slot.fill([learnt])
        else:
            slot.fill(await self._learnt_answer(body, request.api_version))

    def _clamp(self, body: memoryview, version: int) -> list[Buffer]:
        ranges, rest = clamp_api_versions(
            body, version, kip1163_api=self._settings.kip1163_api, transactions_v1=self._client_version.is_1
        )
        if INT16.unpack_from(body)[0] == NONE:
            if version >= _FIRST_THROTTLE_VERSION:  # that was about one client
                self._learnt[version] = b"".join((ranges, INT32.pack(0), rest[INT32.size :]))
            else:
                self._learnt[version] = b"".join((ranges, rest))
        return [ranges, rest]
