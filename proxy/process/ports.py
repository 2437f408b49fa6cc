"""The ports of a proxy: bound before anything else, so that a taken one is known at once.

A socket has its port from the start on but listens only when clients can be served: who comes too early is refused, and
tries another proxy.

Workers share ports by SO_REUSEPORT (socket(7)), which would let any two proxies of one user share them, unnoticed. So
their parent binds each port without it first, which fails where anyone listens; and as a port that is bound and not
yet listened to is no hindrance, it holds a name for each as long as it lives: an abstract Unix socket, which exists
once in a network namespace and never longer than its process.
"""

from __future__ import annotations

import os
import socket
from contextlib import ExitStack
from typing import NamedTuple

from proxy.config import Admin, Listeners, Settings
from proxy.process.keep_alive import keep_alive


class StartError(Exception):
    """The proxy can't start; the text names cause and remedy."""


class Bound(NamedTuple):
    """A socket that has its port, and what it stands for."""

    listeners: Listeners
    node_id: int | None
    """The broker's; None for the bootstrap port."""
    socket: socket.socket
    setting: str
    """That gives the port."""

    def taken(self, error: OSError) -> StartError:
        """What to say where it can't listen."""
        return _taken(self.listeners.host, self.listeners.ports[self.node_id], self.setting, error)


def bind_all(settings: Settings, *, shared: bool = False) -> list[Bound]:
    """One socket for each port of each of the listeners; `shared`: with other workers. Raises StartError."""
    with ExitStack() as opened:
        bound: list[Bound] = []
        for listeners in settings.all_listeners:
            section = settings.section_of(listeners)
            for node, port in listeners.ports.items():
                setting = f"{section}.bootstrap_port" if node is None else f"{section}.broker_port_start + {node}"
                try:
                    one = opened.enter_context(_bound_socket(listeners.host, port, shared))
                    keep_alive(one, settings.limits)
                except OSError as error:
                    raise _taken(listeners.host, port, setting, error) from error
                bound.append(Bound(listeners, node, one, setting))
        opened.pop_all()
        return bound


class HeldPorts:
    """What the parent of workers holds, so that its ports are its workers' and nobody else's."""

    def __init__(self, settings: Settings) -> None:
        """Raises StartError where anyone has one of the ports."""
        with ExitStack() as opened:
            ports = bind_all(settings)
            for bound in ports:
                opened.enter_context(bound.socket)
            for bound in ports:
                try:
                    name = opened.enter_context(socket.socket(socket.AF_UNIX))
                    name.bind(f"\0diskless-proxy/{bound.listeners.host}:{bound.listeners.ports[bound.node_id]}")
                except OSError as error:
                    raise bound.taken(error) from error
                # Only now, as with it the port could be bound beside another proxy's.
                bound.socket.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
            self._opened = opened.pop_all()

    def release(self) -> None:
        """Let others have the ports, as soon as the workers don't listen to them any more. Repeatable."""
        self._opened.close()


def admin_taken(admin: Admin, error: OSError) -> StartError:
    """What to say where the admin port can't be listened to."""
    return _taken(admin.host, admin.port, "admin.port", error)


def _taken(host: str, port: int, setting: str, error: OSError) -> StartError:
    # asyncio puts the address into the text; it is named already.
    reason = os.strerror(error.errno) if error.errno and error.errno > 0 else error.strerror
    return StartError(
        f"can't listen on {host}:{port} ({setting}): {reason}; end the process that holds the port, or choose another "
        "one"
    )


def _bound_socket(host: str, port: int, shared: bool) -> socket.socket:
    family, _, _, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)[0]
    bound = socket.socket(family, socket.SOCK_STREAM)
    try:
        bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if shared:
            bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        bound.bind(address)
    except OSError:
        bound.close()
        raise
    return bound
