"""Single keys of a terminal, while something is drawn on it."""

from __future__ import annotations

import os
import select
import sys
import termios
import tty
from collections.abc import Iterator
from contextlib import contextmanager

_QUIT = b"qQ"
_AT_ONCE_BYTES = 64


@contextmanager
def single_keys() -> Iterator[None]:
    """Deliver keys at once without echo; restore the terminal at the end. Does nothing without a terminal."""
    if not sys.stdin.isatty():
        yield
        return
    descriptor = sys.stdin.fileno()
    before = termios.tcgetattr(descriptor)
    try:
        tty.setcbreak(descriptor)
        yield
    finally:
        termios.tcsetattr(descriptor, termios.TCSADRAIN, before)


def quit_pressed(seconds: float) -> bool:
    """Wait this long, or until a key is pressed; return whether it was q, or whether no key can be pressed any more."""
    if not sys.stdin.isatty():
        select.select([], [], [], seconds)
        return False
    descriptor = sys.stdin.fileno()
    ready, _, _ = select.select([descriptor], [], [], seconds)
    # Past the buffer of sys.stdin, which would keep what was typed behind a key from the next select.
    if not ready:
        return False
    typed = os.read(descriptor, _AT_ONCE_BYTES)
    return not typed or any(key in _QUIT for key in typed)
