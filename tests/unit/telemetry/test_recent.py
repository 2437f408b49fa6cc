"""Warnings and errors are kept for the admin port: folded, bounded, without secrets, whatever the log's level."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import structlog

from proxy.telemetry.logs import configure_logging, log_level, set_log_level
from proxy.telemetry.recent import RECENT_ERRORS, RecentErrors


def test_equal_lines_are_one_that_counts() -> None:
    recent = RecentErrors()
    for number in range(3):
        recent.note(
            "warning", {"event": "connection_refused", "client": "10.0.0.1", "reason": "full", "more_like_it": number}
        )
    recent.note("warning", {"event": "connection_refused", "client": "10.0.0.2", "reason": "full"})
    newest, older = recent.newest(10)
    assert (newest.count, newest.text) == (1, "full; client=10.0.0.2")
    assert (older.count, older.text) == (3 + 0 + 1 + 2, "full; client=10.0.0.1")
    assert older.remedy is None


def test_a_repeated_line_is_the_newest_and_the_oldest_is_evicted() -> None:
    recent = RecentErrors(2)
    for reason in ("a", "b", "a", "c"):
        recent.note("error", {"event": "failed", "reason": reason, "remedy": f"fix {reason}"})
    assert [(one.text, one.count, one.remedy) for one in recent.newest(10)] == [("c", 1, "fix c"), ("a", 2, "fix a")]
    assert len(recent.newest(1)) == 1


def test_no_secret_is_kept() -> None:
    recent = RecentErrors()
    values = {
        "event": "failed",
        "reason": "redis://user:hunter2@host/0 refused",
        "password": "hunter2",
        "api_token": "hunter2",
    }
    recent.note("error", values | {"exc_info": ValueError("s3://key:hunter2@bucket")})
    (one,) = recent.newest(1)
    for reason in ("redis://u:p/hunter2@h", "u:a@hunter2@h", "redis://u:" + "hunter2" * 100 + "@h"):
        recent.note("error", {"event": "failed", "reason": reason})
    assert "hunter2" not in f"{recent.newest(10)}"
    assert one.text == "redis://***@host/0 refused; ValueError: s3://***@bucket"


def test_a_line_is_bounded() -> None:
    recent = RecentErrors()
    values = {f"value_{number}": "x" * 1_000_000 for number in range(100)}
    recent.note("error", values | {"event": "e" * 1_000_000, "reason": "r" * 1_000_000})
    (one,) = recent.newest(1)
    assert len(one.text) <= 500
    assert len(one.event) <= 500


@pytest.fixture
def logging_as_before() -> Iterator[None]:
    before, level = structlog.get_config(), log_level()
    RECENT_ERRORS.clear()
    yield
    structlog.configure(**before)
    set_log_level(level)
    RECENT_ERRORS.clear()


@pytest.mark.usefixtures("logging_as_before")
def test_a_log_of_errors_only_keeps_warnings_all_the_same(capsys: pytest.CaptureFixture[str]) -> None:
    configure_logging("error", "json")
    log = structlog.get_logger()
    log.debug("looked")
    log.info("ready")
    log.warning("slow", reason="busy", remedy="wait")
    log.error("broken", reason="gone")
    try:
        raise ValueError("why")
    except ValueError:
        log.exception("raised")
    written = capsys.readouterr().err
    assert "broken" in written
    assert "raised" in written
    assert "slow" not in written
    assert "ready" not in written
    kept = [(one.level, one.event, one.text, one.remedy) for one in RECENT_ERRORS.newest(10)]
    assert kept == [
        ("error", "raised", "ValueError: why", None),
        ("error", "broken", "gone", None),
        ("warning", "slow", "busy", "wait"),
    ]


@pytest.mark.usefixtures("logging_as_before")
@pytest.mark.parametrize("log_format", ["json", "console"])
def test_traces_show_no_values_of_variables(log_format: str, capsys: pytest.CaptureFixture[str]) -> None:
    configure_logging("info", log_format)

    def failing(password: str) -> None:
        raise ValueError(f"refused after {len(password)} characters")

    try:
        failing("".join(["hun", "ter2"]))
    except ValueError as error:
        structlog.get_logger().error("failed", exc_info=error)
        structlog.get_logger().exception("failed")
    written = capsys.readouterr().err
    assert written.count("refused after 7 characters") >= 2
    assert "in failing" in written or '"name": "failing"' in written
    assert "hunter2" not in written


@pytest.mark.usefixtures("logging_as_before")
def test_the_level_changes_for_loggers_that_have_been_used(capsys: pytest.CaptureFixture[str]) -> None:
    configure_logging("info", "json")
    log = structlog.get_logger()
    log.debug("before")
    set_log_level("debug")
    log.debug("after")
    set_log_level("warning")
    log.info("later")
    assert log_level() == "warning"
    written = capsys.readouterr().err
    assert "after" in written
    assert "before" not in written
    assert "later" not in written
