"""The ports of a proxy: bound before anything else, so that a port that is in use is noticed at once.

A socket has its port from the start, but listens only when clients can be served. A client that comes too early is
refused, and tries another proxy.

Workers share ports by SO_REUSEPORT (socket(7)), which would let any two proxies of one user share them, unnoticed. So
their parent first binds each port without it, which fails if any process listens on it. A port that is bound but not
listened to is no obstacle to others, so the parent also holds a name for each port as long as it lives: an abstract
Unix socket, which exists once in a network namespace and never outlives its process.
"""

from __future__ import annotations

import errno
import os
import socket
from collections.abc import Iterator
from contextlib import ExitStack
from typing import NamedTuple

from proxy.config import Admin, Listeners, Settings
from proxy.config.values import HIGHEST_PORT
from proxy.process.keep_alive import keep_alive


class StartError(Exception):
    """The proxy can't start; the text names cause and remedy."""


class Bound(NamedTuple):
    """A socket that has its port, and the listener it belongs to."""

    listeners: Listeners
    node_id: int | None
    """The broker's; None for the bootstrap port."""
    socket: socket.socket
    setting: str
    """Setting that gives the port."""

    @property
    def port(self) -> int:
        """Its number."""
        return self.listeners.port_of(self.node_id)

    def taken(self, error: OSError) -> StartError:
        """Return the error for a port that can't be listened on."""
        return _taken(self.listeners.host, self.port, self.setting, error)


def bind_all(settings: Settings, *, shared: bool = False) -> list[Bound]:
    """One socket for each port of each of the listeners; `shared`: with other workers. Raises StartError."""
    with ExitStack() as opened:
        bound: list[Bound] = []
        for port in _ports(settings):
            one = _bind(settings, port, shared)
            opened.enter_context(one.socket)
            bound.append(one)
        opened.pop_all()
        return bound


def bind_free(settings: Settings) -> tuple[list[Bound], dict[int, StartError]]:
    """Return the ports of the listeners that can be bound, and what `bind_all` would say of each other one, by port."""
    bound, taken = list[Bound](), dict[int, StartError]()
    for port in _ports(settings):
        try:
            bound.append(_bind(settings, port, shared=False))
        except StartError as error:
            taken[port.number] = error
    return bound, taken


def bind_late(settings: Settings, listeners: Listeners, node_id: int, *, shared: bool = False) -> Bound:
    """Return a socket for a broker that joined outside of `broker_node_ids`. Raises StartError."""
    setting = f"{settings.section_of(listeners)}.broker_port_start + {node_id}"
    number = listeners.broker_port_start + node_id
    if number > HIGHEST_PORT:
        raise StartError(
            f"{setting} is {number}, above port {HIGHEST_PORT}; give the broker a lower node.id, or lower "
            "broker_port_start on all proxies"
        )
    return _bind(settings, _Port(listeners, node_id, number, setting), shared)


def try_admin(admin: Admin) -> None:
    """Bind the admin port for a moment. Raises StartError."""
    try:
        _bound_socket(admin.host, admin.port, shared=False).close()
    except OSError as error:
        raise admin_taken(admin, error) from error


class _Port(NamedTuple):
    listeners: Listeners
    node_id: int | None
    number: int
    setting: str


def _ports(settings: Settings) -> Iterator[_Port]:
    for listeners in settings.all_listeners:
        section = settings.section_of(listeners)
        for node, number in listeners.ports.items():
            setting = f"{section}.bootstrap_port" if node is None else f"{section}.broker_port_start + {node}"
            yield _Port(listeners, node, number, setting)


def _bind(settings: Settings, port: _Port, shared: bool) -> Bound:
    host = port.listeners.host
    try:
        one = _bound_socket(host, port.number, shared)
    except OSError as error:
        raise _taken(host, port.number, port.setting, error) from error
    try:
        keep_alive(one, settings.limits)
    except OSError as error:
        one.close()
        raise _taken(host, port.number, port.setting, error) from error
    return Bound(port.listeners, port.node_id, one, port.setting)


class HeldPorts:
    """Ports and names that the parent of workers holds, so that only its own workers can use the ports."""

    def __init__(self, settings: Settings) -> None:
        """Raise StartError if another process has one of the ports."""
        with ExitStack() as opened:
            ports = bind_all(settings)
            for bound in ports:
                opened.enter_context(bound.socket)
            for bound in ports:
                try:
                    opened.enter_context(_hold_name(bound))
                except OSError as error:
                    raise bound.taken(error) from error
            self._opened = opened.pop_all()
        self._settings = settings
        self._late: set[int] = set()
        """Node IDs outside of `broker_node_ids` whose ports are held."""

    def hold(self, node_id: int) -> None:
        """Hold the ports of a broker that joined outside of `broker_node_ids`; repeatable. Raises StartError."""
        if node_id in self._late:
            return
        with ExitStack() as opened:
            for listeners in self._settings.all_listeners:
                if listeners.by_name or node_id in listeners.node_ids:
                    continue
                bound = bind_late(self._settings, listeners, node_id)
                opened.enter_context(bound.socket)
                try:
                    opened.enter_context(_hold_name(bound))
                except OSError as error:
                    raise bound.taken(error) from error
            self._opened.push(opened.pop_all())
        self._late.add(node_id)

    def release(self) -> None:
        """Let others have the ports, as soon as the workers don't listen to them any more. Repeatable."""
        self._opened.close()


def _hold_name(bound: Bound) -> socket.socket:
    """Return the abstract socket that keeps other parents off a port. Raises OSError if another process has it."""
    name = socket.socket(socket.AF_UNIX)
    try:
        name.bind(f"\0diskless-proxy/{bound.listeners.host}:{bound.port}")
        # Set it only now: with this option the port could be bound although another proxy has it.
        bound.socket.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
    except OSError:
        name.close()
        raise
    return name


def admin_taken(admin: Admin, error: OSError) -> StartError:
    """Return the error for an admin port that can't be listened on."""
    return _taken(admin.host, admin.port, "admin.port", error)


def _taken(host: str, port: int, setting: str, error: OSError) -> StartError:
    # asyncio puts the address into the text; it is named already.
    reason = os.strerror(error.errno) if error.errno and error.errno > 0 else error.strerror
    if error.errno in (errno.EACCES, errno.EPERM):
        remedy = "choose a port above 1023, or allow the process to bind it (CAP_NET_BIND_SERVICE)"
    elif error.errno == errno.EADDRNOTAVAIL or isinstance(error, socket.gaierror):
        remedy = f"set {setting.rpartition('.')[0]}.host to an address of this machine, or to 0.0.0.0 for all"
    else:
        remedy = "end the process that holds the port, or choose another one"
    return StartError(f"can't listen on {host}:{port} ({setting}): {reason}; {remedy}")


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
