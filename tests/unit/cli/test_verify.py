"""`diskless-proxy verify` without a cluster."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

from proxy.cli import app
from proxy.judge.history import HistoryWriter
from tests.support.histories import clean_history
from tests.support.planted_anomalies import PLANTS, lost_write, planted


def run(*arguments: str) -> tuple[int, str]:
    result = CliRunner().invoke(app, ["verify", *arguments], env={"COLUMNS": "200"})
    return result.exit_code, result.output


@pytest.fixture
def history(tmp_path: Path) -> Path:
    return written(tmp_path / "history", clean_history(1))


def written(path: Path, operations: object) -> Path:
    writer = HistoryWriter(path)
    for operation in operations:  # type: ignore[attr-defined]
        writer.write(operation)
    writer.close()
    return path


def test_a_clean_history(history: Path) -> None:
    code, output = run("--history", str(history))
    assert code == 0
    assert "No anomaly in" in output
    code, output = run("--history", str(history), "--json")
    assert code == 0
    report = json.loads(output)
    assert (report["ok"], report["totals"], report["history"]) == (True, {}, str(history))


def test_a_history_with_an_anomaly(tmp_path: Path) -> None:
    from random import Random

    path = written(tmp_path / "history", planted(lost_write, clean_history(1), Random(1)))
    code, output = run("--history", str(path))
    assert code == 1
    assert "Anomalies: lost-write 1" in output
    code, output = run("--history", str(path), "--json")
    assert code == 1
    (finding,) = json.loads(output)["findings"]
    assert finding["anomaly"] == str(PLANTS[lost_write][0])
    assert {operation["op"] for operation in finding["operations"]} >= {"send", "ack"}


def test_either_a_cluster_or_a_history(history: Path) -> None:
    assert run()[0] == 2
    assert run("--bootstrap", "127.0.0.1:1", "--history", str(history))[0] == 2


def test_what_cannot_be_done_is_one_line(tmp_path: Path) -> None:
    (tmp_path / "client.properties").write_text("# comment\n\nsecurity.protocol\n")
    for arguments, words in (
        (["--history", str(tmp_path / "none")], "error: cannot read"),
        (["--bootstrap", "a:1", "--client-config", str(tmp_path / "none")], "error: cannot read"),
        (
            ["--bootstrap", "a:1", "--client-config", str(tmp_path / "client.properties")],
            "client.properties:3: no setting",
        ),
    ):
        code, output = run(*arguments)
        assert code == 1
        assert words in output
        assert "Traceback" not in output


def test_a_missing_client_library_is_named(monkeypatch: pytest.MonkeyPatch, history: Path) -> None:
    for name in [name for name in sys.modules if name.startswith("proxy.verify.")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "confluent_kafka", None)
    code, output = run("--bootstrap", "127.0.0.1:1")
    assert code == 1
    assert "confluent_kafka is not installed; install the extra: diskless-proxy[demo]" in output
    assert run("--history", str(history))[0] == 0
