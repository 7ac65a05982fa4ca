"""From a sample to the windows that a forecast goes through: cut at the calendar, scaled up where the sample is a part.

A sample of a part of the users is scaled up by copies of its users. That keeps how often each key of the sample comes, and how
many records a user has. It cannot invent keys, and it takes the luck of the sample for the law: `Extrapolation` measures by how
much, on a part of the sample itself.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt

from susurrus.agents.histogram.settings import HistogramSettings
from susurrus.agents.planning.sample import Sample
from susurrus.agents.planning.workload import DAY_MS, FileWorkload, UserRecords, sort_records
from susurrus.mechanisms.arrays import Int64s
from susurrus.mechanisms.calendar import WindowIndex
from susurrus.mechanisms.errors import ConfigurationError

WHOLE: Final = 0.9
"""A window of which the sample covers less than this share of time is a part of one."""
MOST_COPIES: Final = 100_000_000
"""Records of one scaled window."""
_JITTER: Final = 1 / 24
"""Copies of a user come up to so much of the window earlier or later."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SampleWindow:
    """A window of a sample. name: its start, for people. covered: the share of the window's time between its first and last
    record."""

    name: str
    covered: float
    workload: FileWorkload


def windows_of(
    sample: Sample,
    settings: HistogramSettings,
    *,
    share: float = 1.0,
    stretch: bool = False,
    most: int = 7,
    seed: int = 0,
) -> list[SampleWindow]:
    """The windows that a sample covers, newest last; of several, those it covers wholly, if there are any.

    share: of the users that a window has, so many are in the sample. stretch: spread the sample's times over the whole of one
    window, for a stretch of time that stands for one. most: windows, the newest. Raises ConfigurationError.
    """
    if not 0 < share <= 1:
        raise ConfigurationError(f"sample_share={share:g}: must be above 0 and at most 1")
    calendar = settings.calendar
    time = sample.time
    if stretch:
        first, last = int(time.min()), int(time.max())
        begin = settings.some_window
        time = ((time - first) / (last - first + 1) * (calendar.end_of(begin) - begin)).astype(np.int64) + begin
    number = calendar.window_of(time)
    found = []
    for index in np.unique(number).tolist():
        rows = np.flatnonzero(number == index)
        start, end = calendar.window_start(WindowIndex(index)), calendar.window_end(WindowIndex(index))
        inside = time[rows] - start
        # The last and the first record of an even stream are a gap away from the ends.
        gap = (inside.max() - inside.min()) / max(1, len(rows) - 1)
        covered = min(1.0, float((inside.max() - inside.min() + gap) / (end - start)))
        found.append((WindowIndex(index), covered, rows, inside))
    whole = [each for each in found if each[1] >= WHOLE]
    chosen = (whole or found)[-most:]
    return [
        SampleWindow(
            name=settings.window.instant_text(calendar.window_start(index)),
            covered=covered,
            workload=_workload(sample, rows, inside, settings, share, seed, calendar.triggers_of(index)),
        )
        for index, covered, rows, inside in chosen
    ]


def _workload(
    sample: Sample,
    rows: npt.NDArray[np.intp],
    inside: Int64s,
    settings: HistogramSettings,
    share: float,
    seed: int,
    T: int,
) -> FileWorkload:
    """T: triggers of the window. A forecast is for the usual number of triggers, and a longer or shorter window is spread over
    them."""
    every, length = settings.window.trigger_every, settings.calendar.windows.usual
    # Within its own trigger, whatever rounding does: interval t of T begins at the first position not below t / T.
    interval, rest = np.divmod(inside, every)
    begin, end = -(-interval * DAY_MS // T), -(-(interval + 1) * DAY_MS // T)
    position = (begin + rest * (end - begin) // every).astype(np.int32)
    names, user = np.unique(sample.user[rows], return_inverse=True)
    records = sort_records(
        user.astype(np.int32),
        sample.key[rows],
        position,
        len(names),
        sample.values[rows] if sample.values.size else None,
    )
    if share < 1:
        records = scaled(
            records, 1 / share, np.random.default_rng(seed), last=length * DAY_MS // (settings.triggers * every)
        )
    return FileWorkload(name="sample", records=records, key_names=sample.key_names)


def scaled(records: UserRecords, factor: float, rng: np.random.Generator, last: int = DAY_MS) -> UserRecords:
    """Records of `factor` times as many users: every user as often as that, and a random part of them once more.

    last: where in the window records may lie. Raises ConfigurationError where that would be too many.
    """
    if len(records.key) * factor > MOST_COPIES:
        raise ConfigurationError(
            f"sample_share={1 / factor:g}: makes {len(records.key) * factor:,.0f} records of {len(records.key):,}, and a forecast "
            f"takes at most {MOST_COPIES:,}; use a larger share, or a synthetic law"
        )
    copies = np.full(records.users, int(factor), np.int64)
    copies[: round((factor - int(factor)) * records.users)] += 1
    rng.shuffle(copies)
    # A new user for every copy; each has all records of the user that it copies.
    origin = np.repeat(np.arange(records.users), copies)
    user, row = records_of(records, origin)
    moved = rng.uniform(-_JITTER, _JITTER, len(origin)) * last
    moved[np.concatenate(([True], origin[1:] != origin[:-1]))] = 0  # the first copy is the user itself
    time = np.clip(np.abs(records.time[row] + moved[user]), 0, last - 1).astype(np.int32)
    values = None if records.values is None else records.values[row]
    return sort_records(user.astype(np.int32), records.key[row], time, len(origin), values)


def records_of(
    records: UserRecords, users: npt.NDArray[np.int64]
) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    """(places in `users`, rows): all records of each of these users, in the order given; int64[n] each."""
    counts = np.bincount(records.user, minlength=records.users)
    starts = np.concatenate(([0], np.cumsum(counts)))
    sizes = counts[users]
    place = np.repeat(np.arange(len(users)), sizes)
    begins = np.concatenate(([0], np.cumsum(sizes)))[:-1]
    return place, np.arange(len(place)) - np.repeat(begins - starts[users], sizes)


def thinned(window: SampleWindow, share: float, rng: np.random.Generator) -> SampleWindow:
    """A random part of a window's users, scaled up again to as many as before."""
    records = window.workload.records
    stay = np.zeros(records.users, np.bool_)
    stay[rng.permutation(records.users)[: max(1, round(share * records.users))]] = True
    rows = np.flatnonzero(stay[records.user])
    code = np.cumsum(stay) - 1
    part = UserRecords(
        user=code[records.user[rows]].astype(np.int32),
        key=records.key[rows],
        time=records.time[rows],
        users=int(stay.sum()),
        values=None if records.values is None else records.values[rows],
    )
    workload = FileWorkload(
        name=window.workload.name,
        records=scaled(part, records.users / part.users, rng),
        key_names=window.workload.key_names,
    )
    return SampleWindow(name=window.name, covered=window.covered, workload=workload)


def sizes(windows: list[SampleWindow]) -> Iterator[tuple[str, int, int, int]]:
    """(name, records, users, keys with records) of each window."""
    for window in windows:
        records = window.workload.records
        yield window.name, len(records.key), records.users, len(np.unique(records.key))
