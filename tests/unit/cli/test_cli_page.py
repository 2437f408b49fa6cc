"""Every command is on the page of commands, has a JSON form of its data, and has a help text."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import typer
from typer.testing import CliRunner

from proxy.cli import add_commands, app

PAGE = (Path(__file__).parents[3] / "docs" / "cli.md").read_text()
WITHOUT_DATA = {"run", "pipeline run", "config schema"}
"""Commands that serve, that run others with the option, or that always print JSON."""


def leaves(command: Any, path: tuple[str, ...] = ()) -> Iterator[tuple[str, Any]]:
    inner = getattr(command, "commands", {})
    for name, one in inner.items():
        yield from leaves(one, (*path, name))
    if not inner or getattr(command, "invoke_without_command", False):
        yield " ".join(path), command


def all_commands() -> dict[str, Any]:
    if "demo" not in {group.name for group in app.registered_groups}:
        add_commands()
    return dict(leaves(typer.main.get_command(app)))


COMMANDS = all_commands()


def test_the_list_of_commands_is_complete() -> None:
    assert {"run", "fleet", "top", "connections", "topics list", "demo hello", "pipeline audit"} <= set(COMMANDS)


@pytest.mark.parametrize("name", COMMANDS)
def test_a_command_is_on_the_page_and_prints_json(name: str) -> None:
    assert f"diskless-proxy {name}" in PAGE
    options = {option for parameter in COMMANDS[name].params for option in parameter.opts}
    assert ("--json" in options) == (name not in WITHOUT_DATA)
    for parameter in COMMANDS[name].params:
        assert getattr(parameter, "help", None), f"{parameter.name} says nothing of itself"


@pytest.mark.parametrize("name", COMMANDS)
def test_help_has_a_sentence_with_the_purpose(name: str) -> None:
    result = CliRunner().invoke(app, [*name.split(), "--help"], env={"COLUMNS": "100"})
    assert result.exit_code == 0
    assert (COMMANDS[name].help or "").split("\n")[0].rstrip().endswith((".", ":", ";", "!")), COMMANDS[name].help


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completion_is_available(shell: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("_DISKLESS_PROXY_COMPLETE", f"source_{shell}")
    result = CliRunner().invoke(app, [], prog_name="diskless-proxy")
    assert result.exit_code == 0
    assert "_DISKLESS_PROXY_COMPLETE" in result.stdout


def test_a_command_that_is_begun_is_completed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("_DISKLESS_PROXY_COMPLETE", "complete_bash")
    monkeypatch.setenv("COMP_WORDS", "diskless-proxy conn")
    monkeypatch.setenv("COMP_CWORD", "1")
    result = CliRunner().invoke(app, [], prog_name="diskless-proxy")
    assert result.stdout.split() == ["connections"]
