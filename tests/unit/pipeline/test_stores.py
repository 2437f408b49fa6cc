"""A store that is away for a moment, during hours of work, and while somebody waits at a terminal."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from pipeline import logs, stores
from proxy.coordinator.interface import CoordinatorUnavailable


class Away:
    """Stores that fail to open this many times."""

    def __init__(self, times: int) -> None:
        self.left = times
        self.open = 0

    @asynccontextmanager
    async def open_stores(self, settings: Any, *, of_one_deployment: bool) -> AsyncIterator[str]:
        assert of_one_deployment
        if self.left:
            self.left -= 1
            raise CoordinatorUnavailable("down")
        self.open += 1
        yield "stores"
        self.open -= 1


@pytest.fixture
def away(monkeypatch: pytest.MonkeyPatch) -> Away:
    made = Away(logs.TRIES - 1)
    monkeypatch.setattr(stores, "open_stores", made.open_stores)
    monkeypatch.setattr(logs, "FIRST_PAUSE_SECONDS", 0)
    return made


async def test_a_task_waits_for_it(away: Away) -> None:
    settings: Any = None
    async with stores.opened(settings, patient=True) as opened:
        assert (opened, away.open) == ("stores", 1)
    assert away.open == 0


async def test_a_user_at_a_terminal_gets_the_error_at_once(away: Away) -> None:
    settings: Any = None
    with pytest.raises(CoordinatorUnavailable, match="down"):
        async with stores.opened(settings):
            pass
    assert away.left == logs.TRIES - 2
