"""A store that may lose writes, for the tests of what is noticed of it."""

from __future__ import annotations

from collections.abc import Iterator

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
