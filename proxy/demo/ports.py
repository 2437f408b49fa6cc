"""The ports of the stack: one contiguous range on the loopback interface, always with the same layout."""

from __future__ import annotations

import random
import socket
from dataclasses import dataclass
from pathlib import Path

from proxy.demo.errors import StackError

HOST = "127.0.0.1"

CONTROLLER, BROKERS, REDIS, S3, RESERVATION, PROXIES = 0, 1, 10, 11, 19, 20
"""Offsets from the base. Broker n is at `BROKERS + n - 1`, each proxy has `PORTS_PER_PROXY` from `PROXIES` on."""
S3_PORTS = 8
PORTS_PER_PROXY = 20
BROKER_JMX = 2
"""Among those of the proxy with the same place: there is one at least for every broker."""
STORE_PORTS = 10
"""After those of the proxies: for a store of several servers."""
MAX_PROXIES = 12
MAX_BROKERS = 9

FIRST_BASE, LAST_BASE, STEP = 20_000, 31_000, 270
"""Below the ports that Linux hands out to outgoing connections (32768 on): one of those could take the port of a
server that is down for a moment."""


@dataclass(frozen=True, slots=True)
class Ports:
    """The layout from `base` on, for `proxies` proxies."""

    base: int
    proxies: int

    @property
    def controller(self) -> int:
        """Return the KRaft controller's."""
        return self.base + CONTROLLER

    def broker(self, node_id: int) -> int:
        """Return the port of a broker; node IDs start at 1."""
        return self.base + BROKERS + node_id - 1

    def broker_jmx(self, node_id: int) -> int:
        """Return the metrics of a broker, where the stack offers them."""
        return self.bootstrap(node_id - 1) + BROKER_JMX

    @property
    def redis(self) -> int:
        """Return the Redis-compatible server's."""
        return self.base + REDIS

    def store(self, number: int) -> int:
        """Return a port of a store of several servers, from 0 to `STORE_PORTS` - 1."""
        return self.base + PROXIES + PORTS_PER_PROXY * self.proxies + number

    @property
    def s3(self) -> tuple[int, ...]:
        """Return the S3 server's: the S3 API first, then what its parts use among themselves."""
        return tuple(range(self.base + S3, self.base + S3 + S3_PORTS))

    def bootstrap(self, proxy: int) -> int:
        """Return the bootstrap port of the proxy with this index."""
        return self.base + PROXIES + PORTS_PER_PROXY * proxy

    def admin(self, proxy: int) -> int:
        """Return the proxy's HTTP port."""
        return self.bootstrap(proxy) + 1

    def broker_port_start(self, proxy: int) -> int:
        """The proxy's listener of broker n is at this plus n."""
        return self.bootstrap(proxy) + 5

    @property
    def end(self) -> int:
        """Return the first port behind the range."""
        return self.store(STORE_PORTS)

    def user_of(self, port: int) -> str:
        """Return the part of the stack that would use the port."""
        offset = port - self.base
        if port >= self.store(0):
            return "the Redis-compatible servers"
        if offset >= PROXIES:
            place, of_place = divmod(offset - PROXIES, PORTS_PER_PROXY)
            return f"{'the JMX of broker' if of_place == BROKER_JMX else 'proxy'} {place + 1}"
        if offset >= S3:
            return "the S3 server" if offset < RESERVATION else "the reservation of the range"
        return {CONTROLLER: "the controller", REDIS: "the Redis-compatible server"}.get(offset, f"broker {offset}")


def outgoing_ports(path: Path = Path("/proc/sys/net/ipv4/ip_local_port_range")) -> tuple[int, int]:
    """Return the first and the last port that the system gives to outgoing connections; Linux' default elsewhere."""
    try:
        first, last = map(int, path.read_text().split())
    except (OSError, ValueError):
        return 32_768, 60_999
    return first, last


def warning_of(base: int | None, outgoing: tuple[int, int]) -> str | None:
    """Return what to say of a port base that somebody chose; None if no port of the stack may be taken."""
    first, last = outgoing
    if base is None or base > last or Ports(base, MAX_PROXIES).end <= first:
        return None
    return (
        f"ports from {base} on are among those that the system gives to outgoing connections ({first} to {last}): one "
        f"of them may take the port of a server that is down for a moment; choose a port base below "
        f"{first - (Ports(0, MAX_PROXIES).end)}"
    )


class ReservedPorts:
    """A range of free ports, and a socket on one of them that keeps other stacks away from the range."""

    def __init__(self, base: int | None, proxies: int) -> None:
        """Take the range from `base`, or look for a free one. Raises StackError, naming a port that is taken."""
        if base is not None:
            self.ports = Ports(base, proxies)
            self._socket = _reserve(self.ports)
            return
        bases = list(range(FIRST_BASE, LAST_BASE, STEP))
        random.shuffle(bases)
        for candidate in bases:
            try:
                self.ports = Ports(candidate, proxies)
                self._socket = _reserve(self.ports)
            except StackError:
                continue
            return
        raise StackError(f"no {Ports(0, proxies).end} free ports in a row from {FIRST_BASE} to {LAST_BASE} on {HOST}")

    def release(self) -> None:
        """Let others have the range."""
        self._socket.close()


def _reserve(ports: Ports) -> socket.socket:
    if ports.base < 1024 or ports.end > 65536:
        raise StackError(f"ports {ports.base} to {ports.end - 1} do not all exist for users; choose another port base")
    reservation = socket.socket()
    try:
        # Without SO_REUSEADDR: nobody else, with or without it, can bind the port as long as this socket lives.
        _bind(reservation, ports, ports.base + RESERVATION)
        for port in range(ports.base, ports.end):
            if port != ports.base + RESERVATION:
                with socket.socket() as probe:
                    probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                    _bind(probe, ports, port)
    except BaseException:
        reservation.close()
        raise
    return reservation


def _bind(probe: socket.socket, ports: Ports, port: int) -> None:
    try:
        probe.bind((HOST, port))
    except OSError as error:
        raise StackError(
            f"port {port} on {HOST}, which {ports.user_of(port)} would use, is taken ({error.strerror}); choose "
            f"another port base (the stack uses {ports.base} to {ports.end - 1}), or end the program that has it"
        ) from error
