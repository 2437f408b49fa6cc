"""Stores that jobs accept, and stores that they reject."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import NoReturn

import pytest

from pipeline import session
from pipeline.commands import run_command
from pipeline.stores import opened
from proxy.config import Settings
from proxy.coordinator.connect import StoreUnfit, connect
from proxy.guard.identity import settle_identity
from proxy.storage import open_storage
from tests.support.segments import flush, make_topic, write_segments
from tests.support.standard_error import own_lines


@pytest.fixture
def deployment(light_settings: Settings) -> Settings:
    """Return the settings of stores as a proxy leaves them: with a common identity, and a topic."""

    async def start() -> None:
        client = await connect(light_settings.redis)
        storage = open_storage(light_settings.storage, light_settings.storage_class)
        await storage.open()
        try:
            await settle_identity(client, storage)
        finally:
            await storage.close()
            await client.aclose()
        await write_segments(light_settings, await make_topic(light_settings, "orders"), 4)

    asyncio.run(start())
    return light_settings


def with_storage(settings: Settings, directory: Path) -> Settings:
    return settings.model_copy(update={"storage": settings.storage.model_copy(update={"url": directory.as_uri()})})


async def test_its_own_storage_is_accepted(deployment: Settings) -> None:
    async with opened(deployment) as stores:
        assert [topic.name for topic in stores.topics] == ["orders"]


@pytest.mark.parametrize(
    ("identity", "text"),
    [
        (None, "there are no objects with an identity under storage.url: storage.url is wrong"),
        ("00ff" * 8, "storage.url have 00ff[0-9a-f]*: one URL is wrong"),
    ],
)
async def test_storage_of_another_deployment_is_rejected(
    deployment: Settings, tmp_path: Path, identity: str | None, text: str
) -> None:
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    if identity is not None:
        (elsewhere / "coordinator").mkdir()
        (elsewhere / "coordinator" / "identity").write_text(identity)
    with pytest.raises(StoreUnfit, match=text):
        async with opened(with_storage(deployment, elsewhere)):
            pass


async def test_an_emptied_store_is_rejected(deployment: Settings) -> None:
    await asyncio.to_thread(flush, deployment.redis.url)
    with pytest.raises(StoreUnfit, match=r"redis.url is wrong, or the store has lost all its data"):
        async with opened(deployment):
            pass


class TestBeforeSparkStarts:
    """Spark takes ten seconds to start, so obvious errors are reported before."""

    @pytest.fixture(autouse=True)
    def no_spark(self, monkeypatch: pytest.MonkeyPatch) -> None:
        def started(*arguments: object, **options: object) -> NoReturn:
            raise AssertionError("Spark is started")

        monkeypatch.setattr(session, "spark_session", started)

    @pytest.mark.parametrize("job", ["merge", "compact", "audit"])
    def test_a_missing_topic(self, job: str, light_config: Path, capfd: pytest.CaptureFixture[str]) -> None:
        assert run_command([job, "--config", str(light_config), "--topic", "nope"]) == 1
        (line,) = own_lines(capfd.readouterr().err)
        assert line.startswith(
            "error: nope is not a diskless topic; see `diskless-proxy topics list`: it may be classic, "
        )

    @pytest.mark.parametrize("job", ["merge", "compact", "audit", "traffic"])
    def test_a_missing_directory(
        self, job: str, light_config: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]
    ) -> None:
        (tmp_path / "wal").rename(tmp_path / "away")
        assert run_command([job, "--config", str(light_config)]) == 1
        (line,) = own_lines(capfd.readouterr().err)
        assert str(tmp_path / "wal") in line
