"""collect: reports -> report-totals, dead-letter.  Key: none.  State: the last interval this partition has closed.

Collect checks every report (format, threshold in force, a code its randomiser can draw, an interval that is still open).
It adds the good ones up to integers: phase 1 by output bucket, phase 2 by interval and threshold. Reports are private when
they arrive. Collect only has to count each report once.

A cut (runtime/cuts.py) closes an interval `lateness` after its end, and a tick in the same transaction says so. No report is
late because a worker was down.
"""

import time
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import astuple
from typing import Any

import numpy as np

from susurrus.agents.finding import Finding
from susurrus.agents.formats import decoder_of
from susurrus.agents.formats.reading import of_values
from susurrus.agents.formats.waiting import Intake
from susurrus.agents.kafka.offset import Offset
from susurrus.agents.local.judging import ReportJudge
from susurrus.agents.local.reports import PATHS, ReportFormat, joined
from susurrus.agents.local.settings import LocalSettings
from susurrus.agents.local.stage import LocalStage, TimeIntervals
from susurrus.agents.local.thresholds import Thresholds
from susurrus.agents.runtime.batch import Batch
from susurrus.agents.runtime.commit import Commit, Output
from susurrus.agents.runtime.cuts import Cuts
from susurrus.agents.runtime.dead_letters import DeadLetters
from susurrus.agents.runtime.services import Services
from susurrus.agents.runtime.store import Store
from susurrus.agents.runtime.ticks import Written
from susurrus.mechanisms.calendar import Interval
from susurrus.mechanisms.local.estimate import Totals
from susurrus.topics import ledger as ledger_codec
from susurrus.topics import report_totals as totals_codec
from susurrus.topics.records.reason import Reason
from susurrus.topics.records.table import timestamps_of
from susurrus.topics.report_totals import BUCKETS, ReportTotals

_ROWS_PER_RECORD = 5_000


class CollectStage(LocalStage):
    """One reports partition."""

    name = "collect"
    counted = ("in", "phase_1", "phase_2", "late", "dead_letter")

    def __init__(
        self, services: Services[LocalSettings], partition: int, store: Store, meta: dict[str, Any], position: Offset
    ) -> None:
        """The meta record says which intervals the last commit had closed, and what was written."""
        super().__init__(services, partition, store, meta, position)
        self._topic = services.topic("reports")
        self._intake = Intake(
            of_values(ReportFormat(decoder_of(services.settings.input, PATHS))),
            lambda chunks, records: joined(chunks),
            position=position,
            stage=self.name,
            topic=self._topic,
            partition=partition,
            watermarks=services.clients.watermarks,
        )
        thresholds = Thresholds(services.clients, services.topic("threshold"))
        self._judge = ReportJudge(services.settings, thresholds)
        self._ticked = self._closed
        totals = services.topic("report-totals")
        self._written = Written(partition, totals, meta["written"], config_digest=services.config_digest)
        self._cuts = Cuts()
        self._totals: defaultdict[tuple[int, int], Totals] = defaultdict(Totals)
        self._letters = DeadLetters(services, partition, stage=self.name, topic=self._topic, keep=False)

    # ---- input -------------------------------------------------------------------------------------------------------

    @classmethod
    def begin(cls, services: Services[LocalSettings], partition: int, start: Offset) -> tuple[dict[str, Any], Offset]:
        """The log is read from its start, and every interval from the beginning of the pipeline on is open."""
        closed = TimeIntervals(services.settings.local.interval).at(_first_moment(services)) - 1
        return {"closed": closed, "written": [0]}, start

    def close(self) -> None:
        """Close the connections of the input's format."""
        self._intake.close()

    def take(self, batch: Batch) -> None:
        """Check the reports of a batch and add them up."""
        waited = self._intake.pending
        self._intake.take(batch.fetched, batch.end)
        if not waited:
            self._add_held(int(time.time() * 1000))

    def _add_held(self, now: int) -> None:
        """Add up the held reports, up to the first that waits for its schema."""
        records, payloads, _ = self._intake.decode(now)
        self._taken, self.full = Offset(self._intake.position), self._intake.pending
        if records:
            self._add(records, payloads, now)

    def _add(self, records: Sequence[Any], payloads: list[bytes | None], now: int) -> None:
        stamps = timestamps_of(records)
        reports, reason = self._judge.judged(payloads, stamps, now=now, closed=self._closed)
        rows = np.flatnonzero(reason != Reason.NOT_A_REPORT)
        interval, first, why = reports.interval // self._intervals.length, reports.phase == 1, reason[rows]

        fine = why == Reason.OK
        self._first_phase += self._wave.bucket_counts(reports.code[first & fine], BUCKETS)
        chosen = np.flatnonzero(~first & fine)
        if chosen.size:
            pairs = np.stack((interval[chosen], reports.threshold_version[chosen]), axis=1)
            order = np.lexsort(pairs.T[::-1])  # by interval, then by version
            distinct, starts = np.unique(pairs[order], axis=0, return_index=True)
            groups = np.split(reports.code[chosen[order]], starts[1:])
            for (at, version), codes in zip(distinct.tolist(), groups, strict=True):
                self._totals[at, version] += Totals.of(codes)
        counters = self.counters
        counters["in"] += len(records)
        counters["phase_1"] += int((first & fine).sum())
        counters["phase_2"] += int(chosen.size)
        counters["late"] += int((reason == Reason.LATE).sum())
        counters["dead_letter"] += self._letters.refuse(records, reason)

    # ---- output ------------------------------------------------------------------------------------------------------

    def commits(self, now: int) -> Iterator[Commit]:
        """One commit for everything that was added up, with a tick if intervals are over."""
        if self._intake.due:
            self._add_held(now)
        over = Interval(self._intervals.at(now - self.services.settings.local.lateness) - 1)
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
        self._totals = defaultdict(Totals)
        self._first_phase = np.zeros(BUCKETS, np.int64)
        self._ticked, self._committed = self._closed, self._taken
        yield Commit(
            position=self._taken, meta={"closed": self._closed, "written": self._written.to_meta()}, outputs=outputs
        )

    def _blocks(self) -> Iterator[ReportTotals]:
        rows = [(*key, *astuple(totals)) for key, totals in sorted(self._totals.items())]
        table = np.array(rows, np.int64).reshape(-1, len(totals_codec.COLUMNS))
        first_phase = self._first_phase
        for start in range(0, len(table) or int(first_phase.any()), _ROWS_PER_RECORD):
            columns = dict(zip(totals_codec.COLUMNS, table[start : start + _ROWS_PER_RECORD].T, strict=True))
            yield ReportTotals(partition=self.partition, **columns, first_phase=first_phase)
            first_phase = np.zeros(BUCKETS, np.int64)

    def stall(self, now: int) -> Finding | None:
        """What keeps the next interval open: a report without its schema, or the log."""
        return self._intake.waits or self._cuts.stall(self._taken, self._intake.place)


def _first_moment(services: Services[LocalSettings]) -> int:
    first = services.settings.start.first_window
    if first is not None:
        return first
    epoch = services.ledger.records().get("epoch")
    return epoch.created if isinstance(epoch, ledger_codec.Epoch) else 0
