"""Logging: structlog to standard error, for people or as JSON; its level may change while the process runs."""

from __future__ import annotations

import logging
import sys
from typing import Any

import structlog

from proxy.telemetry.recent import LEVELS as NOTED_LEVELS
from proxy.telemetry.recent import RECENT_ERRORS
from proxy.telemetry.unraisable import log_unraisable

# Traces show no values of variables, because passwords and records are among them.
_TRACE = structlog.processors.ExceptionRenderer(structlog.tracebacks.ExceptionDictTransformer(show_locals=False))


class _Lines(structlog.PrintLogger):
    """Logger that drops and counts lines that can't be written, so that a full disk or a closed pipe ends nothing
    else."""

    lost = 0

    def msg(self, message: str) -> None:
        """Write one."""
        try:
            super().msg(message)
        except (OSError, ValueError):  # the latter where the file is closed
            _Lines.lost += 1

    log = debug = info = warn = warning = msg
    fatal = failure = err = error = critical = exception = msg


class _Level:
    """Level below which nothing is written.

    It is per process, because loggers are created when modules are imported.
    """

    name = "info"
    number = logging.INFO


def configure_logging(level: str, log_format: str) -> None:
    """`level`: debug, info, warning or error. `log_format`: console or json."""
    set_log_level(level)
    log_unraisable()
    structlog.configure(
        processors=_processors(log_format),
        # A logger that has been used keeps its class: what follows the level has to be a processor.
        wrapper_class=structlog.make_filtering_bound_logger(logging.DEBUG),
        logger_factory=lambda *_: _Lines(sys.stderr),
        cache_logger_on_first_use=True,
    )


def set_log_level(level: str) -> None:
    """Write lines of `level` (debug, info, warning or error) and above from now on."""
    _Level.name, _Level.number = level, _number(level)


def set_log_format(log_format: str) -> None:
    """Write lines as `log_format` (console or json) from now on."""
    # In place: a logger that has been used keeps the list.
    structlog.get_config()["processors"][:] = _processors(log_format)


def lost_lines() -> int:
    """Return how many could not be written since the process began."""
    return _Lines.lost


def log_level() -> str:
    """Return the level as it is now."""
    return _Level.name


def _processors(log_format: str) -> list[Any]:
    processors: list[Any] = [
        _note_and_filter,
        structlog.contextvars.merge_contextvars,
        structlog.processors.add_log_level,
        structlog.processors.TimeStamper(fmt="iso", utc=True),
    ]
    if log_format == "json":
        return [*processors, _TRACE, structlog.processors.JSONRenderer()]
    plain = structlog.dev.plain_traceback
    return [*processors, structlog.dev.ConsoleRenderer(colors=sys.stderr.isatty(), exception_formatter=plain)]


def _note_and_filter(logger: Any, method: str, values: Any) -> Any:
    """Keep warnings and errors for the admin port at any level, and drop lines below the level (a structlog
    processor)."""
    level = "error" if method == "exception" else method
    if level in NOTED_LEVELS:
        RECENT_ERRORS.note(level, values)
    if _number(level) < _Level.number:
        raise structlog.DropEvent
    return values


def _number(level: str) -> int:
    return int(getattr(logging, level.upper(), logging.INFO))
