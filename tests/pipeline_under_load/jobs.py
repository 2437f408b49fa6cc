"""Run the jobs as an operator runs them, and kill them at random: driver, JVM, Python workers, or all at once."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

from tests.support.worker import Worker

ROOT = Path(__file__).parents[2]
JOB_SECONDS = 900.0
"""Maximum seconds for a job."""
END_SECONDS = 30.0
"""Seconds after a kill in which all processes of the job must end."""
SPARK = (
    "--master",
    "local[2]",
    "--conf",
    "spark.driver.memory=512m",
    "--conf",
    "spark.driver.extraJavaOptions=-XX:TieredStopAtLevel=1",
    "--conf",
    "spark.sql.shuffle.partitions=2",
)
VICTIMS = ("driver", "java", "workers", "all")


class Ended(NamedTuple):
    """The way in which a job ended."""

    name: str
    victim: str
    """The killed part; empty if none was killed."""
    code: int | None
    """Exit code; None if some part did not end."""
    report: dict[str, Any] | None
    error: str


def processes_of(session: int) -> dict[int, str]:
    """Return process IDs and command lines of all processes in a session, including its leader."""
    found: dict[int, str] = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                if os.getsid(int(entry.name)) == session:
                    command = (entry / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
                    if command:  # otherwise it has ended, and nobody has collected its exit code yet
                        found[int(entry.name)] = command
            except OSError:
                continue
    return found


def run_job(
    config: Path, name: str, arguments: Sequence[str], chance: random.Random | None, within_seconds: float
) -> Ended:
    """Run one job to its end. With probability `chance`, a part of it is killed within `within_seconds`, if the job
    runs that long."""
    command = [sys.executable, "-m", "pipeline", name, "--config", str(config), "--json", *SPARK, *arguments]
    process = subprocess.Popen(
        command,
        cwd=ROOT,
        env={**os.environ, "SPARK_LOCAL_IP": "127.0.0.1"},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        start_new_session=True,
    )
    output: list[bytes] = [b"", b""]

    def listen() -> None:
        output[:] = process.communicate()

    listener = threading.Thread(target=listen, daemon=True)
    listener.start()
    victim = ""
    try:
        if chance is not None:
            listener.join(chance.uniform(1.0, within_seconds))
            if process.poll() is None:
                victim = _kill(process.pid, chance.choice(VICTIMS))
        listener.join(JOB_SECONDS)
        left = _left(process.pid)
    finally:
        for pid in processes_of(process.pid):
            _signal(pid)
        listener.join()
    error = output[1].decode(errors="replace")[-2_000:]
    if left:
        error = f"{left} were left running {END_SECONDS:g} s after the {victim or 'end'}; {error}"
    try:
        report = json.loads(output[0])
    except ValueError:
        report = None
    return Ended(name, victim, None if left else process.returncode, report, error)


def _left(session: int) -> list[str]:
    deadline = time.monotonic() + END_SECONDS
    while (left := processes_of(session)) and time.monotonic() < deadline:
        time.sleep(0.1)
    return list(left.values())


def _kill(session: int, victim: str) -> str:
    """Send SIGKILL to a part of a job, or to its driver if the part does not exist; return the killed part."""
    processes = processes_of(session)
    chosen = {
        "driver": [session],
        "java": [pid for pid, command in processes.items() if "java" in command.partition(" ")[0]],
        "workers": [pid for pid, command in processes.items() if "pyspark.daemon" in command],
        "all": list(processes),
    }[victim]
    for pid in chosen or [session]:
        _signal(pid)
    return victim if chosen else "driver"


def _signal(pid: int) -> None:
    try:
        os.kill(pid, signal.SIGKILL)
    except ProcessLookupError:
        pass


class Jobs(Worker):
    """Runs jobs one after the other, and sometimes two at once."""

    def __init__(
        self,
        config: Path,
        plans: Sequence[tuple[str, tuple[str, ...]]],
        *,
        seed: int,
        kill_share: float,
        kill_within_seconds: float,
    ) -> None:
        """Run `plans`, names and arguments of jobs, in turns; nothing runs before `start`."""
        self.problems: list[str] = []
        super().__init__("jobs", self.problems.append)
        self._config, self._plans = config, plans
        self._kill_share, self._kill_within_seconds = kill_share, kill_within_seconds
        self._chance = random.Random(seed)
        self.done: Counter[str] = Counter()
        self.killed: Counter[str] = Counter()

    def work(self) -> None:
        """Run job after job."""
        number = 0
        while not self.ended.is_set():
            name, arguments = self._plans[number % len(self._plans)]
            number += 1
            second: Worker | None = None
            if name == "merge" and self._chance.random() < 0.25:
                chance = random.Random(self._chance.random())
                second = _Second(partial(self.one, name, arguments, chance, True), self.problems.append)
                second.start()
            self.one(name, arguments, self._chance, self._chance.random() < self._kill_share)
            if second is not None:
                second.finish()

    def one(self, name: str, arguments: Sequence[str], chance: random.Random, is_killed: bool) -> None:
        """Run a job until it ends or is killed, and judge it."""
        self.judge(run_job(self._config, name, arguments, chance if is_killed else None, self._kill_within_seconds))

    def judge(self, ended: Ended) -> None:
        """Count a job; unless it was killed, it must have done its work and found nothing."""
        if ended.victim:
            self.killed[f"{ended.name}: {ended.victim}"] += 1
            if ended.code is None:
                self.problems.append(f"{ended.name}: {ended.error}")
            return
        self.done[ended.name] += 1
        if ended.code != 0 or ended.report is None or ended.report["findings"]:
            findings = ended.report["findings"][:3] if ended.report else []
            self.problems.append(f"{ended.name} ended with {ended.code}: {findings or ended.error}")


class _Second(Worker):
    """A job next to another one."""

    def __init__(self, job: Callable[[], None], report: Callable[[str], None]) -> None:
        super().__init__("second job", report)
        self._job = job

    def work(self) -> None:
        self._job()
