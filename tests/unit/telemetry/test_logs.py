"""The log when it cannot be written."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest
import structlog

from proxy.telemetry.logs import configure_logging, lost_lines


@pytest.fixture
def stderr(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[pytest.MonkeyPatch]:
    """Sets `sys.stderr`; the settings of the log are as before afterwards."""
    before = structlog.get_config()
    yield monkeypatch
    structlog.configure(**before)


@pytest.mark.parametrize("log_format", ["console", "json"])
def test_a_line_that_can_not_be_written_ends_nothing(stderr: pytest.MonkeyPatch, log_format: str) -> None:
    """A background loop logs in its `except`: an exception there would end it for good."""
    lost = lost_lines()
    full = open("/dev/full", "w", buffering=1)  # noqa: SIM115 (it can't be closed well)
    stderr.setattr(sys, "stderr", full)
    configure_logging("info", log_format)
    log = structlog.get_logger()
    for log_at_level in (log.info, log.warning, log.error, log.critical):
        log_at_level("said")
    try:
        raise RuntimeError("why")
    except RuntimeError:
        log.exception("said")
    log.debug("not said")
    assert lost_lines() == lost + 5
    with suppress(OSError):
        full.close()
    log.warning("the file is closed")
    assert lost_lines() == lost + 6


def test_other_lines_are_written(stderr: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    lost = lost_lines()
    configure_logging("info", "json")
    structlog.get_logger().warning("said", number=7)
    assert '"event": "said"' in capsys.readouterr().err
    assert lost_lines() == lost
