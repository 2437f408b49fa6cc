"""Fixtures for checks: ports for the checked settings, a store that can be made unfit, and long time limits."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from proxy.check import addresses, check
from proxy.demo.ports import ReservedPorts
from tests.integration.coordinator.conftest import Store


@pytest.fixture
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Raise the time limits, so that a busy machine causes no findings."""
    for module, name in ((check, "REACH_TIMEOUT_S"), (check, "ASK_TIMEOUT_S"), (addresses, "_CONNECT_TIMEOUT_S")):
        monkeypatch.setattr(module, name, 60.0)


@pytest.fixture(scope="session")
def reserved() -> Iterator[ReservedPorts]:
    """Reserve a range of ports for one proxy that never runs."""
    reserved = ReservedPorts(None, proxies=1)
    yield reserved
    reserved.release()


@pytest.fixture(scope="module")
def weak_store(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Store]:
    """Start a store that is fit at first; a test restores this."""
    store = Store(tmp_path_factory.mktemp("weak-store"))
    store.start()
    yield store
    store.stop()
