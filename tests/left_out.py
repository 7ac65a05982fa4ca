"""What a run of the tests leaves out, and says in its last lines.

A test that is named (``path::test``) is never left out. A file that is named lacks only what is marked campaign, and what has
passed on the same code.
"""

from collections import Counter
from typing import Any

import pytest

from tests import statistical
from tests.statistical import Due, Passed

CAMPAIGN = "MARKED campaign: `make campaign` runs them"
FOR_CHECK = {
    "shipped": "MARKED shipped (wheel, image, site, tutorial, recipes): `make check` runs them",
    "thorough": "MARKED thorough (browser, registry, brokers of their own, further cases): `make check` runs them",
}
"""Marker -> how the last lines name its tests."""
UNCHANGED = "OF mechanisms/ OR MARKED statistical, WHICH HAVE PASSED ON THE SAME CODE: `make check` runs them again"


def can_wait(item: pytest.Item) -> bool:
    """Whether a check may leave a test out for want of time: only the check runs it, or it is statistical, which takes long."""
    return any(map(item.get_closest_marker, (*FOR_CHECK, "statistical")))


class LeftOut:
    """A plugin of pytest. With xdist its workers leave out, and the controller counts, tells and remembers."""

    def __init__(self, config: pytest.Config, passed: Passed) -> None:
        self._campaign: bool = config.getoption("--campaign")
        self._check: bool = config.getoption("--check")
        self._named = any("::" in argument for argument in config.args)
        self._files = all(argument.endswith(".py") for argument in config.args)
        self._passed = passed
        self._due: Due = {}
        self._names: set[str] = set()
        self._numbers = Counter[str]()

    def take_out(self, config: pytest.Config, items: list[pytest.Item]) -> None:
        """Shorten a collection of whole files."""
        if self._named:
            return
        self._due = statistical.due(items)
        unchanged = set() if self._campaign or self._check else self._passed.unchanged(self._due)
        reasons = [self._reason(item, unchanged) for item in items]
        self._numbers.update(filter(None, reasons))
        config.hook.pytest_deselected(items=[item for item, reason in zip(items, reasons, strict=True) if reason])
        items[:] = [item for item, reason in zip(items, reasons, strict=True) if not reason]

    def _reason(self, item: pytest.Item, unchanged: set[str]) -> str:
        if item.get_closest_marker("campaign") and not self._campaign:
            return CAMPAIGN
        for marker, reason in FOR_CHECK.items():
            # A further case of a test that the campaign repeats is the campaign's, too.
            wanted = self._check or self._files or (self._campaign and marker == "thorough")
            if item.get_closest_marker(marker) and not wanted:
                return reason
        return UNCHANGED if statistical.item_repeats(item) and statistical.file_of(item.nodeid) in unchanged else ""

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Remember a test that has passed and may be left out the next time."""
        marked = "statistical" in report.keywords
        if report.when == "call" and report.passed and statistical.repeats(report.nodeid, statistical=marked):
            self._names.add(report.nodeid)

    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        """In a worker of xdist: tell the controller. Elsewhere: write down what has passed."""
        if (output := getattr(session.config, "workeroutput", None)) is not None:
            output["left_out"] = (self._due, dict(self._numbers))
        else:
            self._passed.write(self._due, self._names)

    @pytest.hookimpl(optionalhook=True)
    def pytest_testnodedown(self, node: Any) -> None:
        """In the controller: all workers collect the same."""
        due, numbers = getattr(node, "workeroutput", {}).get("left_out", ({}, {}))
        self._due |= due
        self._numbers |= Counter(numbers)

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        """Never let it pass quietly."""
        for reason, number in sorted(self._numbers.items()):
            if reason != CAMPAIGN:
                terminalreporter.section(f"NOT RUN: {number} TESTS {reason}", sep="!", yellow=True, bold=True)
