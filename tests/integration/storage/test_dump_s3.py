"""Run `segments dump` on an object in a real bucket, by URL and by name."""

from __future__ import annotations

import asyncio
import json
import uuid
from pathlib import Path

import yaml
from typer.testing import CliRunner, Result

from proxy.cli import app
from proxy.config import Storage
from proxy.diskless.wal.segment import segment_key
from proxy.storage import open_storage
from tests.batches import make_batch


def dump(config: Path, segment: str) -> Result:
    return CliRunner().invoke(app, ["segments", "dump", segment, "--config", str(config), "--records", "--json"])


async def test_an_object_is_dumped_by_url_and_by_name(s3_settings: Storage, tmp_path: Path) -> None:
    name = uuid.uuid4()
    data = b"\0" + b"".join(bytes(make_batch([f"record {number}".encode()])) for number in range(3))
    storage = open_storage(s3_settings)
    await storage.open()
    await storage.upload(segment_key(name.bytes), data, len(data))
    await storage.close()
    config = tmp_path / "proxy.yaml"
    settings = {
        "rack": "a",
        "brokers": {"bootstrap": ["127.0.0.1:1"]},
        "redis": {"url": "redis://127.0.0.1:1/0"},
        "storage": s3_settings.model_dump(),
    }
    config.write_text(yaml.safe_dump(settings))
    for named in (str(name), f"{s3_settings.url}/{segment_key(name.bytes)}"):
        done = await asyncio.to_thread(dump, config, named)
        assert done.exit_code == 0, done.stderr
        shown = [json.loads(line) for line in done.stdout.splitlines()]
        assert [one["records"][0]["value"] for one in shown] == ["record 0", "record 1", "record 2"]
    missing = await asyncio.to_thread(dump, config, f"{s3_settings.url}/nothing")
    assert (missing.exit_code, missing.stderr.count("\n")) == (1, 1)
    assert "no object nothing" in missing.stderr
