"""The time until which an object may get rows. Later it may be deleted, and its tombstone too."""

from __future__ import annotations

from proxy.coordinator.interface import Coordinator
from proxy.coordinator.journal_time import Deadline


def no_later(not_after_ms: int, coordinator: Coordinator, within_ms: int) -> int:
    """Return `not_after_ms` for `Coordinator.commit` and `replace`, but at most `within_ms` from now; 0 is no limit.

    Returns `not_after_ms` unchanged if the time is not known yet.
    """
    soon_ms = coordinator.deadline_ms(within_ms) if within_ms else None
    if soon_ms is None:
        return not_after_ms
    if isinstance(not_after_ms, Deadline) and isinstance(soon_ms, Deadline):
        return not_after_ms.earlier(soon_ms)
    return min(not_after_ms, soon_ms) if not_after_ms else soon_ms
