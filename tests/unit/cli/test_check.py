"""The output of `check` with unreadable settings; the other tests are in tests/integration/check."""

from __future__ import annotations

import json
from pathlib import Path

from typer.testing import CliRunner

from proxy.cli import app


def test_all_errors_of_the_file_are_listed(tmp_path: Path) -> None:
    path = tmp_path / "proxy.yaml"
    path.write_text(
        "rack: a\nredis: {url: 'redis://:hush@r', shards: many}\nstorage: {url: 'file:///w'}\nbrokers: {}\n"
    )
    done = CliRunner().invoke(app, ["check", "--config", str(path)])
    assert done.exit_code == 1
    heading, *lines, summary = done.stdout.splitlines()
    assert (heading, summary) == ("settings", "2 errors")
    assert [line.split(": ")[1] for line in lines] == ["brokers.bootstrap", "redis.shards"]
    assert all("; " in line for line in lines)
    assert "hush" not in done.output


def test_as_json(tmp_path: Path) -> None:
    done = CliRunner().invoke(app, ["check", "--config", str(tmp_path / "none.yaml"), "--json"])
    assert done.exit_code == 1
    document = json.loads(done.stdout)
    assert not document["ok"]
    assert document["findings"] == [
        {
            "level": "error",
            "kind": "settings",
            "where": "",
            "text": f"can't read {tmp_path}/none.yaml: No such file or directory",
            "remedy": "name an existing file with --config or DISKLESS_PROXY_CONFIG",
        }
    ]
