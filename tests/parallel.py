"""The distribution of tests over parallel workers, with `pytest -n 3 --dist loadgroup` (pytest-xdist).

Starting a stack costs more than most of the tests that use it. So the tests of the shared stack are two groups, each of
which one worker runs with one stack. The tests that start their own stack are another group: one such stack runs at a
time. The tests of the pipeline are a group because of their Spark session. All other tests are spread by file.
"""

from __future__ import annotations

import fcntl
import json
import os
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cached_property
from pathlib import Path

import pytest
from xdist.remote import Producer
from xdist.scheduler import LoadFileScheduling
from xdist.workermanage import WorkerController

SHARED_STACK, SHARED_STACK_TOO, OWN_STACKS, SPARK = "shared_stack", "shared_stack_too", "own_stacks", "spark"
ORDER = [SHARED_STACK, SHARED_STACK_TOO, OWN_STACKS, SPARK, ""]
"""Groups by their duration, the longest first. Short files fill the time until the last group has ended."""
SHARED_STACK_FIXTURE = "running_stack"
_STACK = re.compile(r"\bStack\b")
_TESTS = Path(__file__).parent
_READS = ("routed_fetch", "offsets")
"""Folders of integration tests that run with the other tests of the second shared stack: without them, the first one
would take twice as long, and longer than everything else."""
_UNIT, _INTEGRATION, _PIPELINE = _TESTS / "unit", _TESTS / "integration", _TESTS / "pipeline"


def is_worker(config: pytest.Config) -> bool:
    """Return whether this process runs tests for another one, which started it."""
    return hasattr(config, "workerinput")


def uses_stack(item: pytest.Item) -> bool:
    """Return whether one of the test's fixtures gives it a stack, which the fixture's annotation says."""
    if not isinstance(item, pytest.Function):
        return False
    fixtures = (definitions[-1].func for definitions in item._fixtureinfo.name2fixturedefs.values())
    given = (str(getattr(fixture, "__annotations__", {}).get("return", "")) for fixture in fixtures)
    return any(_STACK.search(annotation) for annotation in given)


def group_of(item: pytest.Item) -> str:
    """Return the group of a test of real brokers or of Spark, an empty string for any other test."""
    if uses_shared_stack(item):
        reads = any(item.path.is_relative_to(_INTEGRATION / folder) for folder in _READS)
        return SHARED_STACK if item.path.is_relative_to(_INTEGRATION) and not reads else SHARED_STACK_TOO
    if item.get_closest_marker("stack"):
        return OWN_STACKS
    return SPARK if item.path.is_relative_to(_PIPELINE) else ""


def end_shared_stack(item: pytest.Item, next_item: pytest.Item | None) -> None:
    """End the shared stack after its last test here: idle, it would slow down all other tests."""
    if uses_shared_stack(item) and (next_item is None or not uses_shared_stack(next_item)):
        for definition in item._fixtureinfo.name2fixturedefs[SHARED_STACK_FIXTURE]:  # type: ignore[attr-defined]
            definition.finish(item._request)  # type: ignore[attr-defined]


def uses_shared_stack(item: pytest.Item) -> bool:
    """Return whether the test uses the stack that several files share."""
    return SHARED_STACK_FIXTURE in getattr(item, "fixturenames", ())


class Spread:
    """The plugin: it groups the tests, begins the longest groups first, and schedules all other tests by file.

    Only the workers collect tests, and only the main process schedules them: the workers write the groups to a file.
    (xdist's own way, marks of items, has no effect with pytest 9.2: it sets an attribute that pytest no longer reads.)
    """

    def pytest_configure(self, config: pytest.Config) -> None:
        """Keep the order of the collected tests: xdist would begin the groups with the most tests first."""
        config.option.loadscopereorder = False

    @pytest.hookimpl(optionalhook=True)
    def pytest_configure_node(self, node: WorkerController) -> None:
        """Give a worker the place where it writes the groups."""
        node.workerinput["groups"] = str(_groups_file(node.config))

    @pytest.hookimpl(trylast=True)
    def pytest_collection_modifyitems(self, config: pytest.Config, items: list[pytest.Item]) -> None:
        """Write the groups and put the longest first. Nothing happens in a run without workers."""
        if not is_worker(config):
            return
        groups = {item: group_of(item) for item in items}
        # All workers write the same. A reader must not see a part of it.
        path = Path(config.workerinput["groups"])  # type: ignore[attr-defined]
        partial = path.with_suffix(f".{os.getpid()}")
        partial.write_text(json.dumps({item.nodeid: group for item, group in groups.items() if group}))
        partial.replace(path)
        items.sort(key=lambda item: (ORDER.index(groups[item]), item.path.is_relative_to(_UNIT)))

    @pytest.hookimpl(trylast=True)
    def pytest_runtest_teardown(self, item: pytest.Item, nextitem: pytest.Item | None) -> None:
        """End the shared stack as soon as no test here needs it."""
        if is_worker(item.config):
            end_shared_stack(item, nextitem)

    @pytest.hookimpl(optionalhook=True)
    def pytest_xdist_make_scheduler(self, config: pytest.Config, log: Producer) -> LoadFileScheduling | None:
        """Schedule by group and file for `--dist loadgroup`."""
        return ByGroupOrFile(config, log) if config.getoption("dist") == "loadgroup" else None


class ByGroupOrFile(LoadFileScheduling):  # type: ignore[misc]
    """Send the tests of a group to one worker, and the tests of a file to one worker."""

    @cached_property
    def _groups(self) -> dict[str, str]:
        """Groups by node ID; read when all workers have collected."""
        groups: dict[str, str] = json.loads(_groups_file(self.config).read_text())
        return groups

    def _split_scope(self, nodeid: str) -> str:
        group = self._groups.get(nodeid, "")
        scope: str = group or super()._split_scope(nodeid)
        return scope


def _groups_file(config: pytest.Config) -> Path:
    factory: pytest.TempPathFactory = config._tmp_path_factory  # type: ignore[attr-defined]
    return factory.getbasetemp() / "groups.json"


def made_once(shared: Path, name: str, make: Callable[[Path], object]) -> Path:
    """Return the folder `name` in `shared`; the first worker that needs it builds it, and the others wait."""
    made, done = shared / name, shared / f"{name}.done"
    with _locked(shared / f"{name}.lock"):
        if not done.exists():
            made.mkdir(exist_ok=True)
            make(made)
            done.touch()
    return made


@contextmanager
def _locked(path: Path) -> Iterator[None]:
    with path.open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield
