"""The real stack for every test that needs it, started once on first use; tiers of tests, and parallel workers."""

from __future__ import annotations

import gc
import signal
from collections.abc import Callable, Generator, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import hypothesis
import pytest

from proxy.demo.stack import Stack
from tests import tiers
from tests.parallel import Spread, is_worker, made_once, uses_stack
from tests.support.java_tools import JavaTools, compile_launcher
from tests.support.second_try import SecondTries
from tests.support.stacks import short_lived

GARBAGE = {"interval_ms": 500, "grace_ms": 3_000, "orphan_sweep_interval_ms": 5_000}
QUICK_HOUSEKEEPING = {
    "garbage": GARBAGE,
    "log.retention.check.interval.ms": 500,
    # A replica that stalls for a moment, as everything here does, is not skipped.
    "fetch": {"replica_grace_ms": 3_000},
    "limits": {"max_counted_topics": 10_000},
    "brokers": {"metadata_refresh_ms": 1_000, "deleted_topics_confirm_ms": 4_000, "stray_records_interval_ms": 3_000},
    "transactions": {"markers_kept_ms": 3_000},
}
"""Settings with which retention and deletions run all the time besides every test. A look at all objects, or at all
topics, costs the more the more tests have run, so such looks are not as frequent."""

FULL_PATIENCE = 3
"""Factor of the full tier for the time limits of tests: its long loads share the machine with two other stacks, and a
limit only ends a test that hangs."""

# The duration of an example depends on how busy the machine is.
hypothesis.settings.register_profile("full", hypothesis.settings(deadline=None))
# The gate must fail on the change that breaks something, so its examples are the same on every run and machine.
hypothesis.settings.register_profile("quick", hypothesis.settings(deadline=None, derandomize=True, database=None))


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the choice of the tier."""
    parser.addoption(
        "--tier",
        choices=list(tiers.Tier),
        default=tiers.Tier.FULL,
        help="quick: leave out what tests/tiers.py names, and use the same random examples every time; "
        "full, the default: run every test that is asked for",
    )


def pytest_configure(config: pytest.Config) -> None:
    """Load the examples of the tier; a failed test of real servers gets a second try."""
    hypothesis.settings.load_profile(config.getoption("tier"))
    # A shell's job in the background ignores SIGINT, and so would all programs that tests start and interrupt.
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    config.pluginmanager.register(SecondTries(), "second tries")
    config.pluginmanager.register(Spread(), "spread")


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Leave out files of which the tier runs no test: a worker spends seconds on imports."""
    return True if config.getoption("tier") == tiers.Tier.QUICK and tiers.leaves_out(collection_path) else None


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """Collect tests without collecting garbage: modules stay, and searching them again and again costs a fifth."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.enable()


@pytest.hookimpl(wrapper=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> Iterator[None]:
    """Deselect tests outside the tier. Mark tests of the real stack, so that `-m "not stack"` deselects them.

    This hook runs before all others, which use these marks.
    """
    tiers.look_up(config, items)
    for item in items:
        if uses_stack(item):
            item.add_marker(pytest.mark.stack)
        if config.getoption("tier") == tiers.Tier.FULL:
            extend_limit(item)
    return (yield)


def extend_limit(item: pytest.Item) -> None:
    """Give the test more time, whether the limit is its own or that of all tests."""
    own = item.get_closest_marker("timeout")
    seconds = own.args[0] if own else item.config.getini("timeout")
    item.add_marker(pytest.mark.timeout(float(seconds) * FULL_PATIENCE), append=False)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Add the last log lines of the proxies to a failure, because their logs are deleted with the stack."""
    report = yield
    stacks = [value for value in getattr(item, "funcargs", {}).values() if isinstance(value, Stack)]
    if report.failed:
        for stack in dict.fromkeys(stacks):
            for name in stack.processes:
                if name.startswith("proxy-"):
                    report.sections.append((f"log of {name}", stack.log_tail(name)))
    return report


@pytest.fixture(scope="session")
def running_stack() -> Iterator[Stack]:
    """Run the stack for fixtures of the same scope; tests use `stack`."""
    keeping = {"log.retention.ms": "-1"}  # tests write records of any time
    soon = {"diskless_append_commit_interval_ms": 50}  # a record waits for half of it
    with Stack(short_lived(overrides=QUICK_HOUSEKEEPING | soon, broker_properties=keeping, broker_jmx=True)) as running:
        yield running


@pytest.fixture
def stack(running_stack: Stack) -> Iterator[Stack]:
    """Return three brokers in three racks, a Redis-compatible server, file storage, three proxies; shared by all tests.

    A test may pause, stop and kill parts, which are restored after it. Topics stay, so every test uses its own names.
    """
    yield running_stack
    running_stack.heal()


@pytest.fixture
def new_stack() -> Iterator[Callable[..., Stack]]:
    """Return a function that starts a test's own stack with the given options of a stack; it ends after the test."""
    with ExitStack() as stacks:

        def start(**options: Any) -> Stack:
            return stacks.enter_context(Stack(short_lived(**options)))

        yield start


@pytest.fixture(scope="session")
def launcher(tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest) -> Path:
    """Return the compiled launcher, which runs Java tools one after the other."""
    # Each parallel worker has its own folder in the folder of the run.
    base = tmp_path_factory.getbasetemp()
    return made_once(base.parent if is_worker(request.config) else base, "launcher", compile_launcher)


@pytest.fixture(scope="session")
def tools(launcher: Path) -> Iterator[JavaTools]:
    """Return the tools of the newest Kafka, in a JVM that all tests share."""
    with JavaTools(launcher) as running:
        yield running
