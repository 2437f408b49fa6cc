"""The audit command, with its tasks on Spark."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from typer.testing import CliRunner

from pipeline.audit import reads
from pipeline.commands import app
from proxy.config import Settings
from tests.pipeline.audit.healthy import Hands, audited

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.timeout(300)


def command(*arguments: str) -> tuple[int, str]:
    answer = CliRunner().invoke(app, ["audit", *arguments])
    return answer.exit_code, answer.stdout


def test_a_healthy_store_and_a_damaged_one(
    spark: SparkSession,
    hands: Hands,
    light_config: Path,
    light_settings: Settings,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(reads, "TASK_BYTES", 10_000)  # several tasks
    code, output = command("--config", str(light_config), "--json")
    report: dict[str, Any] = json.loads(output)
    assert (code, report["exit_code"], report["findings"]) == (0, 0, [])
    assert report["figures"]["topics"] == audited(light_settings).figures["topics"]
    plain_and_stamped = 2 * 8 * 5 - 2  # one row is trimmed
    transactional = 4 * 3 + 1 + 2  # two markers are in a merged object
    assert report["figures"]["batches_checked"] == plain_and_stamped + transactional
    row = hands.rows()[5]
    with hands.bytes_of(row.segment) as data:
        data[row.position + 100] ^= 1
    code, output = command("--config", str(light_config), "--topic", "plain")
    assert code == 1
    assert "corrupt_batch" in output
    assert f"plain-0@{row.base_offset}" in output


def test_use_cannot_be_corrected_for_one_topic(light_config: Path) -> None:
    code, _ = command("--config", str(light_config), "--topic", "plain", "--repair-used-bytes")
    assert code == 2


def test_an_unknown_topic(spark: SparkSession, light_config: Path) -> None:
    answer = CliRunner().invoke(app, ["audit", "--config", str(light_config), "--topic", "nowhere"])
    assert answer.exit_code != 0
    assert "nowhere is not a diskless topic" in answer.stderr


def test_an_empty_store(spark: SparkSession, light_config: Path) -> None:
    code, output = command("--config", str(light_config), "--json")
    assert code == 0
    assert json.loads(output)["figures"]["rows_checked"] == 0
