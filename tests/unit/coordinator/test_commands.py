"""The trial of the store's commands covers every command that a script calls."""

from __future__ import annotations

import re
from pathlib import Path

import proxy
from proxy.coordinator.commands import OPTIONAL_COMMANDS, commands_of_scripts

PACKAGE = Path(proxy.__file__).parent
SCRIPTS = sorted((PACKAGE / "coordinator" / "lua").glob("*.lua"))
TRIAL = PACKAGE / "coordinator" / "lua" / "try_commands.lua"
CLIENTS_OWN = {"HVALS", "SCAN"}
"""Commands that only clients of the store call."""


def test_every_command_of_the_scripts_is_tried_and_no_other() -> None:
    tried = re.findall(r"^  \{ '([A-Z]+)'", TRIAL.read_text(), re.MULTILINE)
    assert len(tried) == len(set(tried))
    assert set(tried) == (commands_of_scripts() - OPTIONAL_COMMANDS) | CLIENTS_OWN


def test_every_call_of_a_script_names_its_command_where_it_can_be_collected() -> None:
    for script in SCRIPTS:
        if script != TRIAL:
            unnamed = re.findall(r"\bp?call\((?!'[A-Z]+')[^)]*", script.read_text())
            assert unnamed == [], script.name


def test_no_other_module_has_a_script_that_nobody_collects() -> None:
    with_scripts = {path.name for path in PACKAGE.rglob("*.py") if re.search(r"redis\.p?call\(", path.read_text())}
    assert with_scripts == {"store.py"}
    assert "HGET" in commands_of_scripts()


def test_a_script_expects_the_rejection_of_optional_commands() -> None:
    for script in SCRIPTS:
        for command in OPTIONAL_COMMANDS:
            assert f"call('{command}'" not in script.read_text().replace(f"redis.pcall('{command}'", "")
