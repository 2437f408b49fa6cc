"""The settings file of a command without `--config`: the one that the environment names, or the image's."""

from __future__ import annotations

from pathlib import Path

import pytest
from typer.testing import CliRunner

from proxy.cli import app
from proxy.console import config_file
from proxy.console.admin_port import DEFAULT_URL, admin_url

SETTINGS = """\
rack: rack-a
admin: {port: 19123}
brokers: {bootstrap: ["127.0.0.1:9092"]}
redis: {url: "redis://127.0.0.1:6379"}
storage: {url: "file:///nowhere"}
"""


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "proxy.yaml"
    path.write_text(SETTINGS)
    return path


@pytest.fixture(autouse=True)
def _no_file_of_this_machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(config_file.CONFIG_VARIABLE, raising=False)
    monkeypatch.setattr(config_file, "DEFAULT_CONFIG", tmp_path / "none.yaml")


def shown(*options: str) -> str:
    done = CliRunner().invoke(app, ["config", "show", "--json", *options])
    assert done.exit_code == 0, done.output
    return done.output


def test_the_environment_names_it(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DISKLESS_PROXY_CONFIG", str(file))
    assert "19123" in shown()


def test_else_it_is_where_the_image_has_it(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert str(config_file.DEFAULT_CONFIG).endswith("none.yaml")
    monkeypatch.setattr(config_file, "DEFAULT_CONFIG", file)
    assert "19123" in shown()


def test_the_option_comes_first(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DISKLESS_PROXY_CONFIG", "/none.yaml")
    assert "19123" in shown("--config", str(file))


def test_without_a_file_the_error_names_both_ways() -> None:
    done = CliRunner().invoke(app, ["fleet"])
    assert done.exit_code == 1
    assert "name an existing file with --config or DISKLESS_PROXY_CONFIG" in done.output


def test_the_admin_port_is_that_of_the_file(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert admin_url(None, None) == DEFAULT_URL
    monkeypatch.setenv("DISKLESS_PROXY_CONFIG", str(file))
    assert admin_url(None, None) == "http://127.0.0.1:19123"
    assert admin_url("http://127.0.0.1:1", None) == "http://127.0.0.1:1"


def test_explain_without_a_name_lists_sections_and_the_settings_outside_of_them() -> None:
    done = CliRunner().invoke(app, ["config", "explain"])
    assert done.exit_code == 0, done.output
    assert "brokers: The existing brokers.\n" in done.output
    assert "diskless.append.commit.interval.ms" in done.output
    assert "brokers.bootstrap" not in done.output
