"""One Spark session for all tests, and stores to work on: those of the running stack, or light ones without brokers."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
import yaml

from pipeline.session import spark_session
from proxy.config import Settings, load_settings
from proxy.demo.stack import Stack
from proxy.storage import open_storage
from tests.integration.coordinator.conftest import Store
from tests.support.segments import flush
from tests.support.spark_kafka import kafka_jars

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SPARK_CONF = {
    "spark.driver.memory": "768m",
    "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1",
    "spark.sql.shuffle.partitions": "2",
    "spark.default.parallelism": "2",
}


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    """Start the session of all tests; commands that run in this process use it, too, and leave it running."""
    conf = SPARK_CONF | {"spark.jars": kafka_jars()}
    with spark_session("tests", master="local[2]", conf=conf) as session:
        yield session


@pytest.fixture
def stack_config(stack: Stack) -> Path:
    """Return the settings file of a proxy of the running stack, for `--config`."""
    return stack.config_path("rack-a")


@pytest.fixture
def stack_settings(stack_config: Path) -> Settings:
    """Return the settings of the running stack, as jobs use them."""
    return load_settings(stack_config)


@pytest.fixture(scope="session")
def light_store(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Store]:
    """Start a Redis-compatible server without anything else; tests use `light_settings`."""
    store = Store(tmp_path_factory.mktemp("light-store"))
    store.start()
    yield store
    store.stop()


@pytest.fixture
def light_config(light_store: Store, tmp_path: Path) -> Path:
    """Write a settings file for an empty coordinator and an empty directory: enough for jobs, without brokers and
    proxies.

    `tests.support.segments` writes topics and segments into them.
    """
    flush(light_store.url)
    wal = tmp_path / "wal"
    wal.mkdir()
    settings = {
        "rack": "rack-a",
        "brokers": {"bootstrap": ["127.0.0.1:1"]},
        "redis": {"url": light_store.url, "shards": 3},
        "journal": {"mode": "off"},
        "storage": {"url": wal.as_uri()},
    }
    path = tmp_path / "proxy.yaml"
    path.write_text(yaml.safe_dump(settings))
    asyncio.run(_try_out(load_settings(path)))
    return path


async def _try_out(settings: Settings) -> None:
    """Do the same as a proxy at its start: from now on, the storage can be written to."""
    storage = open_storage(settings.storage, settings.storage_class)
    await storage.open()
    await storage.close()


@pytest.fixture
def light_settings(light_config: Path) -> Settings:
    """Return the settings in that file."""
    return load_settings(light_config)
