"""The checks of a job: which results are problems, and that no process of a job is left behind unnoticed."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from tests.pipeline_under_load.jobs import Ended, Jobs, processes_of

CLEAN = {"findings": [], "figures": {}}


def judged(*ended: Ended) -> Jobs:
    jobs = Jobs(Path("nowhere"), [], seed=0, kill_share=0.0, kill_within_seconds=1.0)
    for one in ended:
        jobs.judge(one)
    return jobs


def test_a_job_that_was_not_killed_must_finish_and_find_nothing() -> None:
    found = {"findings": [{"kind": "gap"}], "figures": {}}
    assert judged(Ended("merge", "", 0, CLEAN, "")).problems == []
    for bad in (
        Ended("merge", "", 1, CLEAN, ""),
        Ended("merge", "", 0, None, "no report"),
        Ended("audit", "", 1, found, ""),
        Ended("audit", "", 0, found, ""),
    ):
        assert len(judged(bad).problems) == 1, bad


def test_a_killed_job_may_end_in_any_way_but_must_end() -> None:
    jobs = judged(Ended("merge", "java", 1, None, "killed"), Ended("merge", "java", -9, None, ""))
    assert (jobs.problems, dict(jobs.killed), dict(jobs.done)) == ([], {"merge: java": 2}, {})
    left = judged(Ended("merge", "driver", None, None, "still running"))
    assert left.problems == ["merge: still running"]


@pytest.mark.parametrize("broken", ["jobs", "second job"])
def test_a_run_without_jobs_is_a_problem(broken: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def run(config: Path, name: str, *more: object) -> Ended:
        if threading.current_thread().name == broken:
            raise OSError(f"no process for {name}")
        return Ended(name, "", 0, CLEAN, "")

    monkeypatch.setattr("tests.pipeline_under_load.jobs.run_job", run)
    jobs = Jobs(Path("nowhere"), [("merge", ())], seed=0, kill_share=0.0, kill_within_seconds=1.0)
    jobs.start()
    while not jobs.problems:
        time.sleep(0.01)
    jobs.finish()
    assert jobs.problems[0].startswith(f"{broken} broke off after")
    assert "no process for merge" in jobs.problems[0]


def test_processes_are_known_by_their_session() -> None:
    script = "import subprocess, sys; subprocess.run([sys.executable, '-c', 'input()'])"
    leader = subprocess.Popen([sys.executable, "-c", script], stdin=subprocess.PIPE, start_new_session=True)
    try:
        while len(found := processes_of(leader.pid)) < 2:
            assert leader.poll() is None
        assert leader.pid in found
        assert os.getpid() not in found
    finally:
        leader.communicate(b"\n")
    assert processes_of(leader.pid) == {}
