"""Run a real standalone Spark cluster on loopback: a master and workers, stopped by their process IDs."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

import pyspark

from pipeline.java import launching_home
from tests.support.ports import free_port

SPARK_HOME = Path(pyspark.__file__).parent
START_SECONDS = 120.0
PLAIN_PYTHON = os.path.realpath(sys.executable)
"""Python interpreter of this environment, without its packages."""


class SparkCluster:
    """A cluster whose workers have one core each, and a Python without packages."""

    def __init__(self, directory: Path, workers: int = 2) -> None:
        self.directory = directory
        self.port = free_port()
        self.master = f"spark://127.0.0.1:{self.port}"
        self._workers = workers
        (directory / "java").mkdir()
        self._home = launching_home(directory / "java")
        self._processes: list[subprocess.Popen[bytes]] = []

    def __enter__(self) -> SparkCluster:
        try:
            self._start("master", "master.Master", "--port", str(self.port))
            self._wait("master", "I have been elected leader")
            for number in range(self._workers):
                work = str(self.directory / f"worker-{number}")
                options = ["--cores", "1", "--memory", "1g", "--work-dir", work, self.master]
                self._start(f"worker-{number}", "worker.Worker", *options)
            for number in range(self._workers):
                self._wait(f"worker-{number}", "Successfully registered with master")
        except BaseException:
            self.stop()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def run(self, command: Sequence[str], timeout: float = 180.0) -> subprocess.CompletedProcess[str]:
        """Run a driver to its end, with the Python of the tests; executors use the plain one."""
        return subprocess.run(
            command,
            env=self.environment({"PYSPARK_PYTHON": PLAIN_PYTHON, "PYSPARK_DRIVER_PYTHON": sys.executable}),
            cwd=self.directory,
            capture_output=True,
            text=True,
            timeout=timeout,
            check=False,
        )

    def environment(self, more: Mapping[str, str] | None = None) -> dict[str, str]:
        """Return the environment of every process, without anything that leads to the packages of the tests."""
        kept = {
            name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "PYSPARK", "SPARK"))
        }
        kept.pop("VIRTUAL_ENV", None)
        return (
            kept
            | {"SPARK_LOCAL_IP": "127.0.0.1"}
            | ({"JAVA_HOME": str(self._home)} if self._home else {})
            | dict(more or {})
        )

    def log(self, name: str) -> str:
        """Return the log of a process."""
        return (self.directory / f"{name}.log").read_text(errors="replace")

    def stop(self) -> None:
        """Stop the workers, which stop their executors, then the master."""
        for process in reversed(self._processes):
            process.send_signal(signal.SIGTERM)
        for process in reversed(self._processes):
            try:
                process.wait(20)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
        self._processes.clear()

    def _start(self, name: str, main_class: str, *options: str) -> None:
        command = [str(SPARK_HOME / "bin" / "spark-class"), f"org.apache.spark.deploy.{main_class}"]
        command += ["--host", "127.0.0.1", "--webui-port", "0", *options]
        environment = self.environment(
            {"SPARK_DAEMON_MEMORY": "256m", "SPARK_DAEMON_JAVA_OPTS": "-XX:TieredStopAtLevel=1"}
        )
        with (self.directory / f"{name}.log").open("wb") as log:
            self._processes.append(
                subprocess.Popen(command, stdout=log, stderr=log, env=environment, cwd=self.directory)
            )

    def _wait(self, name: str, for_text: str) -> None:
        deadline = time.monotonic() + START_SECONDS
        while for_text not in self.log(name):
            assert time.monotonic() < deadline, f"{name} is not ready: {self.log(name)}"
            assert all(process.poll() is None for process in self._processes), self.log(name)
            time.sleep(0.05)
