"""Every block of the pages has a check that keeps it true."""

from __future__ import annotations

import ast
import configparser
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml
from pydantic import BaseModel

from proxy.config import ConfigError, Settings, load_settings
from tests.docs.blocks import ROOT, Block, all_blocks, commands, mentioned, pages
from tests.docs.classes import EXECUTED, NOT_RUN, OTHER_YAML, OWN
from tests.docs.shell import parse_make, parse_own, simple_commands

BLOCKS = all_blocks()
FIRST_SETTINGS: dict[str, Any] = {
    "rack": "rack-a",
    "brokers": {"bootstrap": ["broker-1.example.com:9092"]},
    "redis": {"url": "redis://redis.example.com:6379"},
    "storage": {"url": "file:///wal"},
}
"""Settings under a part of a settings file, to make it complete."""


def check_shell(block: Block, _: Path) -> None:
    for line in commands(block):
        for words in simple_commands(line):
            program = words[0].rpartition("/")[2].removesuffix(".sh")
            if program == "diskless-proxy":
                parse_own(["diskless-proxy", *words[1:]])
            elif program == "make":
                parse_make(words)
            else:
                assert program in NOT_RUN, f"{program} of {line!r} is not in NOT_RUN of tests/docs/classes.py"


def check_python(block: Block, _: Path) -> None:
    ast.parse(block.text.replace("…", "..."), str(block))


def check_yaml(block: Block, directory: Path) -> None:
    """Check that a settings file, or a part of one, loads; other files must at least be YAML."""
    documents = [one for one in yaml.safe_load_all(block.text) if one is not None]
    assert documents
    if is_settings(documents[0]):
        file = directory / "proxy.yaml"
        file.write_text(yaml.safe_dump(over(FIRST_SETTINGS, documents[0])))
        load_settings(file)
    else:
        assert block.page in OTHER_YAML, f"neither settings of a proxy nor, by tests/docs/classes.py, others: {block}"


def is_settings(document: Any) -> bool:
    return isinstance(document, dict) and all(str(name).replace(".", "_") in Settings.model_fields for name in document)


def over(below: dict[str, Any], above: dict[str, Any]) -> dict[str, Any]:
    """Merge settings over settings, section by section."""
    merged = dict(below)
    for name, value in above.items():
        both = isinstance(value, dict) and isinstance(merged.get(name), dict)
        merged[name] = merged[name] | value if both else value
    return merged


def check_json(block: Block, _: Path) -> None:
    json.loads(block.text)


def check_properties(block: Block, _: Path) -> None:
    """Check names and values; the recipes' tests use the block itself."""
    for line in block.text.splitlines():
        assert not line.strip() or line.startswith("#") or "=" in line, line


def check_ini(block: Block, _: Path) -> None:
    configparser.ConfigParser(strict=False).read_string(block.text)


def check_nothing(block: Block, _: Path) -> None:
    """Check nothing: it is a program's output, or in a language that nothing here can read."""
    assert block.text.strip()


def check_drawing(block: Block, _: Path) -> None:
    assert block.is_drawing, f"{block} has no language, and is no drawing: say ```sh, ```text, …"


CHECKS: dict[str, Callable[[Block, Path], None]] = {
    "": check_drawing,
    "bash": check_shell,
    "console": check_nothing,
    "go": check_nothing,
    "gotemplate": check_nothing,
    "ini": check_ini,
    "java": check_nothing,
    "json": check_json,
    "promql": check_nothing,
    "properties": check_properties,
    "python": check_python,
    "sh": check_shell,
    "shell": check_shell,
    "sql": check_nothing,
    "text": check_nothing,
    "yaml": check_yaml,
}
"""Checks by the language of a block."""


@pytest.mark.parametrize("block", BLOCKS, ids=str)
def test_every_block_passes_its_check(block: Block, tmp_path: Path) -> None:
    assert block.language in CHECKS, f"nobody has said how {block.language} is checked: tests/docs/test_blocks.py"
    try:
        CHECKS[block.language](block, tmp_path)
    except (SyntaxError, ValueError, ConfigError, yaml.YAMLError, configparser.Error) as error:
        raise AssertionError(f"{block}: {error}") from error


@pytest.mark.parametrize("page", [page for page in pages() if any(mentioned(page))], ids=lambda page: page.name)
def test_commands_in_the_text_exist(page: Path) -> None:
    """Commands may leave out required arguments, and use words in place of values."""
    for line in mentioned(page):
        try:
            check_shell(Block(page.name, 0, "sh", line), page)
        except AssertionError as error:
            if "Missing option" not in str(error) and "Invalid value" not in str(error):
                raise


def test_executed_blocks_and_their_tests_exist() -> None:
    """Check page, block and test."""
    there = {(block.page, block.first) for block in BLOCKS}
    assert set(EXECUTED) <= there, f"no such block: {set(EXECUTED) - there}"
    assert not [test for test in EXECUTED.values() if not (ROOT / test).exists()]


def test_programs_are_named_once() -> None:
    assert not OWN & set(NOT_RUN)


@pytest.mark.parametrize(
    "line",
    [
        "diskless-proxy run --confg proxy.yaml",
        "diskless-proxy topic list --config proxy.yaml",
        "diskless-proxy topics describe --config",
        "make dmo",
        'make demo ARGS="--serv"',
        "frobnicate --all",
    ],
)
def test_a_wrong_command_is_found(line: str, tmp_path: Path) -> None:
    with pytest.raises(AssertionError):
        check_shell(Block("README.md", 1, "sh", line), tmp_path)


@pytest.mark.parametrize("text", ["redis: {ulr: redis://x}", "rack: a\ncolour: red", "fetch: {cache_bytes: much}"])
def test_wrong_settings_are_found(text: str, tmp_path: Path) -> None:
    with pytest.raises((AssertionError, ConfigError)):
        check_yaml(Block("README.md", 1, "yaml", text), tmp_path)


def test_settings_are_distinguished_from_other_yaml() -> None:
    assert issubclass(Settings, BaseModel)
    assert is_settings({"redis": {}, "diskless.append.commit.interval.ms": 250})
    assert not is_settings({"apiVersion": "v1", "kind": "Pod"})
