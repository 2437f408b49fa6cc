"""The parent of workers, where they end while it tells them something."""

from __future__ import annotations

import asyncio
import socket
import sys

import pytest
import uvloop

from proxy.process.ports import HeldPorts
from proxy.process.worker_messages import Ask, write_message
from proxy.process.workers import Workers, _Worker
from tests.unit.process.test_ports import settings_of


async def worker(code: str) -> _Worker:
    process = await asyncio.create_subprocess_exec(sys.executable, "-c", code)
    reader = asyncio.StreamReader()
    return _Worker(process, reader, None)


@pytest.mark.skipif(sys.platform != "linux", reason="workers need Linux")
async def test_a_worker_that_has_just_ended_does_not_keep_the_others_from_hearing_of_the_end(monkeypatch):
    """As where no worker can start: all of them say so and end in one moment."""
    monkeypatch.setattr(HeldPorts, "__init__", lambda ports, settings: None)
    monkeypatch.setattr(HeldPorts, "release", lambda ports: None)
    workers = Workers(settings_of())
    ended, running = await worker("pass"), await worker("import time; time.sleep(60)")
    await ended.process.wait()
    workers._workers = {1: ended, 2: running}
    workers._end(HeldPorts(workers.settings))
    assert await running.process.wait() < 0


def test_what_is_said_to_one_that_has_ended_is_an_error_to_expect() -> None:
    async def ask_after_its_end() -> None:
        ours, theirs = socket.socketpair()
        theirs.close()
        _, writer = await asyncio.open_unix_connection(sock=ours)
        writer.close()
        await writer.wait_closed()
        with pytest.raises(ConnectionError, match="ended"):
            write_message(writer, Ask.METRICS)

    uvloop.run(ask_after_its_end())


async def test_what_one_worker_remarks_is_told_though_others_have_nothing_to_say() -> None:
    class Told:
        def __init__(self, answer: str | OSError | None) -> None:
            self.answer = answer

        async def ask(self, question: Ask) -> str | None:
            assert question is Ask.REMARK
            if isinstance(self.answer, OSError):
                raise self.answer
            return self.answer

    workers = Workers(settings_of())
    workers._workers = {1: Told(None), 2: Told(ConnectionError("it has ended"))}  # type: ignore[dict-item]
    assert await workers.remark() is None
    workers._workers[3] = Told("a shard is fenced")  # type: ignore[assignment]
    assert await workers.remark() == "a shard is fenced"
