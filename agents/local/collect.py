"""collect: reports -> report-totals, dead-letter.  Key: none.  State: the last interval this partition has closed.

Collect checks every report (format, threshold in force, a code its randomiser can draw, an interval that is still open).
It adds the good ones up to integers: phase 1 by output bucket, phase 2 by interval and threshold. Reports are private when
they arrive, so only correctness is guarded here: each report counts once.

An interval is closed by a cut (runtime/cuts.py), asked for `lateness` after its end. A tick in the same transaction says so. A
worker that was down for hours makes nothing late.
"""

from collections.abc import Iterator
from dataclasses import astuple
from typing import Any

import numpy as np

from susurrus.agents.kafka.offset import Offset
from susurrus.agents.local.parameters import Intervals, Thresholds, wave_of
from susurrus.agents.local.settings import LocalSettings
from susurrus.agents.runtime.batch import Batch
from susurrus.agents.runtime.commit import Commit, Output
from susurrus.agents.runtime.cuts import Cuts
from susurrus.agents.runtime.dead_letters import DeadLetters
from susurrus.agents.runtime.services import Services
from susurrus.agents.runtime.stage import Stage
from susurrus.agents.runtime.store import Store
from susurrus.agents.runtime.ticks import Written
from susurrus.mechanisms.calendar import Interval
from susurrus.mechanisms.local.estimate import Totals
from susurrus.topics import ledger as ledger_codec
from susurrus.topics import report_totals as totals_codec
from susurrus.topics import reports as report_codec
from susurrus.topics.reason import Reason
from susurrus.topics.report_totals import BUCKETS, ReportTotals

_ROWS_PER_RECORD = 5_000


class Collect(Stage):
    """One reports partition."""

    name = "collect"
    counted = ("in", "phase_1", "phase_2", "late", "dead_letter")

    services: Services[LocalSettings]

    def __init__(self, services: Services[LocalSettings], partition: int) -> None:
        super().__init__(services, partition)
        settings = services.settings
        local = settings.local
        self._topic = services.topic("reports")
        self._intervals = Intervals(local.interval)
        self._lateness = local.lateness
        self._ahead = settings.clock.max_ahead
        self._wave = wave_of(local)
        self._thresholds = Thresholds(services)
        self._closed = self._ticked = Interval(0)
        self._written: Written
        self._cuts = Cuts()
        self._taken = self._committed = Offset(-1)
        self._totals: dict[tuple[int, int], Totals] = {}
        self._first_phase = np.zeros(BUCKETS, np.int64)
        self._letters = DeadLetters(services, partition, stage=self.name, topic=self._topic, keep=False)

    # ---- input -------------------------------------------------------------------------------------------------------

    def begin(self, start: Offset) -> tuple[dict[str, Any], Offset]:
        """The log is read from its start; intervals are open from the beginning of the pipeline on."""
        return {"closed": self._intervals.at(self._first_moment()) - 1, "written": [0]}, start

    def resume(self, store: Store, meta: dict[str, Any], position: Offset) -> None:
        """The closed intervals of the last commit."""
        self._forget()
        self._cuts = Cuts()
        self._closed = self._ticked = Interval(int(meta["closed"]))
        totals = self.services.topic("report-totals")
        self._written = Written(self.partition, totals, meta["written"], config_digest=self.services.config_digest)
        self._taken = self._committed = position

    def _first_moment(self) -> int:
        first = self.services.settings.start.first_window
        if first is not None:
            return first
        epoch = self.services.ledger.records().get("epoch")
        return epoch.created if isinstance(epoch, ledger_codec.Epoch) else 0

    def _forget(self) -> None:
        self._totals = {}
        self._first_phase = np.zeros(BUCKETS, np.int64)
        self._letters.clear()

    def take(self, batch: Batch) -> None:
        """Check a fetch and add it up."""
        if batch.records:
            self._add(batch.records)
        self._taken = batch.end

    def _add(self, records: list[Any]) -> None:
        reports, good = report_codec.decode([record.value for record in records])
        reason = np.full(len(records), Reason.NOT_A_REPORT, np.int64)
        rows = np.flatnonzero(good)
        interval = reports.interval // self._intervals.length
        why = np.full(rows.size, Reason.OK, np.int64)

        def refuse(which: np.ndarray[Any, np.dtype[np.bool_]], cause: Reason) -> None:
            why[which & (why == Reason.OK)] = cause

        stamps = np.fromiter([records[row].timestamp for row in rows.tolist()], np.int64, rows.size)
        refuse(interval > (stamps + self._ahead) // self._intervals.length, Reason.IN_FUTURE)
        first = reports.phase == 1
        refuse(first & (reports.code >= self._wave.codes), Reason.IMPOSSIBLE_CODE)
        for version in np.unique(reports.threshold_version[~first]).tolist():
            named = ~first & (reports.threshold_version == version)
            if self._thresholds.get(version) is None:
                self._thresholds.refresh()
            found = self._thresholds.get(version)
            # The previous one still counts: its reports may have been under way when the new one came.
            if found is None or version < self._thresholds.latest - 1:
                refuse(named, Reason.WRONG_THRESHOLD)
            else:
                refuse(named & ~found[1].allowed(reports.code), Reason.IMPOSSIBLE_CODE)
        refuse(~first & (interval <= self._closed), Reason.LATE)
        reason[rows] = why

        fine = why == Reason.OK
        self._first_phase += self._wave.bucket_counts(reports.code[first & fine], BUCKETS)
        chosen = np.flatnonzero(~first & fine)
        if chosen.size:
            pairs = np.stack((interval[chosen], reports.threshold_version[chosen]), axis=1)
            distinct, group = np.unique(pairs, axis=0, return_inverse=True)
            group = group.ravel()
            order = np.argsort(group, kind="stable")
            bounds = np.searchsorted(group[order], np.arange(len(distinct) + 1))
            for number, (at, version) in enumerate(distinct.tolist()):
                codes = reports.code[chosen[order[bounds[number] : bounds[number + 1]]]]
                self._totals[at, version] = self._totals.get((at, version), Totals()) + Totals.of(codes)
        counters = self.counters
        counters["in"] += len(records)
        counters["phase_1"] += int((first & fine).sum())
        counters["phase_2"] += int(chosen.size)
        counters["late"] += int((reason == Reason.LATE).sum())
        counters["dead_letter"] += self._letters.refuse(records, reason)

    # ---- output ------------------------------------------------------------------------------------------------------

    def commits(self, now: int) -> Iterator[Commit]:
        """One commit for everything added up, with a tick if intervals are over."""
        over = Interval(self._intervals.at(now - self._lateness) - 1)
        if not self._cuts.ahead and self._cuts.wanted(over, self._closed):
            self._cuts.asked(over, self.services.clients.watermarks(self._topic, self.partition)[1])
        self._closed = self._cuts.passed(self._taken, self._closed)
        if self._taken == self._committed and self._closed == self._ticked:
            return
        messages = [{"value": totals_codec.encode(block)} for block in self._blocks()]
        outputs = [Output(self.services.topic("report-totals"), 0, messages)] if messages else []
        self._written.count(outputs)
        if self._closed > self._ticked:
            outputs += self._written.ticks(self._closed)
        outputs += self._letters.outputs()
        self._forget()
        self._ticked, self._committed = self._closed, self._taken
        yield Commit(
            position=self._taken, meta={"closed": self._closed, "written": self._written.to_meta()}, outputs=outputs
        )

    def _blocks(self) -> Iterator[ReportTotals]:
        rows = sorted(self._totals.items())
        first_phase = self._first_phase
        if not rows and not first_phase.any():
            return
        for start in range(0, len(rows) or 1, _ROWS_PER_RECORD):
            yield self._block(rows[start : start + _ROWS_PER_RECORD], first_phase)
            first_phase = np.zeros(BUCKETS, np.int64)

    def _block(self, rows: list[tuple[tuple[int, int], Totals]], first_phase: Any) -> ReportTotals:
        table = np.array([(*key, *astuple(totals)) for key, totals in rows], dtype=np.int64).reshape(
            len(rows), len(totals_codec.COLUMNS)
        )
        columns = dict(zip(totals_codec.COLUMNS, table.T, strict=True))
        return ReportTotals(partition=self.partition, **columns, first_phase=first_phase)

    def stall(self, now: int) -> str | None:
        """What keeps the next interval open."""
        return self._cuts.stall(self._taken)

    def report(self) -> dict[str, Any]:
        """Counters, and the last of the pipeline's trigger intervals that has closed as a whole."""
        interval = self.services.calendar.interval_at(self._intervals.end(self._closed)) - 1
        return {"counters": dict(self.counters), "interval": interval}
