"""Keeps the event loop awake for a moment after a request, so that the broker's answer finds it awake.

A process that sleeps takes 50 to 150 µs to wake up, more on virtual machines. A callback that schedules itself again
makes the loop look for events without sleeping, with uvloop and with asyncio. It costs a whole core while requests
come, so it is off by default (`limits.poll_window_us`).
"""

from __future__ import annotations

from asyncio import AbstractEventLoop, get_running_loop


class PollWindow:
    """The time for which the loop does not sleep."""

    __slots__ = ("_loop", "_seconds", "_until_s", "polls")

    def __init__(self, loop: AbstractEventLoop, seconds: float) -> None:
        self._loop = loop
        self._seconds = seconds
        self._until_s = 0.0
        self.polls = False
        """True within a window."""

    def begin(self) -> None:
        """Do not sleep from now on, for the window's length."""
        self._until_s = self._loop.time() + self._seconds
        if not self.polls:
            self.polls = True
            self._loop.call_soon(self._poll)

    def _poll(self) -> None:
        if self._loop.time() < self._until_s:
            self._loop.call_soon(self._poll)
        else:
            self.polls = False


def poll_window(window_us: int) -> PollWindow | None:
    """Return the window of the running loop; None if its length is 0."""
    return PollWindow(get_running_loop(), window_us / 1e6) if window_us else None
