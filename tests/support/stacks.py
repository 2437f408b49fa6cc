"""Options of stacks that tests start for themselves."""

from __future__ import annotations

from typing import Any

from proxy.demo.stack import StackOptions

SHORT_LIVED_JVM = ("-XX:TieredStopAtLevel=1", "-XX:-UseG1GC", "-XX:+UseSerialGC")
"""JVM options. A broker that lives for minutes does not win back the cost of the second compiler, a third of its CPU
time. The threads of the usual garbage collector compete with all other servers for two cores."""


def short_lived(**options: Any) -> StackOptions:
    """Return the options of a stack that lives for minutes."""
    defaults: dict[str, Any] = {"broker_jvm": SHORT_LIVED_JVM, "kills_servers": True, "start_timeout_seconds": 120.0}
    return StackOptions(**defaults | options)
