from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from pipeline.memory import available_bytes, tasks_at_once

MIB = 1 << 20


def machine(root: Path, available_kib: int = 8 << 20, **limits: str) -> Path:
    for name, text in {
        "proc/meminfo": f"MemTotal: 99999999 kB\nMemAvailable: {available_kib} kB\n",
        **{
            "sys/fs/cgroup/" + {"v2": "memory.max", "v1": "memory/memory.limit_in_bytes"}[at]: text
            for at, text in limits.items()
        },
    }.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return root


def spark(master: str, cores: int) -> Any:
    return SimpleNamespace(sparkContext=SimpleNamespace(master=master, defaultParallelism=cores))


@pytest.mark.parametrize(
    ("limits", "bytes_"),
    [
        ({}, 8 << 30),
        ({"v2": "max\n"}, 8 << 30),
        ({"v2": f"{4 << 30}\n"}, 4 << 30),
        ({"v1": f"{2 << 30}\n"}, 2 << 30),
        ({"v1": "9223372036854771712\n"}, 8 << 30),
    ],
)
def test_the_least_of_what_a_container_may_have_and_what_is_free(
    tmp_path: Path, limits: dict[str, str], bytes_: int
) -> None:
    assert available_bytes(machine(tmp_path, **limits)) == bytes_


def test_without_any_limit_there_is_no_bound(tmp_path: Path) -> None:
    assert available_bytes(tmp_path) is None
    assert tasks_at_once(spark("local[*]", 16), 256 * MIB, root=tmp_path) is None


def test_local_tasks_have_half_of_the_memory(tmp_path: Path) -> None:
    root = machine(tmp_path, v2=f"{4 << 30}")
    assert tasks_at_once(spark("local[*]", 16), 256 * MIB, root=root) == 6
    assert tasks_at_once(spark("local[*]", 2), 256 * MIB, root=root) == 2, "no more than there are cores"
    assert tasks_at_once(spark("local", 1), 4 << 30, root=root) == 1, "one at least"
    assert tasks_at_once(spark("spark://host:7077", 16), 256 * MIB, root=root) is None, "executors are elsewhere"
