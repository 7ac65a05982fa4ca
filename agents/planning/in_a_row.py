"""Windows in a row without Kafka: what one of them has published is remembered by the next.

    spool of a window ──offline.run, remembered keys public from the start──▶ rows of all public keys
        ──smoothing, in each partition──▶ WindowRows ──last trigger──▶ RememberedRows, for the next window

The rules are those of the stages (docs/guarantees/memory.md), and mechanisms/histogram/smoothing.py is the one that they call. As
in offline.py, rows are looked at at the checkpoints of a spool.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from susurrus.agents.histogram.remembered import COUNTING
from susurrus.agents.planning.evidence import Evidence
from susurrus.agents.planning.offline import LatestEstimates, OfflineRun, run, window_noise
from susurrus.agents.planning.spool import Progress, Spool, silent
from susurrus.mechanisms.arrays import Bools, Floats, Int32s
from susurrus.mechanisms.histogram.persistence import LEAST_ROW, persistence_of
from susurrus.mechanisms.histogram.plan import Plan
from susurrus.mechanisms.histogram.registry import built
from susurrus.mechanisms.histogram.smoothing import Smoothing, rates, shown
from susurrus.mechanisms.histogram.strategy import Strategy
from susurrus.mechanisms.noise import WindowNoise
from susurrus.topics.wire.partitioner import partition as partition_of


@dataclass(frozen=True, slots=True, kw_only=True)
class RememberedRows:
    """What a window leaves to the next. keys: bool[keys]. rates, variances: float64[keys, columns], of the measured columns."""

    keys: Bools
    rates: Floats
    variances: Floats

    @classmethod
    def nothing(cls, keys: int, columns: int) -> "RememberedRows":
        """Before the first window."""
        return cls(keys=np.zeros(keys, np.bool_), rates=np.zeros((keys, columns)), variances=np.zeros((keys, columns)))


@dataclass(frozen=True, slots=True, kw_only=True)
class WindowRows:
    """All rows of a release, by key.

    public: bool[keys], keys with a row. shown: bool[keys], those whose row readers see. smoothed: bool[keys, columns], numbers
    that memory has a part in. direct, direct_errors, estimates, std_errors: float64[keys, columns]; the latter two are smoothed
    where `smoothed`, else direct. own, own_errors: float64[keys, columns], of each row's own stream, before any calibration.
    rates, rate_variances: float64[keys, columns], what the next window would be told.
    """

    public: Bools
    shown: Bools
    smoothed: Bools
    direct: Floats
    direct_errors: Floats
    estimates: Floats
    std_errors: Floats
    own: Floats
    own_errors: Floats
    rates: Floats
    rate_variances: Floats


class WindowsInARow:
    """One pipeline over windows in a row, with the plan's `evidence_windows`.

    remember: users of a key's last row, from which on it is remembered; 0: nothing is. smoothed: whether remembered keys have
    smoothed rows, by which some are hidden; otherwise all their rows are shown as they are measured. follows: whether shares follow
    how much has lasted, where the plan's may. partitions: of the release.
    """

    def __init__(
        self,
        plan: Plan,
        key_names: Sequence[bytes],
        *,
        remember: float,
        smoothed: bool = True,
        follows: bool = True,
        partitions: int = 8,
        declared: Bools | None = None,
    ) -> None:
        self._plan, self._follows = plan, follows and remember > 0
        self.remember, self._smooths = remember, smoothed
        self.declared = np.zeros(len(key_names), np.bool_) if declared is None else declared
        self.memory = RememberedRows.nothing(len(key_names), plan.width)
        self.persistence = 0
        """Of the output, in tenths, as the windows so far show it."""
        self.windows = 0
        self._evidence = Evidence(len(key_names), plan.evidence_windows) if plan.evidence_windows > 1 else None
        self._places: Int32s = partition_of(key_names, partitions)
        self._partitions = partitions
        self._counting = [at for at, column in enumerate(plan.columns) if column.kind in COUNTING]
        self.deciding = plan.counting or 0
        """The column that decides what is remembered and shown."""

    @property
    def strategy(self) -> Strategy[Any]:
        """Of the next window."""
        return built(self._plan.at_persistence(self.persistence) if self._follows else self._plan)

    def next(
        self,
        spooled: Spool,
        seed: int,
        *,
        noise: WindowNoise | None = None,
        checked: Callable[[int, WindowRows], None] | None = None,
        progress: Progress = silent,
    ) -> OfflineRun:
        """Runs the next window. noise: another than the seed's. checked: called with (trigger, rows) at each checkpoint."""
        last = spooled.triggers
        kept: list[WindowRows] = []

        def look(trigger: int, latest: LatestEstimates) -> None:
            rows = self._rows(latest)
            if checked is not None:
                checked(trigger, rows)
            if trigger == last:
                kept.append(rows)

        strategy, known = self.strategy, self.memory.keys | self.declared
        done = run(
            strategy,
            spooled,
            window_noise(seed, strategy.plan.digest(), self.windows) if noise is None else noise,
            declared=self.declared,
            remembered=self.memory.keys,
            evidence=self._evidence,
            checked=look,
            progress=progress,
        )
        self.windows += 1
        if self.remember:
            (rows,) = kept
            users = rows.estimates[:, self.deciding]
            large = rows.public & (users >= LEAST_ROW)
            self.persistence = persistence_of(int((large & known).sum()), int(large.sum()))
            self.memory = RememberedRows(
                keys=rows.public & (users >= self.remember), rates=rows.rates, variances=rows.rate_variances
            )
        return done

    def _rows(self, latest: LatestEstimates) -> WindowRows:
        direct, errors = latest.estimates.astype(np.float64), latest.std_errors.copy()
        estimates, std_errors = direct.copy(), errors.copy()
        smoothed = np.zeros(direct.shape, np.bool_)
        left, variances = rates(direct, errors)
        seen = latest.known.copy()
        memory = self.memory
        if self.remember and self._smooths:
            for place in range(self._partitions):
                rows = np.flatnonzero(memory.keys & (self._places == place))
                for column in self._counting:
                    given = (
                        direct[rows, column],
                        errors[rows, column] ** 2,
                        memory.rates[rows, column],
                        memory.variances[rows, column],
                    )
                    fit = Smoothing.fit(*given)
                    if fit is None:
                        continue
                    found, error = fit.rows(*given)
                    # As calibrated rows are: rounding to an integer adds at most a uniform error.
                    estimates[rows, column] = np.rint(found)
                    std_errors[rows, column] = np.sqrt(error**2 + 1 / 12)
                    smoothed[rows, column] = True
                    left[rows, column], variances[rows, column] = fit.rates(*given)
            rows = np.flatnonzero(memory.keys & ~self.declared)
            seen[rows] &= shown(estimates[rows, self.deciding], std_errors[rows, self.deciding])
        own, own_errors = (direct, errors) if latest.direct is None else latest.direct
        return WindowRows(
            public=latest.known.copy(),
            shown=seen,
            smoothed=smoothed,
            direct=direct,
            direct_errors=errors,
            estimates=estimates,
            std_errors=std_errors,
            own=own.astype(np.float64),
            own_errors=own_errors.copy(),
            rates=left,
            rate_variances=variances,
        )
