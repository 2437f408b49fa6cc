"""Run a proxy of a stack with other settings for a while."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from proxy.demo.stack import Stack


@contextmanager
def reconfigured(stack: Stack, rack: str, **settings: int) -> Iterator[None]:
    """Restart the rack's proxy with these settings, and restore its own settings afterwards."""
    own = dict(stack.proxies[rack].settings)

    def restart(configure: Callable[[], None]) -> None:
        stack.terminate_proxy(rack)
        configure()
        stack.start_proxy(rack)

    restart(lambda: stack.configure_proxy(rack, settings))
    try:
        yield
    finally:
        stack.proxies[rack].settings = own
        restart(stack.proxies[rack].prepare)
