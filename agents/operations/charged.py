"""What each pipeline was charged on a raw topic, and how fast it goes on: rows of the account (agents/operations/account.py)."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Final

from susurrus.agents.config.settings import Settings
from susurrus.agents.runtime.budget import guarantee_of, spend_of
from susurrus.mechanisms.guarantee import Guarantee
from susurrus.mechanisms.windows import FixedWindows, TumblingWindows
from susurrus.topics.charges import Charge, pays_for_window

RECENT: Final = 30
"""Windows: how far back the recent past reaches."""
_QUIET_WINDOWS: Final = 7
DAY: Final = 86_400_000
"""ms."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PipelineAccount:
    """What one pipeline was charged on the raw topic. Instants and lengths in ms, windows by their start.

    windows: charges of windows; a window that two epochs published counts twice. Tuning runs charge no windows; `charges` counts
    them. newest: what the newest charge paid for. mu_squared, delta_selection, epsilon_sum, delta_sum: sums over the charges.
    calendar: its windows. every: from one of them to the next, mostly. next_window: the one after the newest. active: whether
    it goes on charging. This pipeline does, and so does every other one that has begun a window lately. recent, recent_due: of
    its last windows that are over, at most 30, those charged, and all. beyond: charges that exceed `[budget]` as it is now.
    They were refused, or were made under another budget.
    """

    pipeline: str
    own: bool
    tuning: bool
    charges: int
    windows: int
    newest: Guarantee | None
    mu_squared: float
    delta_selection: float
    epsilon_sum: float
    delta_sum: float
    first_window: int | None
    last_window: int | None
    every: int | None
    calendar: TumblingWindows | None
    next_window: int | None
    active: bool
    recent: int
    recent_due: int
    epochs: int
    beyond: int

    @property
    def pace(self) -> float | None:
        """Windows a day in the recent past; None before a window is over."""
        return None if not self.every or not self.recent_due else self.recent / self.recent_due * DAY / self.every

    @property
    def calendar_pace(self) -> float | None:
        """Windows a day by its calendar; None for tuning runs."""
        return DAY / self.every if self.every else None


@dataclass(frozen=True, slots=True, kw_only=True)
class EpochAccount:
    """What one epoch of this pipeline was charged. Starts of its first and last window in ms."""

    epoch: str
    windows: int
    first_window: int
    last_window: int


def row_of(
    pipeline: str, charges: Sequence[Charge], settings: Settings, present: int, *, beyond: int
) -> PipelineAccount:
    """The row of one pipeline. charges: its own, in the order of the log. present: ms, the instant that "lately" is before."""
    own, tuning = pipeline == settings.pipeline.name, not all(map(pays_for_window, charges))
    windows = [charge.window for charge in charges]
    every = next_window = calendar = None
    recent, due = 0, 0
    if not tuning:
        newest = sorted({charge.window for charge in charges if charge.epoch == charges[-1].epoch})
        calendar = settings.calendar.windows
        if not own:  # its configuration is not known, but the windows of a running epoch follow each other
            every = min((later - earlier for earlier, later in pairwise(newest)), default=calendar.usual)
            calendar = FixedWindows(origin=newest[-1], length_ms=every)
        every = calendar.usual
        next_window = calendar.later(newest[-1], 1) if newest else _first(settings, present) if own else None
        recent, due = _recent(windows, calendar, present)
    # With a budget that renews, a pipeline may skip windows for as long as a period.
    quiet = max(_QUIET_WINDOWS * (every or 0), DAY, 0 if settings.budget is None else settings.budget.per or 0)
    spend = spend_of(charges)
    return PipelineAccount(
        pipeline=pipeline,
        own=own,
        tuning=tuning,
        charges=len(charges),
        windows=0 if tuning else len(charges),
        newest=guarantee_of(charges[-1]) if charges else None,
        mu_squared=spend.mu_squared,
        delta_selection=spend.delta_selection,
        epsilon_sum=sum(charge.epsilon for charge in charges),
        delta_sum=sum(charge.delta for charge in charges),
        first_window=min(windows, default=None),
        last_window=max(windows, default=None),
        every=every,
        calendar=calendar,
        next_window=next_window,
        active=own or (next_window is not None and next_window > present - quiet),
        recent=recent,
        recent_due=due,
        epochs=len({charge.epoch for charge in charges}),
        beyond=beyond,
    )


def _first(settings: Settings, present: int) -> int:
    """The window with which a pipeline begins that has no charge yet."""
    if settings.start.first_window is not None:
        return settings.start.first_window
    return settings.calendar.window_start(settings.calendar.window_at(present))


def _recent(windows: Sequence[int], calendar: TumblingWindows, present: int) -> tuple[int, int]:
    """How many of the last windows that are over at an instant were charged, and how many there are, at most RECENT."""
    if not windows:
        return 0, 0
    first, end = min(windows), calendar.start(calendar.of_time(present))
    over = calendar.count(first, end)  # windows that have begun and ended since the first one
    due = max(0, min(RECENT, over))
    begin = calendar.later(first, over - due)
    return sum(begin <= window < end for window in windows), due


def epochs_of(charges: Sequence[Charge]) -> Iterator[EpochAccount]:
    """One row per epoch, in the order of their first charges."""
    for epoch in dict.fromkeys(charge.epoch for charge in charges):
        windows = [charge.window for charge in charges if charge.epoch == epoch]
        yield EpochAccount(epoch=epoch, windows=len(windows), first_window=min(windows), last_window=max(windows))
