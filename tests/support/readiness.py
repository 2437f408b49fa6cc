"""Poll `/readyz` of a proxy, as a load balancer does."""

from __future__ import annotations

import threading

from proxy.demo.admin import get
from proxy.demo.waiting import wait_until


def readiness(admin_url: str, path: str = "readyz") -> tuple[int, str]:
    """Return status and text; the status is 0 if nothing listens."""
    return get(admin_url, f"/{path}", 10)


def wait_not_ready(admin_url: str, *words: str) -> str:
    """Wait until the answer is 503 with a reason that contains these words; return the reason."""
    reasons = []

    def complaint() -> str:
        status, reason = readiness(admin_url)
        reasons.append(reason)
        return "" if status == 503 and all(word in reason for word in words) else f"{status} {reason}"

    wait_until(complaint, 60, threading.Event(), str)
    return reasons[-1]


def wait_ready(admin_url: str) -> None:
    """Wait until the answer is 200."""
    wait_until(lambda: "" if readiness(admin_url)[0] == 200 else readiness(admin_url)[1], 60, threading.Event(), str)
