"""The last rollup is written however a drain ends."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest

from proxy.config import Limits
from proxy.server.server import Server


@pytest.mark.parametrize("how", ["done", "timed out", "second signal", "failed"])
async def test_the_last_rollup_is_written_however_a_drain_ends(how: str) -> None:
    stop, done = asyncio.Event(), list[str]()

    async def hand_over(_: Any) -> None:
        if how == "second signal":
            stop.set()
        if how == "failed":
            raise OSError("nobody thought of this")
        if how != "done":
            await asyncio.Event().wait()
        done.append("handed over")

    async def finish() -> None:
        await asyncio.sleep(0)
        done.append("rollup")

    settings: Any = SimpleNamespace(limits=Limits(drain_timeout_ms=1 if how == "timed out" else 60_000))
    server = Server(settings, outside=lambda _: None)  # type: ignore[arg-type,return-value]
    server._hand_over = hand_over  # type: ignore[method-assign]
    context: Any = SimpleNamespace(connections=(), rollups=SimpleNamespace(finish=finish))
    try:
        await server._drain(context, stop)
    except OSError:
        assert how == "failed"
    assert done == (["handed over", "rollup"] if how == "done" else ["rollup"])
