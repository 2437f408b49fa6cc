"""A worker's link to the storage process, which is made again whenever it is lost."""

from __future__ import annotations

import asyncio
import os
import socket
from collections.abc import Callable, Sequence
from typing import Any

import structlog

from proxy.process.channel import Channel, is_sibling
from proxy.storage.interface import StorageError

log = structlog.get_logger()

_AGAIN_FIRST_S = 0.02
_AGAIN_LONGEST_S = 0.5
_USUAL_START_S = 5.0

Take = Callable[[Any, list[int]], None]
"""Takes a message and its descriptors."""


class StorageLink:
    """Sends messages, and passes on those that come by their kind.

    Without the storage process, nothing can be sent: `is_open` is False. `on_lost` are called when the link is lost;
    what was asked before is then not answered any more.
    """

    def __init__(self, address: str) -> None:
        """`address` is that of the storage process's socket."""
        self._address = address
        self._channel: Channel | None = None
        self._opened = asyncio.Event()
        self._gone = asyncio.Event()
        self._takes: dict[type, Take] = {}
        self.on_lost: list[Callable[[], None]] = []

    @property
    def is_open(self) -> bool:
        """Return whether messages can be sent."""
        return self._channel is not None

    async def wait_open(self) -> None:
        """Wait until the link is open. Raises StorageError if that takes long."""
        try:
            async with asyncio.timeout(_USUAL_START_S):
                await self._opened.wait()
        except TimeoutError:
            raise StorageError("it does not run yet; see the log") from None

    def take(self, kind: type, take: Take) -> None:
        """Give the messages of a kind to `take`, which closes their descriptors."""
        self._takes[kind] = take

    def send(self, message: object, descriptors: Sequence[int] = ()) -> None:
        """Send a message; nothing happens if the link is not open."""
        if self._channel is not None:
            self._channel.send(message, descriptors)

    async def keep(self) -> None:
        """Keep the link open, forever."""
        pause_s = _AGAIN_FIRST_S
        while True:
            connected = await self._connected()
            if connected is None:
                await asyncio.sleep(pause_s)
                pause_s = min(2 * pause_s, _AGAIN_LONGEST_S)
                continue
            pause_s = _AGAIN_FIRST_S
            self._gone.clear()
            self._channel = Channel(connected, self._receive, self._lost)
            self._opened.set()
            try:
                await self._gone.wait()
            finally:
                self.close()

    async def _connected(self) -> socket.socket | None:
        """Return a socket that is connected to the storage process; None if that is not possible yet."""
        try:
            connected = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        except OSError:  # no more descriptors
            return None
        try:
            connected.setblocking(False)
            await asyncio.get_running_loop().sock_connect(connected, self._address)
            if is_sibling(connected):
                return connected
        except OSError:
            pass
        connected.close()
        return None

    def close(self) -> None:
        """End the link, as if it were lost. Repeatable."""
        if self._channel is not None:
            self._channel.close()
            self._lost()

    def _lost(self) -> None:
        self._channel = None
        self._opened.clear()
        self._gone.set()
        for lost in self.on_lost:
            lost()

    def _receive(self, message: Any, descriptors: list[int]) -> None:
        take = self._takes.get(type(message))
        if take is None:
            for one in descriptors:
                os.close(one)
            return
        take(message, descriptors)
