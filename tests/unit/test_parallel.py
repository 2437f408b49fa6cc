"""Groups of tests stay together on one worker, and second tries work there, too."""

from __future__ import annotations

import re
from collections import defaultdict
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from tests.parallel import made_once

pytest_plugins = ["pytester"]

CONFTEST = """
import pytest
from tests.parallel import Spread
from tests.support.second_try import SecondTries

def pytest_configure(config):
    config.addinivalue_line("markers", "stack: real brokers")
    config.pluginmanager.register(SecondTries(), "second tries")
    config.pluginmanager.register(Spread(), "spread")

@pytest.fixture
def running_stack():
    pass

@pytest.fixture
def stack(running_stack):
    pass
"""
SHARED = """
import pytest

@pytest.mark.parametrize("number", range(4))
def test_shared(stack, number):
    pass
"""
OWN = """
import pytest

@pytest.mark.stack
@pytest.mark.parametrize("number", range(4))
def test_own(number):
    pass
"""
OWN_BY_THE_SAME_NAME = """
import pytest

class Stack:
    pass

@pytest.fixture(scope="module")
def stack() -> Stack:
    return Stack()

@pytest.mark.stack
@pytest.mark.parametrize("number", range(4))
def test_own(stack, number):
    pass
"""
FILE = """
import pytest

@pytest.mark.parametrize("number", range(4))
def test_plain(number):
    pass
"""
FAILS_AT_FIRST = """
tried = []

def test_it(stack):
    tried.append(1)
    assert len(tried) > 1, "so it was"
"""
OPTIONS = ("-n", "2", "--dist", "loadgroup", "-p", "no:cacheprovider", "-p", "no:asyncio")


def test_groups_and_files_stay_on_one_worker(pytester: pytest.Pytester) -> None:
    pytester.makeconftest(CONFTEST)
    files = {"test_a1": FILE, "test_a2": FILE, "test_b": SHARED, "test_c": OWN, "test_d": SHARED, "test_e": OWN}
    files |= {"test_f": OWN_BY_THE_SAME_NAME}
    pytester.makepyfile(**files)
    run = pytester.runpytest_inprocess("-v", *OPTIONS)
    run.assert_outcomes(passed=28)
    workers = defaultdict(set)
    for worker, path in re.findall(r"\[(gw\d)\].* PASSED (\w+\.py)::\w+\[\d\]", run.stdout.str()):
        workers[path].add(worker)
    assert set(workers) == {f"{name}.py" for name in files}
    assert [len(by) for by in workers.values()] == [1] * len(files)
    assert workers["test_b.py"] == workers["test_d.py"]
    assert workers["test_c.py"] == workers["test_e.py"] == workers["test_f.py"]
    assert workers["test_b.py"] != workers["test_c.py"]


def test_a_second_try_is_reported_by_the_tests_own_name(pytester: pytest.Pytester) -> None:
    pytester.makeconftest(CONFTEST)
    pytester.makepyfile(test_a=FAILS_AT_FIRST, test_b=FILE)
    run = pytester.runpytest_inprocess(*OPTIONS)
    assert run.ret == pytest.ExitCode.OK
    text = run.stdout.str()
    assert "tried a second time: 1, " in text
    assert "AssertionError: so it was" in text
    assert re.search(r"^_+ test_a\.py::test_it _+$", text, re.MULTILINE)
    assert "1 rerun" in text.splitlines()[-1]


def test_a_shared_build_is_done_by_the_first_and_complete_for_the_others(tmp_path: Path) -> None:
    calls = []

    def make(folder: Path) -> None:
        calls.append(folder)
        (folder / "made").write_text("whole")

    def use(_: int) -> str:
        return (made_once(tmp_path, "thing", make) / "made").read_text()

    with ThreadPoolExecutor(8) as pool:
        assert set(pool.map(use, range(8))) == {"whole"}
    assert len(calls) == 1


def test_a_failed_build_is_repeated_by_the_next(tmp_path: Path) -> None:
    def fail(folder: Path) -> None:
        (folder / "half").touch()
        raise OSError("no space")

    with pytest.raises(OSError, match="no space"):
        made_once(tmp_path, "thing", fail)
    made = made_once(tmp_path, "thing", lambda folder: (folder / "made").touch())
    assert (made / "made").exists()
