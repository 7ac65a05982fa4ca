"""Which reports count, and why the others do not: collect asks it, and `susurrus try` does (decisions.py).

A report is decided by itself, by its record's stamp, by the thresholds that were published, and by which intervals are closed.
"""

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from susurrus.agents.local.settings import LocalSettings
from susurrus.agents.local.thresholds import Thresholds
from susurrus.mechanisms.arrays import Bools, Int64s
from susurrus.mechanisms.local.wave import SquareWave
from susurrus.topics import reports as report_codec
from susurrus.topics.records.reason import Reason
from susurrus.topics.reports import Reports


class ReportJudge:
    """Decides packed reports with the settings of a pipeline."""

    def __init__(self, settings: LocalSettings, thresholds: Thresholds) -> None:
        local = settings.local
        self._wave = SquareWave(local.epsilon, local.bound, local.scale)
        self._thresholds, self._ahead, self._length = thresholds, settings.clock.max_ahead, local.interval

    def judged(
        self, payloads: Sequence[bytes | None], stamps: Int64s, *, now: int, closed: int | Int64s
    ) -> tuple[Reports, npt.NDArray[np.int64]]:
        """(the well-formed reports in order, int64[n] the Reason of each payload).

        payloads: n packed reports, None for what is none. stamps: int64[n], of their records, in ms. now: ms. closed: the last
        interval that is closed, for all or int64[n] for each. Raises Refusal where a published threshold cannot be read.
        """
        reports, good = report_codec.decode(payloads)
        reason = np.full(len(payloads), Reason.NOT_A_REPORT, np.int64)
        rows = np.flatnonzero(good)
        interval = reports.interval // self._length
        why = np.full(rows.size, Reason.OK, np.int64)

        def refuse(which: Bools, cause: Reason) -> None:
            why[which & (why == Reason.OK)] = cause

        # Anyone may forge a stamp. An interval years ahead would stay in the server's state, all of which is in each commit.
        refuse(interval > (np.minimum(stamps[rows], now) + self._ahead) // self._length, Reason.IN_FUTURE)
        first = reports.phase == 1
        refuse(first & (reports.code >= self._wave.codes), Reason.IMPOSSIBLE_CODE)
        # One reading for all: reports may name any number of versions that there never were.
        in_force = self._thresholds.in_force(np.unique(reports.threshold_version[~first]).tolist())
        refuse(~first & ~np.isin(reports.threshold_version, list(in_force)), Reason.WRONG_THRESHOLD)
        for version, perturber in in_force.items():
            named = ~first & (reports.threshold_version == version)
            refuse(named & ~perturber.allowed(reports.code), Reason.IMPOSSIBLE_CODE)
        refuse(~first & (interval <= (closed if isinstance(closed, int) else closed[rows])), Reason.LATE)
        reason[rows] = why
        return reports, reason
