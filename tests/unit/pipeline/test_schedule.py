"""Rounds of jobs that fail at once, without a settings file: the schedule continues, and ends when it is asked to."""

from __future__ import annotations

import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from typer.testing import CliRunner

from pipeline.commands import app

TIME = r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ "


@contextmanager
def scheduled(directory: Path, every: str, *jobs: str) -> Iterator[subprocess.Popen[str]]:
    command = [sys.executable, "-m", "proxy", "pipeline", "run", "--config", "missing.yaml", "--every", every, *jobs]
    process = subprocess.Popen(command, cwd=directory, stderr=subprocess.PIPE, text=True)
    try:
        yield process
    finally:
        process.kill()
        process.wait()
        assert process.stderr is not None
        process.stderr.close()


def lines(process: subprocess.Popen[str], count: int) -> list[str]:
    assert process.stderr is not None
    return [process.stderr.readline() for _ in range(count)]


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_the_wait_for_the_next_round_ends_at_once(tmp_path: Path, number: signal.Signals) -> None:
    with scheduled(tmp_path, "1h", "merge", "audit --no-data") as process:
        first, second, lines_printed = lines(process, 3)
        assert "can't read missing.yaml" in first
        assert first == second
        assert re.match(TIME + "findings or failed: merge, audit; the next round begins in ", lines_printed)
        process.send_signal(number)
        assert process.wait(60) == 128 + number
        assert lines(process, 1) == [f"ended by {number.name}; what is done is kept\n"]


def test_round_follows_round(tmp_path: Path) -> None:
    with scheduled(tmp_path, "1ms", "audit") as process:
        lines_printed = lines(process, 6)
        assert lines_printed[::2] == [lines_printed[0]] * 3
        assert all(
            re.fullmatch(TIME + "findings or failed: audit; the next round begins in 0 s\n", one)
            for one in lines_printed[1::2]
        )


@pytest.mark.parametrize("words", [[], ["--every", "1h"]])
def test_options_of_later_jobs_are_looked_at_before_the_first_one_runs(tmp_path: Path, words: list[str]) -> None:
    answer = CliRunner().invoke(app, ["run", "--config", str(tmp_path / "none.yaml"), *words, "audit", "merge --nope"])
    assert answer.exit_code == 2
    assert "--nope" in answer.output
    assert "none.yaml" not in answer.output


def test_a_round_without_an_interval_is_rejected(tmp_path: Path) -> None:
    with scheduled(tmp_path, "0s", "audit") as process:
        assert "--every needs the time" in process.communicate(timeout=60)[1]
        assert process.returncode == 2
