"""Pass bytes on, in as little Python as possible: the floor of any proxy in Python. `lean.py PORT TARGET_PORT`.

It understands nothing of what it passes on. Backpressure is what transports do by themselves: buffers have no limit.
"""

from __future__ import annotations

import asyncio
import sys
from typing import cast

import uvloop


class Broker(asyncio.Protocol):
    """The connection to the broker for one client."""

    def __init__(self, client: asyncio.Transport) -> None:
        self.data_received = client.write  # type: ignore[method-assign]
        self._client = client

    def connection_lost(self, _: Exception | None) -> None:
        """Close the client's connection, too."""
        self._client.close()


class Client(asyncio.Protocol):
    """The connection of one client."""

    def __init__(self, target_port: int) -> None:
        self._target_port = target_port
        self._early: list[bytes] = []
        self._broker: asyncio.Transport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Connect to the broker."""
        self._client = cast(asyncio.Transport, transport)
        self._connecting = asyncio.create_task(self._connect())

    async def _connect(self) -> None:
        loop = asyncio.get_running_loop()
        self._broker, _ = await loop.create_connection(lambda: Broker(self._client), "127.0.0.1", self._target_port)
        self._broker.writelines(self._early)
        self.data_received = self._broker.write  # type: ignore[method-assign]

    def data_received(self, data: bytes) -> None:
        """Keep what comes before the broker is connected; replaced by the broker's `write` afterwards."""
        if self._broker is None:
            self._early.append(data)
        else:
            self._broker.write(data)

    def connection_lost(self, _: Exception | None) -> None:
        """Close the broker's connection, too."""
        if self._broker is not None:
            self._broker.close()


async def main(port: int, target_port: int) -> None:
    """Listen on the loopback address until the process is ended."""
    loop = asyncio.get_running_loop()
    server = await loop.create_server(lambda: Client(target_port), "127.0.0.1", port)
    await server.serve_forever()


if __name__ == "__main__":
    uvloop.run(main(*map(int, sys.argv[1:])))
