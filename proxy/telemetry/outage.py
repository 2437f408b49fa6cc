"""Work that is repeated and may fail for a while: its first failure is worth a log line, the others are not."""

from __future__ import annotations

from collections.abc import Hashable


class Outage:
    """Knows which failure is the first one since the work last succeeded.

    Work on several subjects, such as brokers, fails and recovers for each of them separately.
    """

    __slots__ = ("_failing",)

    def __init__(self) -> None:
        self._failing: set[Hashable] = set()

    def begins(self, subject: Hashable = None) -> bool:
        """Note a failure; return whether it is the first one since a success."""
        first = subject not in self._failing
        self._failing.add(subject)
        return first

    def ends(self, subject: Hashable = None) -> bool:
        """Note a success; return whether it is the first one since a failure."""
        last = subject in self._failing
        self._failing.discard(subject)
        return last
