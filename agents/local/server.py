"""server: report-totals -> threshold, estimate.  Key: interval.

State: totals of open intervals, phase 1 counts, thresholds, filter.

Phase 1: when `holdout` phase 1 reports are in, server fits their distribution, chooses theta and the perturber, and
publishes them with their provenance; clients switch by themselves. Phase 2: when every reports partition has closed an
interval, server publishes its sum, mean, count and standard errors, the filtered sum, and the running sum: any range of
intervals is the difference of two running sums. With `refresh` a new threshold follows from the share of reports that
stays phase 1.

All of the state is small, so it is in the meta record: what was taken and what was published commit together, exactly
once.
"""

from collections.abc import Iterator
from dataclasses import asdict, astuple
from typing import Any

import numpy as np

from susurrus.agents.kafka.offset import Offset
from susurrus.agents.local.parameters import Intervals, wave_of
from susurrus.agents.local.settings import LocalSettings
from susurrus.agents.runtime.batch import Batch
from susurrus.agents.runtime.commit import Commit, Output
from susurrus.agents.runtime.services import Services
from susurrus.agents.runtime.stage import Stage
from susurrus.agents.runtime.store import Store
from susurrus.agents.runtime.ticks import Incoming
from susurrus.mechanisms.calendar import Interval
from susurrus.mechanisms.kalman import Filtered, IntervalBank
from susurrus.mechanisms.local.estimate import Estimate, Totals, combine, estimate
from susurrus.mechanisms.local.hybrid import Hybrid
from susurrus.mechanisms.local.shape import fit_distribution
from susurrus.mechanisms.local.threshold import choose_threshold, round_up
from susurrus.topics import estimate as estimate_codec
from susurrus.topics import ledger as ledger_codec
from susurrus.topics import report_totals as totals_codec
from susurrus.topics import threshold as threshold_codec
from susurrus.topics import tick as tick_codec
from susurrus.topics.histogram import Measured
from susurrus.topics.packing import Kind, kind_of
from susurrus.topics.report_totals import BUCKETS
from susurrus.topics.threshold import Threshold
from susurrus.topics.timestamps import format_time

METHOD = "log-wave-shape-1"
_STATE_MILLISECONDS = 500
_BEFORE = Interval(-(1 << 62))
"""Before every interval that a source can tick."""


