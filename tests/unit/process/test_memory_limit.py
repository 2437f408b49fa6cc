from __future__ import annotations

from pathlib import Path

import pytest

from proxy.check.limits import memory_bytes
from proxy.process.memory_limit import container_limits

CGROUPS_2 = "sys/fs/cgroup/memory.max"
CGROUPS_1 = "sys/fs/cgroup/memory/memory.limit_in_bytes"


def write_limit(root: Path, name: str, text: str) -> Path:
    path = root / name
    path.parent.mkdir(parents=True)
    path.write_text(text)
    return root


@pytest.mark.parametrize("name", [CGROUPS_2, CGROUPS_1])
def test_a_containers_limit_is_known_by_both_versions_of_cgroups(tmp_path: Path, name: str) -> None:
    root = write_limit(tmp_path, name, "4194304\n")
    assert container_limits(root) == [4194304]
    assert memory_bytes(root) == 4194304, "less than any machine has"


@pytest.mark.parametrize(("name", "none"), [(CGROUPS_2, "max\n"), (CGROUPS_1, "9223372036854771712\n")])
def test_without_a_limit_the_machines_memory_counts(tmp_path: Path, name: str, none: str) -> None:
    machine = memory_bytes(tmp_path)
    assert machine > 4194304
    assert memory_bytes(write_limit(tmp_path, name, none)) == machine


def test_without_a_limit_file_there_is_no_limit(tmp_path: Path) -> None:
    assert container_limits(tmp_path) == []
