"""Messages between two processes of one machine, with descriptors of files, over a Unix socket.

The socket keeps the bounds of messages (SOCK_SEQPACKET). Both sides trust each other: they are processes of one proxy,
which `is_sibling` makes sure of.
"""

from __future__ import annotations

import asyncio
import os
import pickle
import socket
import struct
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

MAX_MESSAGE_BYTES = 128 * 1024
"""Maximum size of a message: the system's buffers must take it whole."""
_MAX_DESCRIPTORS = 4
_CREDENTIALS = struct.Struct("3i")
"""Process, user and group."""
_MESSAGES_AT_A_TIME = 64
"""After this many messages, others have the event loop."""


class Channel:
    """One end of a pair of connected sockets, in the running event loop.

    `receive` is called with each message and its descriptors, which it must close. `lost` is called once if the other
    side ends or fails, but not after `close`.
    """

    def __init__(
        self, connected: socket.socket, receive: Callable[[Any, list[int]], None], lost: Callable[[], None]
    ) -> None:
        connected.setblocking(False)
        self._socket = connected
        self._receive = receive
        self._lost = lost
        self._waiting: deque[tuple[bytes, list[int]]] = deque()
        """Messages that the socket had no room for, with descriptors of their own."""
        self._loop = asyncio.get_running_loop()
        self._loop.add_reader(connected, self._readable)
        self.is_open = True

    def send(self, message: object, descriptors: Sequence[int] = ()) -> None:
        """Send a message, later if there is no room; nothing happens if the channel is closed.

        Raises ValueError if the message is too long.
        """
        if not self.is_open:
            return
        packed = pickle.dumps(message, pickle.HIGHEST_PROTOCOL)
        if len(packed) > MAX_MESSAGE_BYTES:
            raise ValueError(f"a message of {len(packed)} bytes is too long for a channel")
        if self._waiting or not self._sent(packed, descriptors):
            try:
                copies = [os.dup(one) for one in descriptors]
            except OSError:  # no more descriptors
                self._loop.call_soon(self._end)
                return
            if not self._waiting:
                self._loop.add_writer(self._socket, self._writable)
            self._waiting.append((packed, copies))

    def close(self) -> None:
        """Close this end. Repeatable."""
        if not self.is_open:
            return
        self.is_open = False
        self._loop.remove_reader(self._socket)
        self._loop.remove_writer(self._socket)
        self._socket.close()
        for _, descriptors in self._waiting:
            _close_all(descriptors)
        self._waiting.clear()

    def _end(self) -> None:
        if self.is_open:
            self.close()
            self._lost()

    def _sent(self, packed: bytes, descriptors: Sequence[int]) -> bool:
        """Return whether there was room. A channel that failed takes everything, and ends."""
        try:
            if descriptors:
                socket.send_fds(self._socket, [packed], list(descriptors))
            else:
                self._socket.send(packed)
        except (BlockingIOError, InterruptedError):
            return False
        except OSError:
            self._loop.call_soon(self._end)
        return True

    def _writable(self) -> None:
        while self._waiting and self.is_open:
            packed, descriptors = self._waiting[0]
            if not self._sent(packed, descriptors):
                return
            self._waiting.popleft()
            _close_all(descriptors)
        if self.is_open:
            self._loop.remove_writer(self._socket)

    def _readable(self) -> None:
        for _ in range(_MESSAGES_AT_A_TIME):
            if not self.is_open:
                return
            try:
                packed, descriptors, flags, _ = socket.recv_fds(self._socket, MAX_MESSAGE_BYTES, _MAX_DESCRIPTORS)
            except (BlockingIOError, InterruptedError):
                return
            except OSError:
                self._end()
                return
            if not packed or flags & (socket.MSG_TRUNC | socket.MSG_CTRUNC):
                _close_all(descriptors)
                self._end()
                return
            self._receive(pickle.loads(packed), descriptors)


def is_sibling(connected: socket.socket) -> bool:
    """Return whether the process at the other end is a child of this process's parent."""
    pid, _, _ = _CREDENTIALS.unpack(connected.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size))
    try:
        status = Path(f"/proc/{pid}/stat").read_text()
    except OSError:  # it has ended, or is not of this PID namespace
        return False
    return int(status.rpartition(")")[2].split()[1]) == os.getppid()


def _close_all(descriptors: Sequence[int]) -> None:
    for one in descriptors:
        with suppress(OSError):
            os.close(one)
