"""Checks of the addresses that clients get: they must resolve, and lead to this machine as far as that can be
checked.

If names select the broker (`sni_broker_host`), the names of all live brokers are tried, and that of a broker that may
join.
"""

from __future__ import annotations

import asyncio
import os
import secrets
import socket
import ssl
from collections.abc import AsyncIterator, Collection, Sequence
from contextlib import asynccontextmanager
from ipaddress import ip_address
from typing import NamedTuple

from proxy.check.certificate_names import unverified
from proxy.check.findings import Finding, Kind, error, ok, warning
from proxy.config import Listeners, Settings
from proxy.process.ports import Bound

_CONNECT_TIMEOUT_S = 3.0
_TOKEN_BYTES = 16


class _Address(NamedTuple):
    """An address that clients get."""

    host: str
    port: int
    where: str
    """Setting that gives the host."""
    future: bool = False
    """True if no live broker has it yet."""


async def check_addresses(settings: Settings, bound: Sequence[Bound], brokers: Collection[int] = ()) -> list[Finding]:
    """Check all listeners. `brokers` are the live ones, as far as they are known.

    `bound` has sockets of this process that have their ports; ports without one are tried as is. The sockets listen for
    a moment, to see that a connection to the clients' address comes here.
    """
    found = await asyncio.gather(
        *(_look_at_all(settings, listeners, bound, brokers) for listeners in settings.all_listeners)
    )
    return [one for findings in found for one in findings]


async def _look_at_all(
    settings: Settings, listeners: Listeners, bound: Sequence[Bound], brokers: Collection[int]
) -> list[Finding]:
    section, port = settings.section_of(listeners), listeners.bootstrap_port
    addresses = [_Address(listeners.client_host, port, f"{section}.advertised_host")]
    if listeners.by_name:
        where, future = f"{section}.sni_broker_host", max(brokers, default=-1) + 1
        addresses += [_Address(listeners.host_of(node_id), port, where) for node_id in sorted(brokers)]
        addresses.append(_Address(listeners.host_of(future), port, where, future=True))
    own = next((one.socket for one in bound if one.listeners is listeners and one.node_id is None), None)
    token = secrets.token_bytes(_TOKEN_BYTES)
    async with _answering(own, token):
        handshake = listeners.by_name and own is None
        expected = None if own is None else token
        return list(await asyncio.gather(*(_look(one, expected, handshake=handshake) for one in addresses)))


async def _look(at: _Address, token: bytes | None, *, handshake: bool) -> Finding:
    host, port, where = at.host, at.port, at.where
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
        if at.future:
            text = f"{host} can't be resolved ({cause}), so clients will not reach a broker of that ID when it joins"
            return warning(Kind.ADDRESSES, where, text, "make a wildcard DNS record, or one record for each broker")
        return error(
            Kind.ADDRESSES, where, f"{host} can't be resolved ({cause})", "fix the setting, or the name service"
        )
    resolved = ", ".join(sorted({str(address[0]) for *_, address in found}))
    address = f"{host}:{port}" if resolved == host else f"{host}:{port} ({resolved})"
    problem_text = await _reach(host, port, token, handshake=handshake)
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


async def _reach(host: str, port: int, token: bytes | None, *, handshake: bool) -> str | None:
    """Return why a connection there does not come here; None if it does.

    Without a token none of this process' sockets listens there: it is enough that the connection is accepted, or with
    `handshake`, that a running proxy takes the name.
    """
    context = unverified() if handshake else None
    try:
        async with asyncio.timeout(_CONNECT_TIMEOUT_S):
            reader, writer = await asyncio.open_connection(host, port, ssl=context)
            try:
                if token is None:
                    return None
                return None if await reader.readexactly(_TOKEN_BYTES) == token else "something else answers there"
            finally:
                writer.transport.abort()
    except TimeoutError:
        return f"no answer within {_CONNECT_TIMEOUT_S:g} s"
    except asyncio.IncompleteReadError:
        return "something else answers there"
    except (ssl.SSLError, ConnectionResetError):
        if handshake:
            return "what listens there does not take the name in a TLS handshake"
        raise
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
