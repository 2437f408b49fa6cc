"""A store that may lose writes, for the tests that must notice it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.integration.coordinator.conftest import Store
from tests.integration.coordinator.losses import LOSABLE, Losses


@pytest.fixture(scope="module")
def losable(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Store]:
    store = Store(tmp_path_factory.mktemp("losable"), *LOSABLE)
    store.start()
    yield store
    store.stop()


@pytest.fixture
def losses(losable: Store) -> Iterator[Losses]:
    losses = Losses(losable.port)
    losses.empty()
    yield losses
    losses.close()


@pytest.fixture
def start_store(tmp_path: Path) -> Iterator[Callable[..., Store]]:
    """Return a function that starts a test's own server, with further options."""
    started: list[Store] = []

    def start(*options: str) -> Store:
        directory = tmp_path / f"store-{len(started)}"
        directory.mkdir()
        store = Store(directory, *options)
        started.append(store)
        store.start()
        return store

    yield start
    for store in started:
        store.stop()
