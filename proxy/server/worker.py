"""One worker: a proxy process that shares ports with others. Its parent starts it and questions it (`workers.py`).

`python -m proxy.server.worker NUMBER DESCRIPTOR PARENT_PID STORAGE_NAME`. Number 0 is the storage process, which has
no clients: it writes and reads object storage for the workers, which connect to it at STORAGE_NAME. The first message
on the descriptor has the settings, so that all workers have the same settings even if the file has changed since. The
second message has the log level. Then come questions (`worker_messages.py`).
"""

from __future__ import annotations

import signal

if __name__ == "__main__":
    # SIGHUP is meant for the parent. Ignore it before the slow imports, because its default is to end the process.
    signal.signal(signal.SIGHUP, signal.SIG_IGN)

import asyncio
import ctypes
import os
import socket
import sys
from collections.abc import Callable
from contextlib import suppress
from functools import partial

import structlog
import uvloop

from proxy.admin.api.question import ProcessAnswer, Question
from proxy.admin.process_source import ProcessSource
from proxy.config import Settings
from proxy.process.memory_trim import keep_freed_memory
from proxy.process.ports import StartError
from proxy.process.sharing import STORAGE_PROCESS, Sharing
from proxy.process.threads import favour_the_event_loop
from proxy.server.reload import ReloadOutcome
from proxy.server.server import Server
from proxy.server.worker_messages import (
    Answer,
    Ask,
    CantStart,
    HoldPorts,
    PortsHeld,
    SetLogLevel,
    TakeSettings,
    read_message,
    write_message,
)
from proxy.telemetry.logs import configure_logging

log = structlog.get_logger()

_PR_SET_PDEATHSIG = 1
CANT_START = 1
"""Exit code of a worker that has sent the reason to its parent."""


class _Link:
    """`server.Outside`: answers the parent."""

    def __init__(
        self,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        take_settings: Callable[[Settings], ReloadOutcome],
        ports_held: Callable[[int, str | None], None],
        source: ProcessSource,
    ) -> None:
        self._take_settings = take_settings
        self._ports_held = ports_held
        self._reader = reader
        self._writer = writer
        self._source = source
        self._answering: asyncio.Task[None] | None = None

    async def start(self) -> None:
        """Begin to answer."""
        self._answering = asyncio.get_running_loop().create_task(self._answer())

    async def close(self) -> None:
        """Answer no more."""
        if self._answering is not None:
            self._answering.cancel()
            await asyncio.gather(self._answering, return_exceptions=True)

    async def _answer(self) -> None:
        while True:
            try:
                question = await read_message(self._reader)
                if isinstance(question, PortsHeld):
                    self._ports_held(question.node_id, question.error)
                    continue
                if question is Ask.WHY_NOT_READY:
                    value: object = await self._source.why_not_ready()
                elif question is Ask.WHY_NOT_SERVING:
                    value = await self._source.why_not_serving()
                elif question is Ask.REMARK:
                    value = await self._source.remark()
                elif isinstance(question, Question):
                    value = await self._answers(question)
                elif isinstance(question, SetLogLevel):
                    await self._source.set_log_level(question.level)
                    value = None
                elif isinstance(question, TakeSettings):
                    value = self._take_settings(question.settings)
                else:
                    value = (self._source.own_metrics(), self._source.process_metrics())
                write_message(self._writer, Answer(value))
            except (asyncio.IncompleteReadError, OSError):
                return  # the parent is gone, and with it this process

    async def _answers(self, question: Question) -> list[ProcessAnswer]:
        """Return the answers, or nothing after an error: a failed view must not cost the parent its other answers."""
        try:
            return await self._source.answers(question)
        except Exception as error:
            log.error("not_told", question=question.resource.name, exc_info=error, remedy="report it")
            return []


async def _run(number: int, descriptor: int, storage_name: str) -> int:
    reader, writer = await asyncio.open_unix_connection(sock=socket.socket(fileno=descriptor))
    settings: Settings = await read_message(reader)
    log_level: str = await read_message(reader)
    configure_logging(log_level, settings.log_format)
    structlog.contextvars.bind_contextvars(worker=number)
    try:

        def hold_ports(node_id: int) -> None:
            with suppress(OSError):  # the parent is gone, and with it this process
                write_message(writer, HoldPorts(node_id))

        link = partial(
            _Link,
            reader,
            writer,
            lambda wanted: server.reloader.apply(wanted),
            lambda node_id, error: server.ports_held(node_id, error),
        )
        sharing = Sharing(storage_name, is_storage=number == STORAGE_PROCESS)
        server: Server = Server(settings, outside=link, hold_ports=hold_ports, sharing=sharing)
        await server.run()
    except StartError as error:
        write_message(writer, CantStart(str(error)))
        await writer.drain()
        return CANT_START
    finally:
        writer.close()
    return 0


def main() -> None:
    """Run until the parent ends this process, or dies."""
    number, descriptor, parent = (int(argument) for argument in sys.argv[1:4])
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:  # the parent died before the signal was set
        sys.exit("the parent is gone")
    keep_freed_memory()
    favour_the_event_loop()
    sys.exit(uvloop.run(_run(number, descriptor, sys.argv[4])))


if __name__ == "__main__":
    main()
