"""`coordinator unfence`: housekeeping of all proxies knows of an accepted loss before a shard continues.

The other tests of the command are in tests/integration/guard/test_coordinator_command.py.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from proxy.cli import coordinator
from proxy.config import Settings, Storage, load_settings
from proxy.guard import unfence, verdict
from proxy.guard.unfence import Accepted
from proxy.housekeeping.accepted_loss import loss_accepted_ms
from proxy.storage.file import FileStorage


@pytest.fixture
def config_file(tmp_path: Path) -> Path:
    path = tmp_path / "proxy.yaml"
    (tmp_path / "objects").mkdir()
    path.write_text(
        "rack: a\nbrokers: {bootstrap: ['127.0.0.1:1']}\nredis: {url: 'redis://127.0.0.1:1'}\n"
        f"storage: {{url: '{(tmp_path / 'objects').as_uri()}'}}\n"
    )
    return path


async def noted(path: Path) -> bool:
    storage = FileStorage(Storage(url=load_settings(path).storage.url))
    try:
        return await loss_accepted_ms(storage) is not None
    finally:
        await storage.close()


async def test_the_loss_is_noted_in_storage_before_a_shard_goes_on(
    config_file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    noted_by_then = []

    @asynccontextmanager
    async def opened(settings: Settings) -> AsyncIterator[Any]:
        storage = FileStorage(settings.storage)
        await storage.open()
        yield SimpleNamespace(storage=storage)
        await storage.close()

    async def accept_loss(*_: object) -> Accepted:
        noted_by_then.append(await noted(config_file))
        return Accepted({}, -1, identity_given=False)

    monkeypatch.setattr(verdict, "open_guarded", opened)
    monkeypatch.setattr(unfence, "accept_loss", accept_loss)
    await coordinator._accepted(config_file, None, 0)
    assert noted_by_then == [True]
