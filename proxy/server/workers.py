"""The parent of several workers: starts, restarts and ends them, and answers for them on the admin port.

The parent serves no client itself. Each worker is a process with a complete proxy in it, on the same ports
(`ports.py`). The fleet sees each worker as a proxy of its own. One more process, the storage process, has the WAL and
the cache of all workers (`diskless/shared/`). It is treated like a worker, but has no clients. A worker that ends by
itself is restarted after a growing pause; its clients go to the other workers meanwhile. SIGTERM drains all workers,
and a second SIGTERM ends them at once. Workers don't outlive their parent.
"""

from __future__ import annotations

import asyncio
import os
import secrets
import signal
import socket
import sys
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import Any

import structlog

from proxy.admin.api.question import ProcessAnswer, Question, Resource
from proxy.admin.carried import Carried
from proxy.admin.http import AdminServer
from proxy.admin.process_source import process_registry
from proxy.admin.sums import WorkerMetrics, metrics_page
from proxy.config import Settings
from proxy.process.ports import HeldPorts, StartError
from proxy.process.sharing import STORAGE_PROCESS
from proxy.process.waiting import wait_at_most
from proxy.server.reload import Reloader
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
from proxy.telemetry.logs import log_level, set_log_level
from proxy.telemetry.recent import RECENT_ERRORS

log = structlog.get_logger()

_ASK_TIMEOUT_S = 5.0
_POLL_S = 0.1
_RESTART_FIRST_S = 0.5
_RESTART_LONGEST_S = 30.0
_STABLE_S = 60.0
"""Run time after which a worker is restarted without the growing pause."""


