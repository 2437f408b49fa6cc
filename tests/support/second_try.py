"""Repeat a failed test of real servers and foreign clients once, for a few tests in a run, and report every repetition.

Brokers learn of changes one after the other, clients have races of their own, and machines stall: of seven thousand
tests, one or two may fail for this reason in a run. Unit tests have no such excuse. A first failure is printed in full,
because somebody must look at it: a defect that shows once in a hundred runs looks the same.
"""

from __future__ import annotations

from pathlib import Path

import pytest
import pytest_timeout

MOST_SECOND_TRIES = 5
"""Maximum number of second tries in a run; after them, a failed test has failed."""
_UNIT = Path(__file__).resolve().parents[1] / "unit"


class SecondTries:
    """A pytest plugin that chooses the tests that may have a second try, and reports the tests that took it."""

    def __init__(self) -> None:
        self.first: dict[str, list[pytest.TestReport]] = {}
        """Reports of failed tries that were not the last, by test."""

    def pytest_configure(self, config: pytest.Config) -> None:
        """Limit the number of second tries."""
        config.option.max_suite_reruns = MOST_SECOND_TRIES

    def pytest_collection_modifyitems(self, config: pytest.Config, items: list[pytest.Item]) -> None:
        """Allow all tests except unit tests a second try, or as many as their marker says; none while somebody
        debugs."""
        if config.option.usepdb:
            return
        for item in items:
            if not item.path.is_relative_to(_UNIT) and item.get_closest_marker("flaky") is None:
                item.add_marker(pytest.mark.flaky(reruns=1))

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_setup(self, item: pytest.Item) -> None:
        """Start the timer again for a second try: one timer covers both tries, and it ended with the first failure."""
        if getattr(item, "execution_count", 1) > 1:
            settings = pytest_timeout._get_item_settings(item)
            if not settings.timeout or settings.func_only:
                return
            item.config.pluginmanager.hook.pytest_timeout_set_timer(item=item, settings=settings)

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Keep the report of the first of two tries."""
        if str(report.outcome) == "rerun":
            self.first.setdefault(report.nodeid, []).append(report)

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        """Print why the first tries failed."""
        if not self.first:
            return
        terminalreporter.section(f"tried a second time: {len(self.first)}, of {MOST_SECOND_TRIES} at most")
        for report in (report for reports in self.first.values() for report in reports):
            terminalreporter.section(report.nodeid, sep="_")
            terminalreporter.line(report.longreprtext)
            for title, text in report.sections:
                terminalreporter.section(title, sep="-")
                terminalreporter.line(text)
