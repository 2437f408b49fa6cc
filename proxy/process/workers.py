"""The parent of several workers: starts them, starts them again, ends them, and speaks for them on the admin port.

It serves no client itself. Each worker is a process with all of a proxy in it, on the same ports (`ports.py`), and a
proxy of its own to the fleet. A worker that ends by itself is started again after a pause that grows; its clients go to
the others meanwhile. SIGTERM drains all workers, a second one ends them at once; they don't outlive their parent.
"""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import sys
from collections import deque
from contextlib import suppress
from typing import Any

import structlog

from proxy.admin.http import AdminServer
from proxy.admin.process_source import process_registry
from proxy.admin.sums import WorkerMetrics, metrics_page
from proxy.config import Settings
from proxy.process.ports import HeldPorts, StartError
from proxy.process.worker_messages import Answer, Ask, CantStart, read_message, write_message

log = structlog.get_logger()

_ASK_TIMEOUT_S = 5.0
_POLL_S = 0.1
_RESTART_FIRST_S = 0.5
_RESTART_LONGEST_S = 30.0
_STABLE_S = 60.0
"""A worker that has run for so long is started again without the growing pause."""


class _Worker:
    """One worker process and the link to it."""

    def __init__(
        self, process: asyncio.subprocess.Process, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        self.process = process
        self.cant_start: str | None = None
        self.has_been_ready = False
        self._reader = reader
        self._writer = writer
        self._open: deque[asyncio.Future[Any]] = deque()

    @classmethod
    async def start(cls, number: int, settings: Settings) -> _Worker:
        """Start it and tell it the settings."""
        ours, theirs = socket.socketpair()
        with theirs:
            process = await asyncio.create_subprocess_exec(
                *(sys.executable, "-m", "proxy.process.worker", str(number), str(theirs.fileno()), str(os.getpid())),
                stdin=asyncio.subprocess.DEVNULL,
                pass_fds=[theirs.fileno()],
                # Ctrl-C at the terminal reaches the parent only, which ends all in order.
                start_new_session=True,
            )
        reader, writer = await asyncio.open_unix_connection(sock=ours)
        write_message(writer, settings)
        return cls(process, reader, writer)

    def signal(self, number: signal.Signals) -> None:
        """Send it, unless it has ended: all workers end in the same moment where none can start."""
        with suppress(ProcessLookupError):
            self.process.send_signal(number)

    async def listen(self) -> int:
        """Take what it says until it ends; its exit code, negative for a signal."""
        try:
            while True:
                message = await read_message(self._reader)
                if isinstance(message, CantStart):
                    self.cant_start = message.reason
                elif isinstance(message, Answer):
                    question = self._open.popleft()
                    if not question.done():
                        question.set_result(message.value)
        except (asyncio.IncompleteReadError, OSError):
            pass
        code = await self.process.wait()
        self._writer.close()
        for question in self._open:
            if not question.done():
                question.set_exception(ConnectionError("it has ended"))
                question.exception()
        return code

    async def ask(self, question: Ask) -> Any:
        """Its answer. Raises OSError (TimeoutError is one) where it gives none."""
        answer: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        write_message(self._writer, question)
        self._open.append(answer)
        async with asyncio.timeout(_ASK_TIMEOUT_S):
            return await answer

    async def why_not_ready(self) -> str | None:
        """Its reason, or that it does not answer; None where clients are served."""
        try:
            reason: str | None = await self.ask(Ask.WHY_NOT_READY)
        except OSError as error:
            return f"no answer from it ({str(error) or 'time is up'})"
        self.has_been_ready = self.has_been_ready or reason is None
        return reason


class Workers:
    """`http.AdminSource` for all workers, and their parent."""

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self._workers: dict[int, _Worker] = {}
        """Those that run, by number."""
        self._not_ready: str | None = "starting"
        self._restarts = 0
        self._stop = asyncio.Event()
        self._cant_start: str | None = None
        self._process = process_registry()

    async def run(self) -> None:
        """Serve until SIGTERM or SIGINT. Raises StartError."""
        loop = asyncio.get_running_loop()
        if sys.platform != "linux":
            raise StartError("workers: more than one needs Linux, where they can share ports; set it to 1")
        ports = HeldPorts(self.settings)
        admin = AdminServer(self.settings.admin, self)
        try:
            await admin.start()
            for number in (signal.SIGTERM, signal.SIGINT):
                loop.add_signal_handler(number, self._end, ports)
            numbers = range(1, self.settings.workers + 1)
            await asyncio.gather(self._tell_when_ready(), *(self._keep(number, ports) for number in numbers))
        finally:
            for worker in self._workers.values():
                worker.signal(signal.SIGKILL)
            ports.release()
            await admin.close()
        if self._cant_start is not None:
            raise StartError(self._cant_start)

    async def why_not_ready(self) -> str | None:
        """The first complaint of a worker that takes clients; None where all is well.

        One that was started again and is not ready yet takes none: the others do.
        """
        if self._not_ready is not None:
            return self._not_ready
        workers = sorted(self._workers.items())
        reasons = [(number, worker, await worker.why_not_ready()) for number, worker in workers]
        someone_ready = any(reason is None for _, _, reason in reasons)
        for number, worker, reason in reasons:
            if reason is not None and (worker.has_been_ready or not someone_ready):
                return f"worker {number}: {reason}"
        return None if someone_ready else "no worker runs; see the log"

    async def remark(self) -> str | None:
        """The first remark of a worker; None where there is none."""
        for _, worker in sorted(self._workers.items()):
            with suppress(OSError):  # one that has just ended is spoken of by why_not_ready
                remark: str | None = await worker.ask(Ask.REMARK)
                if remark is not None:
                    return remark
        return None

    async def metrics(self) -> bytes:
        """The metrics page: of the workers that answer."""
        told = [WorkerMetrics("parent", [], list(self._process.collect()))]
        for number, worker in sorted(self._workers.items()):
            try:
                told.append(WorkerMetrics(str(number), *await worker.ask(Ask.METRICS)))
            except OSError as error:
                log.warning("worker_silent", worker=number, reason=str(error))
        return metrics_page(told, running=len(self._workers), restarts=self._restarts)

    def _end(self, ports: HeldPorts) -> None:
        """Drain; when it is said again, end at once: workers know both."""
        self._not_ready = "draining"
        self._stop.set()
        ports.release()
        for worker in self._workers.values():
            worker.signal(signal.SIGTERM)

    async def _tell_when_ready(self) -> None:
        while not self._stop.is_set():
            workers = list(self._workers.items())
            waiting = [f"worker {number}: {reason}" for number, one in workers if (reason := await one.why_not_ready())]
            if self._stop.is_set():
                return
            if len(workers) == self.settings.workers and not waiting:
                self._not_ready = None
                log.info("workers_ready", workers=len(workers))
                return
            self._not_ready = waiting[0] if waiting else "starting"
            await self._pause(_POLL_S)

    async def _keep(self, number: int, ports: HeldPorts) -> None:
        """Start the worker, and again whenever it ends by itself."""
        loop = asyncio.get_running_loop()
        pause_s = _RESTART_FIRST_S
        while not self._stop.is_set():
            began_s = loop.time()
            try:
                worker = self._workers[number] = await _Worker.start(number, self.settings)
            except OSError as error:  # no more processes, memory or descriptors
                log.error("worker_not_started", worker=number, reason=str(error), tried_again_in_s=pause_s)
                await self._pause(pause_s)
                pause_s = min(2 * pause_s, _RESTART_LONGEST_S)
                continue
            if self._stop.is_set():
                worker.signal(signal.SIGTERM)
            code = await worker.listen()
            del self._workers[number]
            if self._stop.is_set():
                return
            if worker.cant_start is not None and self._not_ready is not None:
                self._cant_start = self._cant_start or worker.cant_start
                self._end(ports)
                return
            if loop.time() - began_s > _STABLE_S:
                pause_s = _RESTART_FIRST_S
            self._restarts += 1
            reason = worker.cant_start or (f"killed by signal {-code}" if code < 0 else f"exit code {code}")
            log.error("worker_ended", worker=number, reason=reason, started_again_in_s=pause_s)
            await self._pause(pause_s)
            pause_s = min(2 * pause_s, _RESTART_LONGEST_S)

    async def _pause(self, seconds: float) -> None:
        """Wait, unless the end comes first."""
        try:
            async with asyncio.timeout(seconds):
                await self._stop.wait()
        except TimeoutError:
            pass
