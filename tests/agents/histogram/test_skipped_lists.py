"""Skipped windows in a pipeline that remembers: bound does not know that they are skipped, and must still find what it asks for."""

from pathlib import Path
from typing import Any

import pytest

from susurrus.agents.histogram.release import ReleaseStage
from susurrus.mechanisms.calendar import WindowIndex
from tests.agents.histogram.test_remembered import LENGTH, Both, events_of, ours, start_of


class Decided:
    """Windows whose fate the budget has decided."""

    def __init__(self, skipped: set[int]) -> None:
        self._skipped = skipped

    def begins(self, window: WindowIndex) -> bool:
        return window not in self._skipped


def skipping(directory: Path, skipped: set[int], **sections: Any) -> Both:
    """A pipeline that does not publish these of its windows, counted from 0."""
    made = ours(**sections)
    both = Both(directory, made, events_of(1, late=sections.get("late", 0)))
    for runner in both.releases:
        stage: Any = runner.stage
        assert isinstance(stage, ReleaseStage)
        stage._beginnings._standing = Decided({made.ledger.first_window + window for window in skipped})
    return both


@pytest.mark.parametrize("skipped", [{0}, {1}, {1, 2}, {2}])
@pytest.mark.parametrize(
    "sections",
    [{}, {"late": 2}, {"late": 2, "privacy": {"closing": {"lag": 3}}}, {"privacy": {"closing": {"lag": LENGTH}}}],
    ids=["", "late", "late and lag", "lag of the whole window"],
)
def test_bound_measures_lists_of_a_skipped_window_with_remembered_keys(
    skipped: set[int], sections: dict[str, Any], tmp_path: Path
) -> None:
    both = skipping(tmp_path, skipped, **sections).finish()
    published = {start for start, _, _ in both.rows()}
    assert published == {start_of(window) for window in {0, 1, 2} - skipped}
