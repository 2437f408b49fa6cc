"""`top` in a terminal: it redraws until q or Ctrl-C, and then restores the terminal."""

from __future__ import annotations

import os
import pty
import select
import subprocess
import sys
import termios

import pytest

from tests.unit.cli.admin_double import admin_port

_LONGEST_S = 90


def read_until(terminal: int, wanted: bytes) -> bytes:
    """Read the drawn text until it contains `wanted`, or to its end."""
    drawn = b""
    while wanted not in drawn:
        ready, _, _ = select.select([terminal], [], [], _LONGEST_S)
        assert ready, drawn
        try:
            more = os.read(terminal, 65_536)
        except OSError:
            break
        if not more:
            break
        drawn += more
    return drawn


@pytest.mark.parametrize("key", [b"q", b"\x03"], ids=["q", "ctrl-c"])
def test_top_redraws_until_it_is_asked_to_end(key: bytes) -> None:
    with admin_port() as (url, server):
        ours, theirs = pty.openpty()
        before = termios.tcgetattr(theirs)
        process = subprocess.Popen(
            [sys.executable, "-m", "proxy", "top", "--admin", url, "--interval", "0.5"],
            stdin=theirs,
            stdout=theirs,
            stderr=theirs,
            env=os.environ | {"TERM": "xterm", "COLUMNS": "120", "LINES": "50"},
            preexec_fn=os.setsid,
        )
        try:
            assert b"rack-a/proxy:19092" in read_until(ours, b"rack-a/proxy:19092")
            looks = sum(path == "/api/overview" for path, _ in server.asked)
            while sum(path == "/api/overview" for path, _ in server.asked) <= looks:
                read_until(ours, b"rack-a/proxy:19092")
            server.documents.clear()
            assert b"STALE" in read_until(ours, b"STALE")
            if key == b"\x03":
                process.send_signal(2)
            else:
                os.write(ours, key)
            read_until(ours, b"\x1b[?1049l")
            assert process.wait(_LONGEST_S) == 0
            assert termios.tcgetattr(theirs) == before
        finally:
            process.kill()
            process.wait()
            os.close(ours)
            os.close(theirs)
