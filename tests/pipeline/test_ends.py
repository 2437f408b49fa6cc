"""A job that is terminated or killed leaves neither a JVM nor Python workers behind."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.waiting import wait_for

pytestmark = pytest.mark.timeout(400)
PATIENCE_SECONDS = 120.0


def lives(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return False
    return state != "Z"  # a zombie only waits for the process that inherited it


class Job:
    """The driver in its own process, with two tasks that wait."""

    def __init__(self, directory: Path, *arguments: str) -> None:
        directory.mkdir()
        self.directory = directory
        script = Path(__file__).parent / "until_ended.py"
        self.driver = subprocess.Popen(
            [sys.executable, str(script), str(directory), *arguments],
            cwd=directory,
            stderr=subprocess.PIPE,
            text=True,
            env={name: value for name, value in os.environ.items() if name != "PYTHONPATH"},
        )

    def wait_for_tasks(self) -> None:
        wait_for(
            lambda: len(list(self.directory.glob("worker-*"))) == 2,
            f"{self.driver.args!r} began no tasks",
            PATIENCE_SECONDS,
        )

    def java(self) -> int:
        """Return the JVM, which must be the only one so far."""
        (pid,) = self._pids("java-*")
        return pid

    def pids(self) -> set[int]:
        """Return the IDs of JVMs, Python workers and the processes that fork them."""
        return self._pids("java-*") | self._pids("worker-*")

    def answered(self) -> list[str]:
        return self.lines_in("answered").split()

    def wait_for_nothing_left(self) -> None:
        wait_for(
            lambda: not any(lives(pid) for pid in self.pids()), f"some of {self.pids()} are left", PATIENCE_SECONDS
        )

    def clean_up(self) -> None:
        for pid in [self.driver.pid, *self.pids()]:
            if lives(pid):
                os.kill(pid, signal.SIGKILL)
        self.driver.wait()
        assert self.driver.stderr is not None
        self.driver.stderr.close()

    def lines_in(self, name: str) -> str:
        path = self.directory / name
        return path.read_text() if path.exists() else ""

    def _pids(self, names: str) -> set[int]:
        return {int(pid) for path in self.directory.glob(names) for pid in path.read_text().split()}


@pytest.fixture(scope="module")
def jobs(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Job, Job, Job]]:
    """Start three jobs at once, because each needs its own JVM."""
    directory = tmp_path_factory.mktemp("jobs")
    started = Job(directory / "tasks"), Job(directory / "whole", "whole"), Job(directory / "killed")
    try:
        for job in started:
            job.wait_for_tasks()
        yield started
    finally:
        for job in started:
            job.clean_up()


def test_sigterm_ends_between_two_tasks(jobs: tuple[Job, Job, Job]) -> None:
    job = jobs[0]
    assert job.driver.stderr is not None
    job.driver.send_signal(signal.SIGTERM)
    assert "ending when the tasks that run are done" in job.driver.stderr.readline()
    (job.directory / "go-on").touch()
    assert job.driver.wait(PATIENCE_SECONDS) == 128 + signal.SIGTERM
    assert sorted(job.answered()) == ["0", "1"]
    job.wait_for_nothing_left()


def test_a_single_spark_job_ends_at_once(jobs: tuple[Job, Job, Job]) -> None:
    job = jobs[1]
    job.driver.send_signal(signal.SIGINT)
    assert job.driver.wait(PATIENCE_SECONDS) == 128 + signal.SIGINT
    assert job.answered() == []
    job.wait_for_nothing_left()


def test_a_dead_jvm_is_replaced_and_nothing_outlives_the_driver(jobs: tuple[Job, Job, Job]) -> None:
    job = jobs[2]
    first = job.pids()
    os.kill(job.java(), signal.SIGKILL)
    wait_for(lambda: bool(job.lines_in("died")), "the driver took no notice", PATIENCE_SECONDS)
    assert "run the job again" in job.lines_in("died")
    wait_for(lambda: not any(lives(pid) for pid in first), f"some of {first} are left", PATIENCE_SECONDS)
    wait_for(lambda: len(job.pids()) >= 2 * len(first), "no other JVM was started", PATIENCE_SECONDS)
    job.driver.kill()
    job.wait_for_nothing_left()
