"""The trial of the store's commands covers every command that a script calls."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any, ClassVar

import pytest

import proxy
from proxy.coordinator import scripts
from proxy.coordinator.commands import OPTIONAL_COMMANDS, commands_of_scripts
from proxy.coordinator.scripts import Call, Mode, script
from proxy.coordinator.shards import FLEET_PREFIX, REGISTRY_PREFIX

PACKAGE = Path(proxy.__file__).parent
SCRIPTS = sorted((PACKAGE / "coordinator" / "lua").glob("*.lua"))
SHARED = {
    file
    for files in [*scripts._PREAMBLES.values(), *scripts._OF_A_VIEW.values(), *scripts._FUNCTIONS["commit"].values()]
    for file in files
}
"""Files that are put in front of operations, or in them."""
OPERATIONS = sorted({path.stem for path in SCRIPTS if path.name not in SHARED})
KINDS = {
    "registry": ("registry_load", Mode.GUARDED),
    "fleet": ("fleet_beat", Mode.GUARDED),
    "replication": ("replication_change", Mode.GUARDED),
    "try": ("try_commands", Mode.GUARDED),
    "commit": ("commit", Mode.APPLYING),
    "shard": ("trim", Mode.VIEW),
}
TRIAL = PACKAGE / "coordinator" / "lua" / "try_commands.lua"
CLIENTS_OWN = {"HVALS"}
"""Commands that only clients of the store call."""


def test_every_command_of_the_scripts_is_tried_and_no_other() -> None:
    tried = re.findall(r"^  \{ '([A-Z]+)'", TRIAL.read_text(), re.MULTILINE)
    assert len(tried) == len(set(tried))
    assert set(tried) == (commands_of_scripts() - OPTIONAL_COMMANDS) | CLIENTS_OWN


def test_every_call_of_a_script_names_its_command_where_it_can_be_collected() -> None:
    for path in SCRIPTS:
        if path != TRIAL:
            unnamed = re.findall(r"\bp?call\((?!'[A-Z]+')[^)]*", path.read_text())
            assert unnamed == [], path.name


def test_no_other_module_has_a_script_that_nobody_collects() -> None:
    with_scripts = {path.name for path in PACKAGE.rglob("*.py") if re.search(r"redis\.p?call\(", path.read_text())}
    assert with_scripts == set()
    assert "HGET" in commands_of_scripts()


@pytest.mark.parametrize("mode", Mode)
@pytest.mark.parametrize("name", OPERATIONS)
def test_a_script_uses_its_declared_keys_only_for_the_prefix_of_all_its_keys(name: str, mode: Mode) -> None:
    """A key that a script names in another way could be in another slot."""
    text = re.sub(r"--.*", "", script(name, mode).text)
    assert re.findall(r"\bKEYS\b.*", text) == re.findall(r"KEYS\[1\], 1, -#'meta' - 1\).*", text)
    assert len(re.findall(r"\bKEYS\b", text)) == 1
    assert set(re.findall(r"'diskless:[^']*'", text)) <= {"'diskless:{registry}:'"}


def test_scripts_that_name_the_registry_run_in_its_slot() -> None:
    naming = {kind for kind in KINDS if "diskless:{registry}:" in script(*KINDS[kind]).text}
    assert naming == {"registry", "fleet"}
    assert len({re.findall(r"\{.*\}", prefix)[0] for prefix in (REGISTRY_PREFIX, FLEET_PREFIX)}) == 1


async def test_every_call_declares_a_key_that_its_part_has_and_one_that_never_exists() -> None:
    """With two, a cluster runs no script on a part that moves (CLUSTER SETSLOT MIGRATING)."""

    class Client:
        calls: ClassVar[list[tuple[Any, ...]]] = []

        async def evalsha(self, *arguments: Any) -> bytes:
            self.calls.append(arguments)
            return b""

    client: Any = Client()
    call = Call("diskless:{d7}:", (b"argument",))
    await scripts._evaluate(client, script("describe"), [call], (), ())
    keys = ("diskless:{d7}:meta", "diskless:{d7}:never")
    assert client.calls == [(script("describe").sha, 2, *keys, b"argument")]
    named = [path for path in SCRIPTS if re.search(r"prefix \.\. 'never|'never'", path.read_text())]
    assert named == []


def test_a_script_expects_the_rejection_of_optional_commands() -> None:
    for path in SCRIPTS:
        for command in OPTIONAL_COMMANDS:
            assert f"call('{command}'" not in path.read_text().replace(f"redis.pcall('{command}'", "")
