"""The last warnings and errors of the log, for the admin port; equal ones are folded.

This is a processor of structlog (`logs`). It sees every line before the log's level is applied, so a log at level error
still leaves warnings to be seen here. It keeps what the log would contain: no secrets are logged. As a precaution,
words lose the part before their `@`, and values whose names sound secret are left out.
"""

from __future__ import annotations

import sys
import time
from collections import OrderedDict
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from proxy.config.values import masked_words

LEVELS = ("warning", "error", "critical")
_LONGEST_TEXT = 500
_LONGEST_LOOKED_AT = 4 * _LONGEST_TEXT
"""A text is cut after it is masked: else one could end between a password and its `@`."""
_MOST_VALUES = 12
_NOT_SHOWN = frozenset({"event", "level", "timestamp", "remedy", "more_like_it", "worker", "exc_info", "stack_info"})
_SECRETIVE = ("secret", "password", "token", "credential")
_DEFAULT_MAX = 200


@dataclass(slots=True)
class RecentError:
    """Lines of the log that said the same."""

    time_ms: int
    """Time of the last such line, in milliseconds since 1970."""
    level: str
    event: str
    text: str
    remedy: str | None
    count: int


class RecentErrors:
    """At most `maximum` of them: the one that was silent longest goes first."""

    def __init__(self, maximum: int = _DEFAULT_MAX) -> None:
        self.maximum = maximum
        self._errors: OrderedDict[tuple[str, str, str], RecentError] = OrderedDict()

    def note(self, level: str, values: Mapping[str, Any]) -> None:
        """Take one line: its values as structlog has them, `event` among them."""
        event, text = _shown(values.get("event")), _text(values)
        # A line may stand for others that were not written, as so many came within a second.
        more = values.get("more_like_it")
        count = 1 + (more if isinstance(more, int) else 0)
        key = level, event, text
        known = self._errors.pop(key, None)
        remedy = values.get("remedy")
        self._errors[key] = RecentError(
            time.time_ns() // 1_000_000,
            level,
            event,
            text,
            None if remedy is None else _shown(remedy),
            count + (known.count if known is not None else 0),
        )
        while len(self._errors) > self.maximum:
            self._errors.popitem(last=False)

    def newest(self, limit: int) -> list[RecentError]:
        """Return at most `limit` errors, the newest first."""
        return list(reversed(self._errors.values()))[:limit]

    def clear(self) -> None:
        """Forget all."""
        self._errors.clear()


def _text(values: Mapping[str, Any]) -> str:
    """Return the text next to the event: the reason first, then names and values."""
    parts = [_shown(values["reason"])] if "reason" in values else []
    shown = (name for name in values if name not in _NOT_SHOWN and name != "reason")
    open_names = [name for name in shown if not any(word in name.lower() for word in _SECRETIVE)]
    parts += [f"{name}={_shown(values[name])}" for name in open_names[:_MOST_VALUES]]
    if (raised := _raised(values.get("exc_info"))) is not None:
        parts.append(_shown(f"{type(raised).__name__}: {raised}"))
    return "; ".join(parts)[:_LONGEST_TEXT]


def _raised(exc_info: Any) -> BaseException | None:
    """Return the exception of a line, in whatever way structlog takes it."""
    if isinstance(exc_info, BaseException):
        return exc_info
    if isinstance(exc_info, tuple):
        return exc_info[1] if isinstance(exc_info[1], BaseException) else None
    return sys.exc_info()[1] if exc_info else None


def _shown(value: Any) -> str:
    return masked_words(str(value)[:_LONGEST_LOOKED_AT])[:_LONGEST_TEXT]


RECENT_ERRORS = RecentErrors()
"""Recent errors of this process; the log is per process too."""
