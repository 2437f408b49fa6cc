"""Single keys of a terminal."""

from __future__ import annotations

import os
import pty
from collections.abc import Iterator

import pytest

from proxy.cli.keys import quit_pressed, single_keys


@pytest.fixture
def terminal(monkeypatch: pytest.MonkeyPatch) -> Iterator[int]:
    """Make standard input a terminal; bytes written here are typed there."""
    ours, theirs = pty.openpty()
    with open(theirs, encoding="utf-8", newline="") as opened:
        monkeypatch.setattr("sys.stdin", opened)
        yield ours
    os.close(ours)


@pytest.mark.parametrize(("typed", "ends"), [(b"q", True), (b"Q", True), (b"xq", True), (b"x", False)])
def test_q_ends_it_also_right_behind_another_key(terminal: int, typed: bytes, ends: bool) -> None:
    with single_keys():
        os.write(terminal, typed)
        assert quit_pressed(60) is ends
