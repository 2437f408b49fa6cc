"""A second try for tests of real servers and foreign clients, a few in a run, and never unseen.

Brokers learn one after the other, clients have races of their own, and machines stand still: of seven thousand tests
one or two may meet it in a run. Unit tests have no such excuse. What failed first is printed as a failure is: somebody
has to look at it, as a defect that shows once in a hundred times looks the same.
"""

from __future__ import annotations

from pathlib import Path

import pytest

MOST_SECOND_TRIES = 5
"""In one run; with more of them the run fails, whatever the second tries said."""
_UNIT = Path(__file__).resolve().parents[1] / "unit"


class SecondTries:
    """The plugin: which tests have a second try, and what is said of those that took it."""

    def __init__(self) -> None:
        self.first: list[pytest.TestReport] = []
        """Of the tries that failed and were not the last."""

    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        """Everything but unit tests may be tried twice."""
        for item in items:
            if not item.path.is_relative_to(_UNIT):
                item.add_marker(pytest.mark.flaky(reruns=1))

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Remember the first of two tries."""
        if str(report.outcome) == "rerun":
            self.first.append(report)

    @pytest.hookimpl(trylast=True)
    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        """Too many second tries are a failure."""
        if len(self.first) > MOST_SECOND_TRIES and session.exitstatus == pytest.ExitCode.OK:
            session.exitstatus = pytest.ExitCode.TESTS_FAILED

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        """Why the first tries failed."""
        if not self.first:
            return
        terminalreporter.section(f"tried a second time: {len(self.first)}, of {MOST_SECOND_TRIES} at most")
        for report in self.first:
            terminalreporter.section(report.nodeid, sep="_")
            terminalreporter.line(report.longreprtext)
            for title, text in report.sections:
                terminalreporter.section(title, sep="-")
                terminalreporter.line(text)
