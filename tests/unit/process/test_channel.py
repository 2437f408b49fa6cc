"""Messages between processes of one proxy: whole, in order, with their descriptors, however slow the other side is."""

from __future__ import annotations

import asyncio
import os
import socket
from typing import Any

import pytest

from proxy.process.channel import MAX_MESSAGE_BYTES, Channel
from proxy.process.shared_memory import SharedMemory, mapped

MESSAGES = 2_000


class Ends:
    """Two ends; what the second one receives."""

    def __init__(self) -> None:
        self.received: list[tuple[Any, list[int]]] = []
        self.lost: list[str] = []
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self.first = Channel(ours, self._take, lambda: self.lost.append("first"))
        self._theirs = theirs

    def open_second(self) -> Channel:
        self.second = Channel(self._theirs, self._take, lambda: self.lost.append("second"))
        return self.second

    def _take(self, message: Any, descriptors: list[int]) -> None:
        self.received.append((message, descriptors))

    async def received_all(self, count: int) -> list[Any]:
        for _ in range(10_000):
            if len(self.received) >= count:
                break
            await asyncio.sleep(0.001)
        return [message for message, _ in self.received]


async def test_messages_that_had_to_wait_arrive_in_order() -> None:
    ends = Ends()
    for number in range(MESSAGES):
        ends.first.send((number, b"x" * 1_000))
    assert ends.first._waiting, "the socket is full"
    ends.open_second()
    last = MESSAGES
    while len(ends.received) < MESSAGES:  # some are sent while others wait
        ends.first.send((last, b""))
        last += 1
        await asyncio.sleep(0)
    assert [number for number, _ in await ends.received_all(last)] == list(range(last))
    spins = asyncio.get_running_loop().remove_writer(ends.first._socket)
    assert not spins, "nothing waits, so the event loop is not to ask whether there is room"
    ends.first.close()
    ends.second.close()
    assert not ends.lost


async def test_memory_is_shared_by_its_descriptor() -> None:
    ends = Ends()
    memory = SharedMemory(100)
    memory.view[:3] = b"abc"
    for number in range(MESSAGES):
        ends.first.send(number)
    ends.first.send("memory", [memory.descriptor])
    memory.close()
    ends.open_second()
    await ends.received_all(MESSAGES + 1)
    message, (descriptor,) = ends.received[-1]
    assert message == "memory"
    there = mapped(descriptor, 100)
    assert bytes(there[:3]) == b"abc"
    with pytest.raises(OSError, match="Bad file descriptor"):
        os.fstat(descriptor)
    ends.first.close()
    ends.second.close()


async def test_an_end_that_is_gone_is_noticed_once_and_takes_no_messages() -> None:
    ends = Ends()
    ends.open_second()
    ends.second.close()
    for _ in range(3):
        ends.first.send("nobody hears this")
    await asyncio.sleep(0.05)
    assert ends.lost == ["first"]
    assert not ends.first.is_open
    ends.first.send("nor this")
    ends.first.close()


async def test_messages_of_any_size_up_to_the_limit_arrive_whole() -> None:
    ends = Ends()
    ends.open_second()
    with pytest.raises(ValueError, match="too long"):
        ends.first.send(b"x" * MAX_MESSAGE_BYTES)
    sizes = [1, 1_000, MAX_MESSAGE_BYTES - 100]
    for size in sizes:
        ends.first.send(b"x" * size)
    assert [len(message) for message in await ends.received_all(3)] == sizes
    ends.first.close()
    ends.second.close()
