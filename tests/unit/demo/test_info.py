"""The information file of a demo: its owner, and its removal."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from proxy.demo import info
from proxy.demo.stack import Stack, StackOptions

ALIVE = {"pids": {"redis": os.getpid()}, "redis": "127.0.0.1:1"}
NO_PROCESS = 4_194_305
"""More than Linux gives."""


def test_files_of_dead_runs_are_removed_and_those_of_live_runs_stay(tmp_path: Path) -> None:
    path = tmp_path / "demo.json"
    info.clear(path)
    info.write(path, ALIVE)
    info.clear(path)
    assert json.loads(path.read_text()) == ALIVE


@pytest.mark.parametrize(
    "left",
    [json.dumps({"pids": {"redis": os.getpid(), "proxy": NO_PROCESS}}), "{}", "[]", '{"pids": [1]}', "no JSON"],
    ids=["half_alive", "empty", "no_object", "list_of_pids", "no_json"],
)
def test_a_file_that_names_no_live_process_is_removed(tmp_path: Path, left: str) -> None:
    path = tmp_path / "demo.json"
    path.write_text(left)
    info.clear(path)
    assert not path.exists()


def test_only_who_wrote_it_withdraws_it(tmp_path: Path) -> None:
    path = tmp_path / "demo.json"
    info.write(path, ALIVE)
    info.withdraw(path, {**ALIVE, "redis": "127.0.0.1:2"})
    assert path.exists()
    info.withdraw(path, ALIVE)
    assert not path.exists()


def test_the_admin_page_and_the_settings_file_of_each_proxy_are_named(tmp_path: Path) -> None:
    stack = Stack(StackOptions(directory=tmp_path, racks=("rack-a", "rack-b")))
    stack._lay_out()
    try:
        lines = info.where_to_look(stack)
        for line, (rack, proxy) in zip(lines, stack.proxies.items(), strict=True):
            assert f"admin page of {rack}: {proxy.admin_url}/ " in line
            assert line.endswith(f"its settings: {tmp_path}/config/proxy-{rack}.yaml")
    finally:
        stack.stop()
