"""Ports for settings that are checked, a store that can be made unfit, and patience."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from proxy.check import addresses, check
from proxy.demo.ports import ReservedPorts
from tests.integration.coordinator.conftest import Store


@pytest.fixture
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """A busy machine is given its time, so that nothing is told of it."""
    for module, name in ((check, "REACH_TIMEOUT_S"), (check, "ASK_TIMEOUT_S"), (addresses, "_CONNECT_TIMEOUT_S")):
        monkeypatch.setattr(module, name, 60.0)


@pytest.fixture(scope="session")
def reserved() -> Iterator[ReservedPorts]:
    """A range of ports for one proxy that never runs."""
    reserved = ReservedPorts(None, proxies=1)
    yield reserved
    reserved.release()


@pytest.fixture(scope="module")
def weak_store(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Store]:
    """Fit at first; a test brings it back to that."""
    store = Store(tmp_path_factory.mktemp("weak-store"))
    store.start()
    yield store
    store.stop()
