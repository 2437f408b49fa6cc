"""How long a client had something to do and made no progress."""

from __future__ import annotations

from dataclasses import dataclass

STUCK_SECONDS = 120.0
"""Time without progress after which a client is stuck, unless the caller names another one.

Groups of the consumer protocol may need 45 s to notice that a member is gone, and then move its partitions.
"""


@dataclass(slots=True)
class Stall:
    """A time without progress, and the lines of the history at its ends."""

    us: int = 0
    began_us: int = 0
    first_line: int = 0
    last_line: int = 0


class Patience:
    """Finds the longest time without progress of one client or view."""

    __slots__ = ("_line", "_since_us", "worst")

    def __init__(self) -> None:
        self.worst = Stall()
        self._since_us: int | None = None
        self._line = 0

    def wait(self, at_us: int, line: int) -> None:
        """Note that there is something to do."""
        if self._since_us is None:
            self._since_us, self._line = at_us, line
        elif at_us - self._since_us > self.worst.us:
            self.worst = Stall(at_us - self._since_us, self._since_us, self._line, line)

    def progress(self, at_us: int, line: int, more: bool) -> None:
        """Note progress; `more` if something is left to do."""
        if self._since_us is not None:
            self.wait(at_us, line)
        self._since_us, self._line = at_us if more else None, line


class Lag:
    """How far a view is behind in one partition. The judge sees offsets here, not how many records there are."""

    __slots__ = ("_due", "_seen", "patience")

    def __init__(self) -> None:
        self.patience = Patience()
        self._due = self._seen = 0

    def expect(self, offset: int, at_us: int, line: int) -> None:
        """Note that the view can get the record at an offset from now on."""
        self._due = max(self._due, offset + 1)
        if self._seen < self._due:
            self.patience.wait(at_us, line)

    def read(self, offset: int, at_us: int, line: int) -> None:
        """Note that the view has got the records up to an offset."""
        self._seen = max(self._seen, offset + 1)
        self.patience.progress(at_us, line, self._seen < self._due)
