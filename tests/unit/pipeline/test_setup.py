"""The packages that `make setup` and `make demo` install, in any order."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import pytest

SCRIPT = Path(__file__).resolve().parents[3] / "scripts" / "setup.py"
_spec = importlib.util.spec_from_file_location("setup_of_the_project", SCRIPT)
assert _spec is not None
assert _spec.loader is not None
setup = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(setup)

NOTHING = ""
OF_AN_OLDER_RELEASE = "8177a6cb0c0350ff6b1229fb6223e5507c54221072a438b960000cc065190e86"


@pytest.mark.parametrize("made", [NOTHING, OF_AN_OLDER_RELEASE])
def test_a_demo_needs_no_spark(made: str) -> None:
    assert setup.wanted_lock(made, demo_only=True) == "requirements.lock"
    assert setup.wanted_lock(made, demo_only=False) == "requirements-pipeline.lock"


def test_a_demo_after_the_set_up_changes_nothing() -> None:
    made = setup.stamp(setup.wanted_lock(NOTHING, demo_only=False))
    assert setup.stamp(setup.wanted_lock(made, demo_only=True)) == made


def test_a_set_up_after_a_demo_adds_spark_once() -> None:
    demo = setup.stamp(setup.wanted_lock(NOTHING, demo_only=True))
    full = setup.stamp(setup.wanted_lock(demo, demo_only=False))
    assert full != demo
    assert setup.stamp(setup.wanted_lock(full, demo_only=False)) == full


def test_an_older_lock_is_installed_again() -> None:
    older = "requirements-pipeline.lock " + "0" * 64
    assert setup.stamp(setup.wanted_lock(older, demo_only=True)) not in (older, setup.stamp("requirements.lock"))


def test_every_package_of_the_demo_is_in_both_locks() -> None:
    def pinned(name: str) -> set[str]:
        lines = (SCRIPT.parents[1] / name).read_text().splitlines()
        return {line.split(" ")[0] for line in lines if line and not line.startswith((" ", "#"))}

    assert pinned("requirements.lock") < pinned("requirements-pipeline.lock")
    assert any(line.startswith("pyspark==") for line in pinned("requirements-pipeline.lock"))