class Server(Stage):
    """Partition 0 of report-totals; others (the embedded broker has some) stay empty."""

    name = "server"
    counted = ("phase_1", "phase_2", "expired", "thresholds", "intervals")

    services: Services[LocalSettings]

    def __init__(self, services: Services[LocalSettings], partition: int) -> None:
        super().__init__(services, partition)
        settings = services.settings
        self._local = settings.local
        self._intervals = Intervals(self._local.interval)
        self._sources = settings.topics.by_user_partitions
        self._wave = wave_of(self._local)
        self._taken = self._committed = Offset(-1)
        self._committed_at = 0
        self._incoming: Incoming
        self._closed: Interval | None = None
        self._first_phase = np.zeros(BUCKETS, np.int64)
        self._open: dict[Interval, dict[int, Totals]] = {}
        self._thresholds: dict[int, Threshold] = {}
        self._perturbers: dict[int, Hybrid] = {}
        self._running = Estimate(0, 0.0, 0.0)
        self._pooled: tuple[int, Totals] = (0, Totals())
        self._bank = IntervalBank()

    # ---- state -------------------------------------------------------------------------------------------------------

    def begin(self, start: Offset) -> tuple[dict[str, Any], Offset]:
        """Nothing is known. Nothing was committed, so nothing may have been deleted either: a log that starts later is refused."""
        meta = {
            "ticks": {},
            "received": {},
            "closed": None,
            "first_phase": [0] * BUCKETS,
            "open": {},
            "thresholds": {},
            "running": [0, 0.0, 0.0],
            "pooled": [0, [0, 0, 0, 0, 0]],
            "bank": IntervalBank().state(),
        }
        return meta, Offset(0)

    def resume(self, store: Store, meta: dict[str, Any], position: Offset) -> None:
        """Everything is in the meta record."""
        self._taken = self._committed = position
        self._incoming = Incoming(
            f"topic={self.services.topic('report-totals')} partition={self.partition}",
            config_digest=self.services.config_digest,
            way_out=self.services.ledger.way_out,
            ticks=meta["ticks"],
            sources=((_BEFORE, self._sources),),
            received=meta["received"],
        )
        self._closed = None if meta["closed"] is None else Interval(int(meta["closed"]))
        self._first_phase = np.array(meta["first_phase"], np.int64)
        self._open = {
            Interval(int(interval)): {int(version): Totals(*numbers) for version, numbers in versions.items()}
            for interval, versions in meta["open"].items()
        }
        self._thresholds = {int(version): Threshold(**fields) for version, fields in meta["thresholds"].items()}
        self._perturbers = {version: Hybrid(t.epsilon, t.alpha) for version, t in self._thresholds.items()}
        self._running = Estimate(*meta["running"])
        version, numbers = meta["pooled"]
        self._pooled = (int(version), Totals(*numbers))
        self._bank = IntervalBank.restored(meta["bank"])

    def _meta(self) -> dict[str, Any]:
        ticks, _, received = self._incoming.claim(self._taken, _BEFORE)
        return {
            "ticks": ticks,
            "received": received,
            "closed": self._closed,
            "first_phase": self._first_phase.tolist(),
            "open": {
                interval: {version: astuple(totals) for version, totals in versions.items()}
                for interval, versions in self._open.items()
            },
            "thresholds": {version: asdict(threshold) for version, threshold in self._thresholds.items()},
            "running": astuple(self._running),
            "pooled": [self._pooled[0], astuple(self._pooled[1])],
            "bank": self._bank.state(),
        }

    # ---- input -------------------------------------------------------------------------------------------------------

    def take(self, batch: Batch) -> None:
        """Add up what the partitions have added up. Reports under a forgotten threshold are counted only."""
        for record in batch.records:
            if kind_of(record.value) is Kind.TICK:
                self._incoming.tick(tick_codec.decode(record.value), record.offset)
                continue
            block = totals_codec.decode(record.value)
            self._incoming.record(block.partition, record.offset)
            self._first_phase += block.first_phase
            self.counters["phase_1"] += int(block.first_phase.sum())
            rows = zip(*(getattr(block, name).tolist() for name in totals_codec.COLUMNS), strict=True)
            for interval, version, *numbers in rows:
                totals = Totals(*numbers)
                if version not in self._thresholds:  # two versions old: collect had not heard of the newest yet
                    self.counters["expired"] += totals.count
                    continue
                self.counters["phase_2"] += totals.count
                versions = self._open.setdefault(Interval(interval), {})
                versions[version] = versions.get(version, Totals()) + totals
        self._taken = batch.end

    # ---- output ------------------------------------------------------------------------------------------------------

    def commits(self, now: int) -> Iterator[Commit]:
        """Commit a threshold when enough phase 1 reports are in, the intervals that all partitions have closed, and, at
        times, the state alone.
        """
        outputs = [*self._new_threshold(now), *self._close_intervals()]
        waited = now - self._committed_at >= _STATE_MILLISECONDS
        if outputs or (self._taken > self._committed and waited):
            self._committed, self._committed_at = self._taken, now
            yield Commit(position=self._taken, meta=self._meta(), outputs=outputs)

    def _new_threshold(self, now: int) -> list[Output]:
        local = self._local
        version = max(self._thresholds, default=0)
        if version and (local.refresh is None or now < self._thresholds[version].published + local.refresh):
            return []
        collected = int(self._first_phase.sum())
        if collected < local.holdout:
            return []
        chosen = choose_threshold(fit_distribution(self._wave, self._first_phase), local.epsilon, local.horizon)
        threshold = Threshold(
            version=version + 1,
            theta=min(local.bound, round_up(chosen.theta)),
            epsilon=local.epsilon,
            alpha=chosen.alpha,
            reports=collected,
            phase1_epsilon=local.epsilon,
            bound=local.bound,
            scale=local.scale,
            method=METHOD,
            epoch=self.services.ledger.epoch,
            published=now,
            phase1_share=local.phase1_share,
            horizon=local.horizon,
            expected_truncation=chosen.expected_truncation,
        )
        self._thresholds[threshold.version] = threshold
        self._perturbers[threshold.version] = Hybrid(threshold.epsilon, threshold.alpha)
        needed = {number for versions in self._open.values() for number in versions} | {version, threshold.version}
        for old in self._thresholds.keys() - needed:
            del self._thresholds[old], self._perturbers[old]
        self._first_phase = np.zeros(BUCKETS, np.int64)
        self.counters["thresholds"] += 1
        messages = [{"key": key, "value": value} for key, value in threshold_codec.encode(threshold)]
        outputs = [Output(self.services.topic("threshold"), 0, messages)]
        if threshold.version == 1:
            promise = ledger_codec.EventLevel(
                partition=0, method="topl", epsilon=local.epsilon, delta=0.0, unit="report"
            )
            outputs.append(self.services.ledger.output(promise))
        return outputs

    def _close_intervals(self) -> list[Output]:
        closed = _BEFORE if self._closed is None else self._closed
        ready = self._incoming.now.ready(closed)
        if ready <= closed:
            return []
        messages = []
        for interval in sorted(interval for interval in self._open if interval <= ready):
            key, value = estimate_codec.encode(self._estimate(interval, self._open.pop(interval)))
            messages.append({"key": key, "value": value, "timestamp": self._intervals.end(interval)})
        self._closed = ready
        return [Output(self.services.topic("estimate"), 0, messages)] if messages else []

    def _estimate(self, interval: Interval, versions: dict[int, Totals]) -> estimate_codec.Estimate:
        parts = {
            version: estimate(totals, self._thresholds[version].theta, self._perturbers[version])
            for version, totals in versions.items()
        }
        found = combine(parts.values())
        self._running = combine((self._running, found))
        self.counters["intervals"] += 1
        newest = max(parts)
        theta = self._thresholds[newest].theta
        filtered = self._filter(newest, versions[newest], parts[newest]) if len(parts) == 1 else None
        return estimate_codec.Estimate(
            interval_start=format_time(self._intervals.start(interval)),
            interval_end=format_time(self._intervals.end(interval)),
            count=found.count,
            sum=Measured(found.sum, found.standard_error),
            mean=Measured(found.mean, found.mean_standard_error) if found.count else None,
            running_sum=Measured(self._running.sum, self._running.standard_error),
            filtered_sum=None if filtered is None else Measured(filtered.sum, filtered.standard_error),
            threshold_version=newest,
            theta=theta,
            epsilon=self._local.epsilon,
            epoch=self.services.ledger.epoch,
        )

    def _filter(self, version: int, totals: Totals, plain: Estimate) -> Filtered | None:
        """The interval's filtered sum. A new threshold clips differently, so its filter begins afresh."""
        if version != self._pooled[0]:
            self._pooled, self._bank = (version, Totals()), IntervalBank()
        pooled = self._pooled[1] + totals
        self._pooled = (version, pooled)
        # The noise's variance per report from all intervals so far: from this interval alone it would depend on the estimate.
        per_report = (
            estimate(pooled, self._thresholds[version].theta, self._perturbers[version]).variance / pooled.count
        )
        if not per_report > 0:
            return None
        return self._bank.one(float(plain.count), plain.mean, per_report / plain.count)

    def stall(self, now: int) -> str | None:
        """Which partition holds the next interval back."""
        waiting = [source for source in range(self._sources) if source not in self._incoming.now.ticks]
        if self._open and waiting:
            return f"intervals wait for reports partition {', '.join(map(str, waiting[:8]))}"
        return None

    def report(self) -> dict[str, Any]:
        """Counters, and the last of the pipeline's trigger intervals that is published as a whole."""
        facts: dict[str, Any] = {"counters": dict(self.counters)}
        if self._closed is not None:
            facts["interval"] = self.services.calendar.interval_at(self._intervals.end(self._closed)) - 1
        return facts
