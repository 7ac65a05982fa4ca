"""What the windows of a plan hold: nothing, a synthetic law, or a sample of raw records."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol

import numpy as np

from susurrus.agents.histogram.settings import HistogramSettings
from susurrus.agents.planning.law import Law
from susurrus.agents.planning.sample import WIDE_STEPS, Sample
from susurrus.agents.planning.windows import WHOLE, SampleWindow, sizes, windows_of
from susurrus.agents.planning.workload import Workload
from susurrus.topics.records.raw import BucketField


@dataclass(frozen=True, slots=True, kw_only=True)
class WindowSize:
    """What a window holds. covered: the share of its time between its first and last record."""

    name: str
    records: int
    users: int
    keys: int
    covered: float = 1.0


def in_grid_units(sample: Sample, settings: HistogramSettings) -> Sample:
    """A sample that was read wide, with its values in the units of the columns' grids, still not clamped: as windows take it.

    Buckets are the same in a wide sample.
    """
    steps = [1 if isinstance(value, BucketField) else WIDE_STEPS for value in settings.layout.values]
    return replace(sample, values=np.rint(sample.values / np.array(steps, np.int64)).astype(np.int64))


class WindowSource(Protocol):
    """What the windows hold. private: whether it was read from data that nothing protects."""

    private: bool
    title: str

    def notes(self, settings: HistogramSettings) -> list[str]: ...

    def workloads(self, settings: HistogramSettings) -> Sequence[Workload]: ...

    def sizes(self, settings: HistogramSettings) -> list[WindowSize]: ...


class NoData:
    """Nothing is known: thresholds and standard errors only."""

    private = False
    title = "no data"

    def notes(self, settings: HistogramSettings) -> list[str]:
        return []

    def workloads(self, settings: HistogramSettings) -> Sequence[Workload]:
        return ()

    def sizes(self, settings: HistogramSettings) -> list[WindowSize]:
        return []


class OfLaw:
    """A synthetic law; `make` takes the settings, whose fields and calendar it needs."""

    private = False

    def __init__(self, make: Callable[[HistogramSettings], Law]) -> None:
        self._make = make
        self.title = "a synthetic law"

    def notes(self, settings: HistogramSettings) -> list[str]:
        law = self._make(settings)
        rank = f"(rank + {law.shift:g})" if law.shift else "rank"
        said = [
            f"{law.users:,} users with {law.records_per_user:g} records on average; keys by {rank}^-{law.zipf:g} of "
            f"{law.keys:,} keys, drawn independently; times: {law.profile}"
        ]
        return [*said, "values are uniform within their bounds"] if law.fields else said

    def workloads(self, settings: HistogramSettings) -> Sequence[Workload]:
        return (self._make(settings),)

    def sizes(self, settings: HistogramSettings) -> list[WindowSize]:
        law = self._make(settings)
        keys: set[int] = set()
        records = 0
        for chunk in law.chunks():
            records += len(chunk.key)
            keys.update(np.unique(chunk.key).tolist())
        return [WindowSize(name=law.name, records=records, users=law.users, keys=len(keys))]


class OfSample:
    """A sample of raw records; see `windows_of` for share, stretch and most."""

    private = True

    def __init__(
        self, sample: Sample, title: str, *, share: float = 1.0, stretch: bool = False, most: int = 7, seed: int = 0
    ) -> None:
        self.sample, self.title = sample, title
        self.share, self.stretch, self._most, self._seed = share, stretch, most, seed
        self._known: dict[Any, list[SampleWindow]] = {}

    def notes(self, settings: HistogramSettings) -> list[str]:
        """What was made of the sample, in words."""
        said = []
        if not self.sample.timed:
            said.append("the records say no times, and are spread evenly over one window in their order")
        if self.stretch:
            said.append("the sample's times are spread over one whole window")
        windows = self.windows(settings)
        there = len(np.unique(settings.calendar.window_of(self.sample.time)))
        if not self.stretch and there > len(windows):
            said.append(
                f"the sample's {there - len(windows)} other windows are left out: it covers parts of them, or they are older"
            )
        for window in windows:
            if window.covered < WHOLE and not self.stretch:
                said.append(
                    f"window {window.name}: the records lie in {window.covered:.0%} of its time, and the rest is taken to be "
                    "empty; --stretch spreads them"
                )
        if self.share < 1:
            said.append(f"the sample is taken for {self.share:.3g} of the users; copies of its users make up the rest")
        return said

    def windows(self, settings: HistogramSettings) -> list[SampleWindow]:
        """Made once for each calendar."""
        calendar = settings.window.calendar
        if calendar not in self._known:
            self._known[calendar] = windows_of(
                self.sample, settings, share=self.share, stretch=self.stretch, most=self._most, seed=self._seed
            )
        return self._known[calendar]

    def workloads(self, settings: HistogramSettings) -> Sequence[Workload]:
        return [window.workload for window in self.windows(settings)]

    def sizes(self, settings: HistogramSettings) -> list[WindowSize]:
        windows = self.windows(settings)
        return [
            WindowSize(name=name, records=records, users=users, keys=keys, covered=window.covered)
            for (name, records, users, keys), window in zip(sizes(windows), windows, strict=True)
        ]
