"""The proxy's own connections to brokers, and how any connection to a broker is secured.

Clients' connections get TLS here and no more: clients authenticate themselves. The proxy's own, the service
connections, authenticate with the credentials of `brokers.sasl`, again before their session ends (KIP-368).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from proxy.brokers.login import Login, LoginFailed
from proxy.brokers.upstream import BrokerConnection, BrokerUnreachable, connect_broker
from proxy.config import Settings
from proxy.config.security import BrokerTls
from proxy.protocol import apis
from proxy.security.tls import TlsFiles, broker_tls
from proxy.wire.primitives import Buffer

SERVICE_CLIENT_ID = "diskless-proxy"
_RENEW_AT = 0.85
"""Share of a session's lifetime after which the proxy authenticates again, as in Kafka's own clients."""


class BrokerAccess:
    """How brokers are reached: with TLS or without, and with which credentials of the proxy's own."""

    def __init__(self, settings: Settings) -> None:
        """Raise TlsError if the files of `brokers.tls` can't be used."""
        brokers = settings.brokers
        self._connect_timeout_s = brokers.connect_timeout_ms / 1000
        self._login_timeout_s = brokers.request_timeout_ms / 1000
        self.tls: TlsFiles | None = None
        if brokers.security_protocol.endswith("SSL"):
            self.tls = broker_tls(brokers.tls or BrokerTls())
        self._login: Login | None = None
        if brokers.sasl is not None:
            self._login = Login(brokers.sasl, client_id=SERVICE_CLIENT_ID, timeout_s=self._login_timeout_s)

    async def connect(self, host: str, port: int, protocol: BrokerConnection) -> None:
        """Connect for a client, who authenticates itself. Raises BrokerUnreachable."""
        tls = self.tls.context if self.tls is not None else None
        await connect_broker(host, port, protocol, self._connect_timeout_s, tls)

    async def connect_as_service(self, host: str, port: int, protocol: BrokerConnection) -> float | None:
        """Connect and authenticate as the proxy; until when, see `authenticate`. Raises BrokerUnreachable."""
        await self.connect(host, port, protocol)
        try:
            return await self.authenticate(protocol)
        except BrokerUnreachable as error:
            raise BrokerUnreachable(f"{host}:{port}: {error}") from error

    async def authenticate(self, connection: BrokerConnection) -> float | None:
        """Authenticate as the proxy, first or again; the loop's time at which to do it again, None for never.

        Nothing else may be sent meanwhile. Raises BrokerUnreachable, and then, as on cancellation, the connection is
        closed: half authenticated it is of no use.
        """
        if self._login is None:
            return None
        loop = asyncio.get_running_loop()
        began_s = loop.time()
        try:
            async with asyncio.timeout(self._login_timeout_s):
                lifetime_s = await self._login.authenticate(connection)
        except LoginFailed as error:
            connection.close()
            raise BrokerUnreachable(str(error)) from None
        except TimeoutError:
            connection.close()
            raise BrokerUnreachable(f"no answer to the SASL exchange within {self._login_timeout_s:g} s") from None
        except BaseException:
            connection.close()
            raise
        return None if lifetime_s is None else began_s + _RENEW_AT * lifetime_s


class ServiceConnection:
    """The proxy's own connection to any of several brokers, made again when it ends.

    `addresses` gives the candidates at each attempt, best first. One that accepted and did not answer in time (a
    machine that hangs), or closed the connection instead (a controller), is tried last the next time, or it would be
    asked forever.
    """

    def __init__(
        self,
        addresses: Callable[[], list[tuple[str, int]]],
        access: BrokerAccess,
        *,
        request_timeout_s: float,
        max_frame_bytes: int,
    ) -> None:
        self._addresses = addresses
        self._access = access
        self._request_timeout_s = request_timeout_s
        self._max_frame_bytes = max_frame_bytes
        self._connection: BrokerConnection | None = None
        self._address: tuple[str, int] | None = None
        self._silent: tuple[str, int] | None = None
        self._renew_at_s: float | None = None
        self._connecting = asyncio.Lock()

    async def ask(self, api_key: int, api_version: int, body: list[Buffer] | bytes) -> memoryview:
        """Send a request as `BrokerConnection.ask` does, within the request timeout.

        Raises BrokerUnreachable, with the addresses that were tried.
        """
        connection = await self._connected()
        try:
            # In the very step in which `_connected` returned: the next one may begin to authenticate again.
            async with asyncio.timeout(self._request_timeout_s):
                return await connection.ask(api_key, api_version, body, SERVICE_CLIENT_ID)
        except TimeoutError:
            connection.close()
            if self._connection is connection:  # it is known as lost only in the loop's next step
                self._connection = None
                self._silent = self._address
            name = apis.API_TABLE[api_key].name
            raise BrokerUnreachable(f"no answer to {name} within {self._request_timeout_s:g} s") from None
        except BrokerUnreachable:
            if self._connection is connection:
                self._silent = self._address
            raise

    async def connect(self) -> None:
        """Connect and authenticate, unless that is done: an `ask` in the same step then sends its request at once.

        Raises BrokerUnreachable, with the addresses that were tried.
        """
        await self._connected()

    def close(self) -> None:
        """Let go of the connection."""
        if self._connection is not None:
            self._connection.close()

    async def _connected(self) -> BrokerConnection:
        async with self._connecting:
            if self._connection is not None and not self._connection.lost:
                if self._renew_at_s is None or asyncio.get_running_loop().time() < self._renew_at_s:
                    return self._connection
                self._renew_at_s = await self._access.authenticate(self._connection)
                return self._connection
            failures = []
            for host, port in sorted(self._addresses(), key=lambda address: address == self._silent):
                connection = BrokerConnection(max_frame_bytes=self._max_frame_bytes)
                try:
                    self._renew_at_s = await self._access.connect_as_service(host, port, connection)
                except BrokerUnreachable as error:
                    failures.append(str(error))
                else:
                    self._connection = connection
                    self._address = host, port
                    return connection
            raise BrokerUnreachable("; ".join(failures) or "no broker address is known")
