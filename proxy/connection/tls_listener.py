"""A listening port with TLS: every handshake is limited, has an outcome that is logged, and takes the newest files.

asyncio's own TLS server would do without this module, but it holds one context forever, and says nothing of handshakes
that fail. The broker that a connection is for is that of the port, or the one that the handshake's name selects
(`security.server_names`).
"""

from __future__ import annotations

import asyncio
import errno
import socket
import ssl
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

from proxy.connection.connections import Stranger
from proxy.security.server_names import Handshake, begin_handshake
from proxy.security.tls import TlsFiles, explain

if TYPE_CHECKING:
    from proxy.config import Limits
    from proxy.connection.connections import Connections

_ACCEPT_AGAIN_S = 0.1
"""After an error such as too many open files: the next attempt fails too unless somebody lets go of one."""
_SHUTDOWN_S = 3.0
"""For a client's answer to the end of its TLS session."""
_GONE = {errno.ECONNABORTED, errno.ECONNRESET, errno.EPROTO}


Make = Callable[[int | None], asyncio.Protocol]
"""Make the protocol of a connection for a broker; for None, for any broker."""


class _Selected(asyncio.Protocol):
    """Leaves the connection, when the handshake is done, to a protocol for the broker that it has selected."""

    def __init__(self, handshake: Handshake, make: Make) -> None:
        self._handshake = handshake
        self._make = make

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        made = self._make(self._handshake.node_id)
        transport.set_protocol(made)
        made.connection_made(transport)


class TlsListener:
    """Accepts on one socket; `make` is the protocol of each connection, once its handshake is done.

    `node_id` is the broker that the port stands for. With `by_name` it is unused, and `tls` selects brokers by names.
    """

    def __init__(
        self,
        listener: socket.socket,
        tls: TlsFiles,
        make: Make,
        connections: Connections,
        limits: Limits,
        *,
        node_id: int | None = None,
        by_name: bool = False,
    ) -> None:
        self._listener = listener
        self._tls = tls
        self._make = make
        self._connections = connections
        self._limits = limits
        self._node_id = node_id
        self._by_name = by_name
        self._accepting: asyncio.Task[None] | None = None
        self._handshakes: set[asyncio.Task[None]] = set()

    def start(self, backlog: int) -> None:
        """Listen and accept. Raises OSError where the port is taken."""
        self._listener.setblocking(False)
        self._listener.listen(backlog)
        self._accepting = asyncio.get_running_loop().create_task(self._accept())

    def close(self) -> None:
        """Accept no more; handshakes that are not done are broken off."""
        for task in ([self._accepting] if self._accepting is not None else []) + list(self._handshakes):
            task.cancel()
        self._listener.close()

    async def _accept(self) -> None:
        loop = asyncio.get_running_loop()
        while True:
            try:
                accepted, address = await loop.sock_accept(self._listener)
            except OSError as error:
                if error.errno not in _GONE:
                    self._connections.not_accepted(error)
                    await asyncio.sleep(_ACCEPT_AGAIN_S)
                continue
            stranger = Stranger(str(address[0]) if isinstance(address, tuple) else "")
            if not self._connections.begin_handshake(stranger):
                accepted.close()
                continue
            task = loop.create_task(self._shake_hands(accepted, stranger))
            self._handshakes.add(task)
            task.add_done_callback(self._handshakes.discard)

    async def _shake_hands(self, accepted: socket.socket, stranger: Stranger) -> None:
        loop = asyncio.get_running_loop()
        handshake = begin_handshake()
        make = partial(_Selected, handshake, self._make) if self._by_name else partial(self._make, self._node_id)
        try:
            accepted.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            # Not its own timeout alone: that ends in an error that looks as if the client had closed.
            timeout_s = self._limits.tls_handshake_timeout_ms / 1000
            async with asyncio.timeout(timeout_s):
                await loop.connect_accepted_socket(
                    make,
                    accepted,
                    ssl=self._tls.context,
                    ssl_handshake_timeout=2 * timeout_s,
                    # A client that does not answer the end of TLS would hold up a drain.
                    ssl_shutdown_timeout=min(timeout_s, _SHUTDOWN_S),
                )
        except (OSError, TimeoutError) as error:
            if handshake.rejected is not None:
                self._connections.name_rejected(stranger, handshake.rejected)
                return
            reason = explain(error)
            if isinstance(error, TimeoutError):
                reason = "no TLS handshake within limits.tls_handshake_timeout_ms"
            elif isinstance(error, ssl.SSLError) and reason in _NO_TLS_CLIENT:
                reason += "; set the client's security.protocol to SSL or SASL_SSL"
            self._connections.handshake_failed(stranger, reason)
        finally:
            self._connections.end_handshake(stranger)


_NO_TLS_CLIENT = {"what came is no TLS", "an HTTP request came"}
