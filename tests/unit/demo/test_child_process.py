import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from proxy.demo.errors import StackCancelled, StackError
from proxy.demo.process import Process, bound
from proxy.demo.proxies import merged
from proxy.demo.waiting import wait_until

SAY_AND_SLEEP = "import time; print('ready', flush=True); time.sleep(600)"
BUSY = """
import threading, time
def work():
    while True:
        time.sleep(0.0005)
for _ in range(8):
    threading.Thread(target=work).start()
print('ready', flush=True)
"""
DEAF = "import signal, time; signal.signal(15, signal.SIG_IGN); print('ready', flush=True); time.sleep(600)"


@pytest.fixture
def started(tmp_path: Path) -> Iterator[list[Process]]:
    processes: list[Process] = []
    yield processes
    for process in processes:
        process.kill()


def start(started: list[Process], directory: Path, program: str, stop_timeout_seconds: float = 10.0) -> Process:
    command = [sys.executable, "-c", program]
    process = Process("sleeper", command, directory / "log", stop_timeout_seconds=stop_timeout_seconds)
    started.append(process)
    process.start()
    wait_until(lambda: "" if process.log_tail() == "ready" else "silent", 20.0, threading.Event(), str)
    return process


def test_terminated_a_process_ends_by_the_signal(started: list[Process], tmp_path: Path) -> None:
    process = start(started, tmp_path, SAY_AND_SLEEP)
    assert process.running
    process.pause()
    process.terminate()  # a paused one, too
    assert process.wait_ended() == process.exit_code == -signal.SIGTERM
    assert not process.running


def test_paused_a_process_stands_still_at_once(started: list[Process], tmp_path: Path) -> None:
    process = start(started, tmp_path, BUSY)
    for _ in range(20):
        process.pause()
        tasks = Path(f"/proc/{process.pid}/task").glob("*/stat")
        assert {task.read_text().rpartition(") ")[2][0] for task in tasks} == {"T"}
        process.resume()


def test_a_process_that_ignores_sigterm_is_killed_after_the_bound(started: list[Process], tmp_path: Path) -> None:
    process = start(started, tmp_path, DEAF, stop_timeout_seconds=0.2)
    process.terminate()
    assert process.wait_ended() == -signal.SIGKILL


def test_a_process_outlives_the_thread_that_started_it(started: list[Process], tmp_path: Path) -> None:
    thread = threading.Thread(target=start, args=(started, tmp_path, SAY_AND_SLEEP))
    thread.start()
    thread.join()
    with pytest.raises(subprocess.TimeoutExpired):
        subprocess.Popen.wait(started[0]._popen, 0.5)  # type: ignore[arg-type]


def test_a_running_process_is_not_started_twice(started: list[Process], tmp_path: Path) -> None:
    process = start(started, tmp_path, SAY_AND_SLEEP)
    with pytest.raises(StackError, match="sleeper runs already"):
        process.start()


@pytest.mark.skipif(sys.platform != "linux", reason="the parent-death signal is Linux's")
def test_a_process_dies_with_its_starter() -> None:
    starter = (
        "import subprocess, sys; from proxy.demo.process import bound\n"
        f"child = subprocess.Popen(bound([sys.executable, '-c', {SAY_AND_SLEEP!r}]))\n"
        "child.wait()"
    )
    with subprocess.Popen([sys.executable, "-c", starter], stdout=subprocess.PIPE, text=True) as parent:
        assert parent.stdout is not None
        assert parent.stdout.readline() == "ready\n"
        parent.kill()
        assert parent.stdout.read() == ""  # ends only when the child, which has the other end too, is gone


def test_a_process_whose_starter_is_gone_does_not_start() -> None:
    command = bound([sys.executable, "-c", SAY_AND_SLEEP])
    stranger = [*command[:4], "1", *command[5:]]
    done = subprocess.run(stranger, capture_output=True, text=True, timeout=20, check=False)
    assert done.returncode == 1
    assert "parent is gone" in done.stderr


def test_waiting_ends_with_the_last_complaint_or_when_called_off() -> None:
    cancelled = threading.Event()
    with pytest.raises(StackError, match="still cold"):
        wait_until(lambda: "still cold", 0.0, cancelled, str)
    cancelled.set()
    with pytest.raises(StackCancelled):
        wait_until(lambda: "still cold", 60.0, cancelled, str)


def test_settings_are_merged_section_by_section() -> None:
    settings = {"rack": "a", "limits": {"x": 1, "y": 2}, "bootstrap": ["one"]}
    overrides = {"limits": {"y": 3}, "bootstrap": ["two"]}
    assert merged(settings, overrides) == {"rack": "a", "limits": {"x": 1, "y": 3}, "bootstrap": ["two"]}
    assert settings["limits"] == {"x": 1, "y": 2}
