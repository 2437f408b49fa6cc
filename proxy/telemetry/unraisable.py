"""Errors that Python can raise nowhere: a log line, at most one a second.

Clients can cause them: a name in a TLS handshake that is not ASCII fails in the standard library before our callback
sees it. Python's own hook writes a traceback for each, with no bound.
"""

from __future__ import annotations

import sys
import time

from proxy.telemetry.throttled_log import ThrottledLog


def log_unraisable() -> None:
    """Log these errors from now on, in this process."""
    throttled_log = ThrottledLog(time.monotonic)

    def hook(unraisable: sys.UnraisableHookArgs) -> None:
        throttled_log.warning(
            "error_ignored",
            reason=f"{unraisable.err_msg or 'Exception ignored in'}: {unraisable.exc_value!r:.200}",
            remedy="report it if it is not about a client's TLS handshake",
        )

    sys.unraisablehook = hook
