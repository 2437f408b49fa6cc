"""Second tries are few, and are reported."""

from __future__ import annotations

import pytest

from tests.support.second_try import MOST_SECOND_TRIES, SecondTries

pytest_plugins = ["pytester"]

FAILS_AT_FIRST = """
import pytest

tried = set()

@pytest.mark.parametrize("number", range({tests}))
def test_it(number):
    before = number in tried
    tried.add(number)
    assert before and {good}, "so it was"
"""


HANGS_WHEN_TRIED_AGAIN = """
import time

import pytest

tried = []

@pytest.mark.timeout(0.5)
def test_it():
    tried.append(1)
    assert len(tried) > 1
    time.sleep(60)
"""


@pytest.mark.parametrize(
    ("tests", "good", "exit_code"),
    [
        (MOST_SECOND_TRIES, True, pytest.ExitCode.OK),
        (MOST_SECOND_TRIES + 1, True, pytest.ExitCode.TESTS_FAILED),
        (1, False, pytest.ExitCode.TESTS_FAILED),
    ],
)
def test_a_few_tests_have_a_second_try(
    pytester: pytest.Pytester, tests: int, good: bool, exit_code: pytest.ExitCode
) -> None:
    pytester.makepyfile(FAILS_AT_FIRST.format(tests=tests, good=good))
    run = pytester.runpytest_inprocess("-p", "no:cacheprovider", "-p", "no:asyncio", plugins=[SecondTries()])
    assert run.ret == exit_code
    printed = run.stdout.str()
    tried = min(tests, MOST_SECOND_TRIES)
    assert f"tried a second time: {tried}, of {MOST_SECOND_TRIES} at most" in printed
    assert printed.count("AssertionError: so it was") >= tests


def test_the_second_try_has_its_time_too(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(HANGS_WHEN_TRIED_AGAIN)
    run = pytester.runpytest_inprocess("-p", "no:cacheprovider", "-p", "no:asyncio", plugins=[SecondTries()])
    run.assert_outcomes(failed=1)
    assert "Timeout" in run.stdout.str()


def test_the_tests_of_this_folder_have_none(request: pytest.FixtureRequest) -> None:
    assert request.node.get_closest_marker("flaky") is None
