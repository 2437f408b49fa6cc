"""The event loop does not sleep for a while after a request."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, cast

import pytest
import uvloop

from proxy.process.poll_window import PollWindow


class Loop:
    """A loop whose time and next step the test decides."""

    def __init__(self) -> None:
        self.now_s = 10.0
        self.ready: list[Callable[[], None]] = []

    def time(self) -> float:
        return self.now_s

    def call_soon(self, callback: Callable[[], None]) -> None:
        self.ready.append(callback)

    def step(self) -> None:
        ready, self.ready = self.ready, []
        for callback in ready:
            callback()


def test_it_polls_until_the_window_of_the_last_request_has_ended() -> None:
    loop = Loop()
    window = PollWindow(cast(Any, loop), 0.5)
    window.begin()
    loop.now_s = 10.4
    window.begin()
    assert len(loop.ready) == 1, "one callback, however many requests come"
    for now_s, polls in ((10.6, 1), (10.89, 1), (10.9, 0)):
        loop.now_s = now_s
        loop.step()
        assert len(loop.ready) == polls, now_s
    window.begin()
    assert len(loop.ready) == 1, "and it begins again"


@pytest.mark.parametrize("new_loop", [asyncio.new_event_loop, uvloop.new_event_loop])
def test_other_callbacks_of_a_real_loop_go_on(new_loop: Callable[[], asyncio.AbstractEventLoop]) -> None:
    loop = new_loop()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(await reader.readexactly(1))
        writer.close()

    async def work() -> None:
        window = PollWindow(loop, 0.02)
        window.begin()
        await asyncio.sleep(0.005)
        server = await asyncio.start_server(serve, "127.0.0.1", 0)
        reader, writer = await asyncio.open_connection(*server.sockets[0].getsockname())
        writer.write(b"x")
        window.begin()
        assert await reader.readexactly(1) == b"x"
        writer.close()
        server.close()

    loop.run_until_complete(work())
    loop.close()
