"""A second try for tests of real servers and foreign clients, a few in a run, and never unseen.

Brokers learn one after the other, clients have races of their own, and machines stand still: of seven thousand tests
one or two may meet it in a run. Unit tests have no such excuse. What failed first is printed as a failure is: somebody
has to look at it, as a defect that shows once in a hundred times looks the same.
"""

from __future__ import annotations

from pathlib import Path

import pytest
import pytest_timeout

MOST_SECOND_TRIES = 5
"""In one run; what fails after them has failed."""
_UNIT = Path(__file__).resolve().parents[1] / "unit"


class SecondTries:
    """The plugin: which tests have a second try, and what is said of those that took it."""

    def __init__(self) -> None:
        self.first: dict[str, list[pytest.TestReport]] = {}
        """Of the tries that failed and were not the last, by test."""

    def pytest_configure(self, config: pytest.Config) -> None:
        """Not one more than those."""
        config.option.max_suite_reruns = MOST_SECOND_TRIES

    def pytest_collection_modifyitems(self, config: pytest.Config, items: list[pytest.Item]) -> None:
        """Everything but unit tests may be tried twice, or as often as it says; not beneath somebody's eyes."""
        if config.option.usepdb:
            return
        for item in items:
            if not item.path.is_relative_to(_UNIT) and item.get_closest_marker("flaky") is None:
                item.add_marker(pytest.mark.flaky(reruns=1))

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_setup(self, item: pytest.Item) -> None:
        """A second try has its time, too, where the timer was for both: it ended with the first failure."""
        if getattr(item, "execution_count", 1) > 1:
            settings = pytest_timeout._get_item_settings(item)
            if not settings.timeout or settings.func_only:
                return
            item.config.pluginmanager.hook.pytest_timeout_set_timer(item=item, settings=settings)

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Remember the first of two tries."""
        if str(report.outcome) == "rerun":
            self.first.setdefault(report.nodeid, []).append(report)

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        """Why the first tries failed."""
        if not self.first:
            return
        terminalreporter.section(f"tried a second time: {len(self.first)}, of {MOST_SECOND_TRIES} at most")
        for report in (report for reports in self.first.values() for report in reports):
            terminalreporter.section(report.nodeid, sep="_")
            terminalreporter.line(report.longreprtext)
            for title, text in report.sections:
                terminalreporter.section(title, sep="-")
                terminalreporter.line(text)
