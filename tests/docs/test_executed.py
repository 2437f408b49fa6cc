"""Blocks of the pages that run as they stand, on the tests' stack."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from proxy.demo import info
from proxy.demo.stack import Stack
from tests.docs.blocks import commands
from tests.docs.recipes import block
from tests.docs.shell import simple_commands
from tests.support.confluent import produce
from tests.support.records import samples
from tests.support.topics import DISKLESS, create_topic, delete_topic

pytestmark = pytest.mark.timeout(500)

RACK = "rack-a"
HELLO = "hello"


@pytest.fixture
def folder(stack: Stack, tmp_path: Path) -> Path:
    """Create a reader's folder, with the information file, and the settings file that the pages call proxy.yaml."""
    info.write(tmp_path / "stack.json", info.describe(stack))
    (tmp_path / "proxy.yaml").symlink_to(stack.config_path(RACK))
    return tmp_path


def test_the_quick_start_by_hand(stack: Stack, folder: Path) -> None:
    """Run the Python of the page as a script of its own."""
    script = folder / "by_hand.py"
    script.write_text(block("docs/quickstart.md", "python").text)
    try:
        done = subprocess.run(
            [sys.executable, str(script)], cwd=folder, capture_output=True, text=True, timeout=180, check=False
        )
        assert (done.returncode, done.stdout) == (0, "b'from rack a'\n"), done.stderr
    finally:
        delete_topic(stack, "by-hand")


def test_the_commands_that_look_inside(stack: Stack, folder: Path) -> None:
    """Run `topics describe` and `segments describe` of the quick start."""
    create_topic(stack, HELLO, DISKLESS)
    try:
        produce(stack.bootstrap(RACK), HELLO, samples(3, HELLO))
        shown = block("docs/quickstart.md", "sh", ".venv/bin/diskless-proxy topics describe")
        for line in commands(shown):
            ((program, *arguments),) = simple_commands(line)
            assert program == ".venv/bin/diskless-proxy"
            done = subprocess.run(
                [sys.executable, "-m", "proxy", *arguments, "--json"],
                cwd=folder,
                env=os.environ | {"PYTHONPATH": str(Path(__file__).parents[2])},
                capture_output=True,
                text=True,
                timeout=180,
                check=False,
            )
            assert done.returncode == 0, done.stderr
            assert HELLO in json.dumps(json.loads(done.stdout))
    finally:
        delete_topic(stack, HELLO)
