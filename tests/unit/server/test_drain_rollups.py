"""The last rollup is written, however a drain ends."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from proxy.accounting.rollups.writer import RollupWriter
from proxy.config import Settings
from proxy.server.server import Server
from tests.unit.assembly.built import parts_of

SETTINGS = {
    "rack": "rack-a",
    "brokers": {"bootstrap": ["localhost:9092"]},
    "redis": {"url": "redis://localhost:6379"},
    "storage": {"url": "file:///nowhere"},
}


@pytest.mark.parametrize("how", ["done", "timed out", "second signal", "failed"])
async def test_the_last_rollup_is_written_however_a_drain_ends(how: str, monkeypatch: pytest.MonkeyPatch) -> None:
    stop, done = asyncio.Event(), list[str]()

    async def hand_over(_: Any) -> None:
        if how == "second signal":
            stop.set()
        if how == "failed":
            raise OSError("nobody thought of this")
        if how != "done":
            await asyncio.Event().wait()
        done.append("handed over")

    async def finish(_: RollupWriter) -> None:
        await asyncio.sleep(0)
        done.append("rollup")

    limits = {"drain_timeout_ms": 1 if how == "timed out" else 60_000}
    settings = Settings.model_validate({**SETTINGS, "limits": limits})
    server = Server(settings)
    monkeypatch.setattr(server, "_hand_over", hand_over)
    monkeypatch.setattr(RollupWriter, "finish", finish)
    try:
        await server._drain(parts_of(settings), stop)
    except OSError:
        assert how == "failed"
    assert done == (["handed over", "rollup"] if how == "done" else ["rollup"])
