"""A demo whose start fails keeps the logs that its error names."""

from __future__ import annotations

import tempfile
from pathlib import Path

import pytest

from proxy.demo.directories import DIRECTORIES, KEPT
from proxy.demo.errors import StackCancelled, StackError
from proxy.demo.stack import Stack, StackOptions


@pytest.fixture
def temporary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Folder where stacks of this test have their directories."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    return tmp_path


def fail(monkeypatch: pytest.MonkeyPatch, error: BaseException, log: str = "") -> None:
    """Let the start of a stack's servers end with an error, after a server has written a log."""

    def start(stack: Stack) -> None:
        for name in DIRECTORIES:
            assert (stack.directory / name).is_dir()
        if log:
            (stack.directory / "logs" / "redis.log").write_text(log)
        raise error

    monkeypatch.setattr(Stack, "_start_servers", start)


def test_a_start_that_fails_leaves_logs_and_settings(temporary: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fail(monkeypatch, StackError("not ready; see its log"), "can't bind")
    with pytest.raises(StackError, match="see its log"):
        Stack(StackOptions()).start()
    (left,) = temporary.iterdir()
    assert (left / "logs" / "redis.log").read_text() == "can't bind"
    assert {one.name for one in left.iterdir()} <= set(KEPT)


@pytest.mark.parametrize(
    ("error", "log"),
    [(StackError("a port is taken"), ""), (StackCancelled("Ctrl-C"), "text")],
    ids=["no log", "terminated"],
)
def test_else_nothing_is_left(temporary: Path, monkeypatch: pytest.MonkeyPatch, error: Exception, log: str) -> None:
    fail(monkeypatch, error, log)
    with pytest.raises(StackError):
        Stack(StackOptions()).start()
    assert list(temporary.iterdir()) == []
