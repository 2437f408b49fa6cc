"""Checks of the addresses that clients get: they must resolve, and lead to this machine as far as that can be
checked."""

from __future__ import annotations

import asyncio
import os
import secrets
import socket
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from ipaddress import ip_address

from proxy.check.findings import Finding, Kind, error, ok, warning
from proxy.config import Listeners, Settings
from proxy.process.ports import Bound

_CONNECT_TIMEOUT_S = 3.0
_TOKEN_BYTES = 16


async def check_addresses(settings: Settings, bound: Sequence[Bound]) -> list[Finding]:
    """Check all listeners. `bound` has sockets of this process that have their ports; ports without one are tried as
    is.

    The sockets listen for a moment, to see that a connection to the clients' address comes here.
    """
    return list(
        await asyncio.gather(*(_look(settings, listeners, bound) for listeners in settings.all_listeners)),
    )


async def _look(settings: Settings, listeners: Listeners, bound: Sequence[Bound]) -> Finding:
    host, port = listeners.client_host, listeners.bootstrap_port
    where = f"{settings.section_of(listeners)}.advertised_host"
    if _is_unspecified(host):
        return error(
            Kind.ADDRESSES,
            where,
            f"clients would get {host or 'nothing'}, which is not an address to connect to",
            "set it to a host name or address of this machine that clients reach",
        )
    try:
        found = await asyncio.get_running_loop().getaddrinfo(host, port, type=socket.SOCK_STREAM)
    except (socket.gaierror, UnicodeError) as problem:
        cause = problem.strerror if isinstance(problem, socket.gaierror) else "it is not a host name"
        return error(
            Kind.ADDRESSES, where, f"{host} can't be resolved ({cause})", "fix the setting, or the name service"
        )
    resolved = ", ".join(sorted({str(address[0]) for *_, address in found}))
    address = f"{host}:{port}" if resolved == host else f"{host}:{port} ({resolved})"
    own = next((one for one in bound if one.listeners is listeners and one.node_id is None), None)
    problem_text = await _reach(host, port, own.socket if own is not None else None)
    if problem_text is not None:
        text = f"{address} does not lead to this machine, tried from this machine: {problem_text}"
        remedy = "set it to an address of this machine; ignore this if a load balancer leads here"
        return warning(Kind.ADDRESSES, where, text, remedy)
    if all(ip_address(str(address[0]).partition("%")[0]).is_loopback for *_, address in found):
        return ok(
            Kind.ADDRESSES,
            where,
            f"{address} leads to this machine, by loopback: only clients on this machine can use it",
        )
    return ok(Kind.ADDRESSES, where, f"{address} leads to this machine")


def _is_unspecified(host: str) -> bool:
    try:
        return ip_address(host).is_unspecified
    except ValueError:
        return not host


async def _reach(host: str, port: int, listening: socket.socket | None) -> str | None:
    """Return why a connection there does not come here; None if it does, or if it is accepted and no socket is ours."""
    token = secrets.token_bytes(_TOKEN_BYTES)
    try:
        async with asyncio.timeout(_CONNECT_TIMEOUT_S), _answering(listening, token):
            reader, writer = await asyncio.open_connection(host, port)
            try:
                if listening is None:
                    return None
                return None if await reader.readexactly(_TOKEN_BYTES) == token else "something else answers there"
            finally:
                writer.transport.abort()
    except TimeoutError:
        return f"no answer within {_CONNECT_TIMEOUT_S:g} s"
    except asyncio.IncompleteReadError:
        return "something else answers there"
    except OSError as problem:
        # asyncio puts the addresses into the text; they are named already.
        return os.strerror(problem.errno) if problem.errno and problem.errno > 0 else str(problem)


@asynccontextmanager
async def _answering(listening: socket.socket | None, token: bytes) -> AsyncIterator[None]:
    """Send the token to every client that connects to the socket, during the context."""
    if listening is None:
        yield
        return

    def greet(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(token)
        writer.close()

    server = await asyncio.start_server(greet, sock=listening)
    try:
        yield
    finally:
        server.close()
