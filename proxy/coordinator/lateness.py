"""Until when an object may be given rows, by the store's clock: later it may have been deleted, and forgotten."""

from __future__ import annotations

from proxy.coordinator.interface import Coordinator


def no_later(not_after_ms: int, coordinator: Coordinator, within_ms: int) -> int:
    """`not_after_ms` of `Coordinator.commit` and `replace`, brought forward to `within_ms` from now; 0 is no limit.

    As it is where nobody knows the store's time yet.
    """
    now_ms = coordinator.store_time_ms() if within_ms else None
    if now_ms is None:
        return not_after_ms
    return min(not_after_ms, now_ms + within_ms) if not_after_ms else now_ms + within_ms