class _Worker:
    """One worker process and the link to it."""

    def __init__(
        self, process: asyncio.subprocess.Process, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        self.process = process
        self.cant_start: str | None = None
        self.has_been_ready = False
        self.has_answered = False
        """False until its first answer, which does not come before its start is done."""
        self._reader = reader
        self._writer = writer
        self._open: deque[asyncio.Future[Any]] = deque()

    @classmethod
    async def start(cls, number: int, settings: Settings, storage_name: str) -> _Worker:
        """Start the process, and send it the settings and the present log level."""
        ours, theirs = socket.socketpair()
        with theirs:
            process = await asyncio.create_subprocess_exec(
                *(sys.executable, "-m", "proxy.server.worker"),
                *(str(number), str(theirs.fileno()), str(os.getpid()), storage_name),
                stdin=asyncio.subprocess.DEVNULL,
                pass_fds=[theirs.fileno()],
                # Ctrl-C at the terminal then reaches only the parent, which ends all workers in order.
                start_new_session=True,
            )
        reader, writer = await asyncio.open_unix_connection(sock=ours)
        write_message(writer, settings)
        write_message(writer, log_level())
        return cls(process, reader, writer)

    def signal(self, number: signal.Signals) -> None:
        """Send a signal, unless the worker has ended. If no worker can start, all end at the same moment."""
        with suppress(ProcessLookupError):
            self.process.send_signal(number)

    async def listen(self, hold_ports: Callable[[int], str | None]) -> int:
        """Handle the worker's messages until it ends; return its exit code, negative for a signal.

        `hold_ports` holds the ports of a broker that joined. It returns None, or why the ports can't be held.
        """
        try:
            while True:
                message = await read_message(self._reader)
                if isinstance(message, CantStart):
                    self.cant_start = message.reason
                elif isinstance(message, HoldPorts):
                    write_message(self._writer, PortsHeld(message.node_id, hold_ports(message.node_id)))
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

    async def ask(self, question: Ask | Question | SetLogLevel | TakeSettings) -> Any:
        """Return the worker's answer. Raises OSError (such as TimeoutError) if no answer comes."""
        answer: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        write_message(self._writer, question)
        self._open.append(answer)
        async with asyncio.timeout(_ASK_TIMEOUT_S):
            value = await answer
        self.has_answered = True
        return value

    async def complaint(self, question: Ask = Ask.WHY_NOT_READY) -> str | None:
        """Return the worker's reason why clients are not served, or that it does not answer; None if they are
        served."""
        try:
            reason: str | None = await self.ask(question)
        except OSError as error:
            return f"no answer ({str(error) or 'time is up'})"
        self.has_been_ready = self.has_been_ready or reason is None
        return reason


def _name(number: int) -> str:
    return "storage" if number == STORAGE_PROCESS else str(number)


def _spoken(number: int) -> str:
    return "storage process" if number == STORAGE_PROCESS else f"worker {number}"


def _hold(ports: HeldPorts, node_id: int) -> str | None:
    try:
        ports.hold(node_id)
    except StartError as error:
        return str(error)
    return None


class Workers:
    """`source.AdminSource` for all workers, and their parent."""

    def __init__(self, settings: Settings, read_settings: Callable[[], Settings] | None = None) -> None:
        """`read_settings`: see `Reloader`."""
        self.settings = settings
        self._reloader = Reloader(settings, read_settings, pass_on=self._pass_on)
        self._workers: dict[int, _Worker] = {}
        """Running workers by number."""
        self._not_ready: str | None = "starting"
        self._restarts = 0
        self._carried = Carried()
        self._stop = asyncio.Event()
        self._cant_start: str | None = None
        self._process = process_registry()
        self._ports: HeldPorts | None = None
        self._storage_name = f"diskless-proxy-storage/{secrets.token_hex(16)}"
        """Name of the storage process's socket."""
        RECENT_ERRORS.maximum = settings.admin.recent_errors_max

    async def run(self) -> None:
        """Serve until SIGTERM or SIGINT. Raises StartError."""
        loop = asyncio.get_running_loop()
        if sys.platform != "linux":
            raise StartError("workers: more than one needs Linux, where they can share ports; set it to 1")
        ports = self._ports = HeldPorts(self.settings)
        admin = AdminServer(self.settings.admin, self)
        reloading = loop.create_task(self._reloader.keep_reloading())
        try:
            await admin.start()
            for number in (signal.SIGTERM, signal.SIGINT):
                loop.add_signal_handler(number, self._end, ports)
            loop.add_signal_handler(signal.SIGHUP, self._reloader.want)
            numbers = (STORAGE_PROCESS, *range(1, self.settings.workers + 1))
            await asyncio.gather(self._report_when_ready(), *(self._keep(number, ports) for number in numbers))
        finally:
            reloading.cancel()
            await asyncio.gather(reloading, return_exceptions=True)
            for worker in self._workers.values():
                worker.signal(signal.SIGKILL)
            ports.release()
            await admin.close()
        if self._cant_start is not None:
            raise StartError(self._cant_start)

    async def why_not_ready(self) -> str | None:
        """Return the first complaint of a worker that takes clients; None if there is none."""
        return await self._complaint(Ask.WHY_NOT_READY)

    async def why_not_serving(self) -> str | None:
        """Return the first complaint of a worker that accepts no clients at all; None if there is none."""
        return await self._complaint(Ask.WHY_NOT_SERVING)

    async def _complaint(self, question: Ask) -> str | None:
        """Return why a worker takes no clients.

        A restarted worker that is not ready yet does not count, as the others do.
        """
        if self._not_ready is not None:
            return self._not_ready
        # Workers complain if the storage process does not run.
        workers = sorted((number, one) for number, one in self._workers.items() if number != STORAGE_PROCESS)
        reasons = await asyncio.gather(*(worker.complaint(question) for _, worker in workers))
        someone_ready = any(reason is None for reason in reasons)
        for (number, worker), reason in zip(workers, reasons, strict=True):
            if reason is not None and (worker.has_been_ready or not someone_ready):
                return f"{_spoken(number)}: {reason}"
        return None if someone_ready else "no worker runs; see the log"

    async def remark(self) -> str | None:
        """Return the first remark of a worker; None if there is none."""
        # `why_not_ready` reports a worker that has just ended.
        remarks = [remark for _, remark in await self._ask_all(Ask.REMARK) if not isinstance(remark, OSError)]
        return next((remark for remark in remarks if remark is not None), None)

    async def metrics(self) -> bytes:
        """Return the metrics page: metrics of the workers that answer, and the last known counts of the others."""
        reports, answered = [], []
        answers, not_ready = await asyncio.gather(self._ask_all(Ask.METRICS), self.why_not_ready())
        for number, answer in answers:
            if isinstance(answer, OSError):
                log.warning("worker_silent", worker=_name(number), reason=str(answer) or "time is up")
            else:
                reports.append(WorkerMetrics(_name(number), *answer))
                answered.append(number)
                self._carried.take_metrics(number, reports[-1].own)
        others = self._carried.metrics(answered)
        parent = WorkerMetrics("parent", others, list(self._process.collect()))
        return metrics_page(
            [*reports, parent],
            ready=not_ready is None,
            running=len(self._workers.keys() - {STORAGE_PROCESS}),
            restarts=self._restarts,
        )

    async def _pass_on(self, settings: Settings) -> None:
        """Send reloaded settings to the workers; a worker that starts from now on begins with them."""
        for number, worker in sorted(self._workers.items()):
            try:
                reason = (await worker.ask(TakeSettings(settings))).error
                remedy = (
                    "the worker keeps its old settings; end its process, and a new worker starts with the new settings"
                )
            except OSError as error:
                reason = str(error) or "time is up"
                remedy = (
                    "the worker takes the settings when it answers again; if it does not, end its process, "
                    "and a new worker starts"
                )
            if reason is not None:
                log.error("worker_not_reloaded", worker=_name(number), reason=reason, remedy=remedy)

    async def answers(self, question: Question) -> list[ProcessAnswer]:
        """Return the answers of the workers that answer, and the parent's own errors."""
        found = (
            [ProcessAnswer(None, RECENT_ERRORS.newest(question.limit))] if question.resource is Resource.ERRORS else []
        )
        for number, answer in await self._ask_all(question):
            if not isinstance(answer, OSError):
                found += [ProcessAnswer(number, one.value) for one in answer]
            elif self._workers[number].has_answered:
                log.warning("worker_silent", worker=_name(number), reason=str(answer) or "time is up")
        if question.resource is Resource.FIGURES:
            figures = {one.worker: one.value for one in found if one.worker is not None}
            for number, one in figures.items():
                self._carried.take_figures(number, one)
            found += [ProcessAnswer(None, one) for one in self._carried.figures(figures)]
        return found

    async def _ask_all(self, question: Ask | Question) -> list[tuple[int, Any]]:
        """Return each running worker's answer by number, or the OSError that prevented it."""
        workers = sorted(self._workers.items())
        answers = await asyncio.gather(*(worker.ask(question) for _, worker in workers), return_exceptions=True)
        for answer in answers:
            if isinstance(answer, BaseException) and not isinstance(answer, OSError):
                raise answer
        # Leave out a worker that has ended meanwhile: `Carried` has its last report.
        return [
            (number, answer)
            for (number, worker), answer in zip(workers, answers, strict=True)
            if self._workers.get(number) is worker
        ]

    def drain(self) -> None:
        """Begin a drain; a second call changes nothing."""
        if not self._stop.is_set() and self._ports is not None:
            self._end(self._ports)

    async def set_log_level(self, level: str) -> None:
        """Set the level of the parent and of all workers. Workers that start later get it too."""
        set_log_level(level)
        workers = list(self._workers.values())
        await asyncio.gather(*(worker.ask(SetLogLevel(level)) for worker in workers), return_exceptions=True)

    def _end(self, ports: HeldPorts) -> None:
        """Drain all workers; at the second call, end them at once. Workers handle the first and the second signal
        so."""
        self._not_ready = "draining"
        self._stop.set()
        ports.release()
        for worker in self._workers.values():
            worker.signal(signal.SIGTERM)

    async def _report_when_ready(self) -> None:
        while not self._stop.is_set():
            workers = sorted(self._workers.items())
            waiting = [f"{_spoken(number)}: {reason}" for number, one in workers if (reason := await one.complaint())]
            if self._stop.is_set():
                return
            if len(workers) == 1 + self.settings.workers and not waiting:
                self._not_ready = None
                log.info("workers_ready", workers=self.settings.workers)
                return
            self._not_ready = waiting[0] if waiting else "starting"
            await wait_at_most(self._stop, _POLL_S)

    async def _keep(self, number: int, ports: HeldPorts) -> None:
        """Start the worker, and restart it whenever it ends by itself."""
        loop = asyncio.get_running_loop()
        pause_s = _RESTART_FIRST_S
        while not self._stop.is_set():
            began_s = loop.time()
            try:
                worker = self._workers[number] = await _Worker.start(number, self.settings, self._storage_name)
            except OSError as error:  # no more processes, memory or descriptors
                log.error("worker_not_started", worker=_name(number), reason=str(error), tried_again_in_s=pause_s)
                await wait_at_most(self._stop, pause_s)
                pause_s = min(2 * pause_s, _RESTART_LONGEST_S)
                continue
            if self._stop.is_set():
                worker.signal(signal.SIGTERM)
            code = await worker.listen(partial(_hold, ports))
            del self._workers[number]
            self._carried.end(number)
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
            log.error("worker_ended", worker=_name(number), reason=reason, started_again_in_s=pause_s)
            await wait_at_most(self._stop, pause_s)
            pause_s = min(2 * pause_s, _RESTART_LONGEST_S)
