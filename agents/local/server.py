"""server: report-totals -> threshold, estimate.  Key: interval.

State: totals of open intervals, phase 1 counts, thresholds, filter, levels.

Phase 1: when `holdout` phase 1 reports are in, server fits their distribution, chooses theta and the perturber, and
publishes them with their provenance. Clients switch by themselves. Phase 2: when every reports partition has closed an
interval, server publishes its sum, mean, count and standard errors, the filtered sum, and the running sum. Any range of
intervals is the difference of two running sums. With `follow` a new theta is published when the level of the means asks for
it. With `refresh` a new threshold is chosen from the share of reports that stays phase 1.

The state is small, so all of it is in the meta record: one commit carries what was taken and what was published.
"""

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import asdict, astuple, replace
from functools import lru_cache
from typing import Any

import numpy as np

from susurrus.agents.finding import Finding, waits
from susurrus.agents.kafka.offset import Offset
from susurrus.agents.local.settings import LocalSettings
from susurrus.agents.local.stage import BEFORE, LocalStage
from susurrus.agents.runtime.batch import Batch
from susurrus.agents.runtime.commit import Commit, Output, ReleasedRows
from susurrus.agents.runtime.services import Services
from susurrus.agents.runtime.store import Store
from susurrus.agents.runtime.ticks import Incoming
from susurrus.mechanisms.calendar import Interval
from susurrus.mechanisms.local.estimate import Estimate, Totals, combine
from susurrus.mechanisms.local.filter import MeanFilter, hausman
from susurrus.mechanisms.local.hybrid import Hybrid
from susurrus.mechanisms.local.level import LevelFollower
from susurrus.mechanisms.local.shape import fit_distribution
from susurrus.mechanisms.local.threshold import choose_threshold, round_up
from susurrus.topics import estimate as estimate_codec
from susurrus.topics import ledger as ledger_codec
from susurrus.topics import report_totals as totals_codec
from susurrus.topics import threshold as threshold_codec
from susurrus.topics import tick as tick_codec
from susurrus.topics.histogram import Measured
from susurrus.topics.report_totals import BUCKETS
from susurrus.topics.threshold import ThresholdRecord
from susurrus.topics.wire.packing import Kind, kind_of
from susurrus.topics.wire.public_rows import PublicRows
from susurrus.topics.wire.timestamps import format_time

METHOD = "log-wave-shape-2"
FOLLOWED = "level-1"
"""Methods of thresholds: fitted to phase 1, or moved from there with the level."""
_STATE_MILLISECONDS = 500
_perturber = lru_cache(maxsize=16)(Hybrid)


class ServerStage(LocalStage):
    """Partition 0 of report-totals. Other partitions (the embedded broker has some) stay empty."""

    name = "server"
    counted = ("phase_1", "phase_2", "expired", "thresholds", "intervals")

    def __init__(
        self, services: Services[LocalSettings], partition: int, store: Store, meta: dict[str, Any], position: Offset
    ) -> None:
        """All of the state is in the meta record."""
        super().__init__(services, partition, store, meta, position)
        self._local = services.settings.local
        self._sources = services.settings.topics.by_user_partitions
        self._committed_at = 0
        self._incoming = Incoming(
            f"topic={services.topic('report-totals')} partition={partition}",
            config_digest=services.config_digest,
            way_out=services.ledger.way_out,
            ticks=meta["ticks"],
            sources=((BEFORE, self._sources),),
            received=meta["received"],
        )
        self._open: dict[Interval, defaultdict[int, Totals]] = {
            Interval(int(interval)): defaultdict(Totals, {int(v): Totals(*numbers) for v, numbers in versions.items()})
            for interval, versions in meta["open"].items()
        }
        self._thresholds = {int(version): ThresholdRecord(**fields) for version, fields in meta["thresholds"].items()}
        self._running = Estimate(*meta["running"])
        if "filter" not in meta:  # as written before theta followed the level: it follows from the next fit on
            meta = {**meta, **self._earlier(meta["pooled"][0], meta["pooled"][1], meta["bank"])}
        self._filter = MeanFilter.restored(meta["filter"])
        self._fitted = int(meta["fitted"])
        self._follower = None if meta["follower"] is None else self._followed_by(meta["follower"])

    # ---- state -------------------------------------------------------------------------------------------------------

    @classmethod
    def begin(cls, services: Services[LocalSettings], partition: int, start: Offset) -> tuple[dict[str, Any], Offset]:
        """Nothing is known. Records are deleted from the input only behind commits: a log that begins later is refused."""
        meta: dict[str, Any] = {
            "ticks": {},
            "received": {},
            "closed": None,
            "open": {},
            "thresholds": {},
            "running": astuple(Estimate(0, 0.0, 0.0)),
            "filter": MeanFilter().state(),
            "fitted": 0,
            "follower": None,
        }
        return meta, Offset(0)

    def _state(self) -> dict[str, Any]:
        return {
            "closed": None if self._closed == BEFORE else self._closed,
            "first_phase": self._first_phase.tolist(),
            "open": {
                interval: {version: astuple(totals) for version, totals in versions.items()}
                for interval, versions in self._open.items()
            },
            "thresholds": {version: asdict(threshold) for version, threshold in self._thresholds.items()},
            "running": astuple(self._running),
            "filter": self._filter.state(),
            "fitted": self._fitted,
            "follower": None if self._follower is None else self._follower.state(),
        }

    def _followed_by(self, state: Any) -> LevelFollower:
        newest = self._thresholds[max(self._thresholds)]
        return LevelFollower.restored(state, _perturber(newest.epsilon, newest.alpha), newest.horizon)

    def _earlier(self, version: int, numbers: list[int], bank: dict[str, Any]) -> dict[str, Any]:
        """What an earlier release's state says in this one's words."""
        pooled = [[self._thresholds[version].alpha, *numbers]] if version in self._thresholds else []
        fitted = max((threshold.published for threshold in self._thresholds.values()), default=0)
        return {"filter": {"bank": bank, "pooled": pooled}, "fitted": fitted, "follower": None}

    # ---- input -------------------------------------------------------------------------------------------------------

    def take(self, batch: Batch) -> None:
        """Add up the totals of the partitions. Reports under a forgotten threshold are only counted."""
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
                self._open.setdefault(Interval(interval), defaultdict(Totals))[version] += totals
        self._taken = batch.end

    # ---- output ------------------------------------------------------------------------------------------------------

    def commits(self, now: int) -> Iterator[Commit]:
        """Commit a new threshold, the intervals that all partitions have closed, and now and then the state alone."""
        estimates = self._close_intervals()
        threshold = self._new_threshold(now) or (self._followed(now) if estimates else [])
        outputs = [*threshold, *estimates]
        waited = now - self._committed_at >= _STATE_MILLISECONDS
        if outputs or (self._taken > self._committed and waited):
            self._committed, self._committed_at = self._taken, now
            ticks, _, received = self._incoming.claim(self._taken, BEFORE)
            meta = {"ticks": ticks, "received": received, **self._state()}
            commit = Commit(position=self._taken, meta=meta, outputs=outputs, publishes=bool(outputs))
            if threshold:
                commit.released.append(ReleasedRows(what=f"threshold {max(self._thresholds)}", rows=1))
            for output in estimates:
                end = format_time(self._intervals.end(self._closed))
                commit.released.append(ReleasedRows(what=f"intervals up to {end}", rows=len(output.messages)))
            yield commit

    def _new_threshold(self, now: int) -> list[Output]:
        """The threshold that phase 1 asks for: the first one, and with `refresh` the later ones."""
        local = self._local
        version = max(self._thresholds, default=0)
        if version and (local.refresh is None or now < self._fitted + local.refresh or not self._settled(now)):
            return []
        collected = int(self._first_phase.sum())
        if collected < local.holdout:
            return []
        distribution = fit_distribution(self._wave, self._first_phase)
        chosen = choose_threshold(distribution, local.epsilon, local.horizon)
        threshold = ThresholdRecord(
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
        self._first_phase = np.zeros(BUCKETS, np.int64)
        self._fitted = now
        if local.follow:
            self._follower = LevelFollower(
                distribution, _perturber(threshold.epsilon, threshold.alpha), threshold.horizon
            )
        outputs = self._publish(threshold)
        if threshold.version == 1:
            promise = ledger_codec.EventLevel(
                partition=0, method="topl", epsilon=local.epsilon, delta=0.0, unit="report"
            )
            outputs.append(self.services.ledger.output(promise))
        return outputs

    def _followed(self, now: int) -> list[Output]:
        """The threshold that the level asks for, with `follow`."""
        if self._follower is None or not self._settled(now):
            return []
        newest = self._thresholds[max(self._thresholds)]
        chosen = self._follower.proposal(newest.theta)
        theta = newest.theta if chosen is None else min(newest.bound, round_up(chosen.theta))
        if chosen is None or theta == newest.theta:
            return []
        return self._publish(
            replace(
                newest,
                version=newest.version + 1,
                theta=theta,
                method=FOLLOWED,
                published=now,
                expected_truncation=chosen.expected_truncation,
            )
        )

    def _settled(self, now: int) -> bool:
        """Whether no report under the version before the newest can still be in time: a third one would refuse it."""
        newest = self._thresholds[max(self._thresholds)]
        return now >= newest.published + self._local.interval + self._local.lateness

    def _publish(self, threshold: ThresholdRecord) -> list[Output]:
        self._thresholds[threshold.version] = threshold
        needed = {number for versions in self._open.values() for number in versions}
        for old in self._thresholds.keys() - needed - {threshold.version - 1, threshold.version}:
            del self._thresholds[old]
        self.counters["thresholds"] += 1
        messages = [{"key": key, "value": value} for key, value in threshold_codec.encode(threshold)]
        return [Output(self.services.topic("threshold"), 0, messages)]

    def _close_intervals(self) -> list[Output]:
        ready = self._incoming.now.ready(self._closed)
        if ready <= self._closed:
            return []
        intervals = sorted(interval for interval in self._open if interval <= ready)
        rows = [estimate_codec.encode(self._estimate(interval, self._open.pop(interval))) for interval in intervals]
        self._closed = ready
        if not rows:
            return []
        keys, values = zip(*rows, strict=True)
        topic, stamps = self.services.topic("estimate"), map(self._intervals.end, intervals)
        [messages] = self.services.publisher.messages([topic], keys, PublicRows.of_json(values), stamps)
        return [Output(topic, 0, messages)]

    def _estimate(self, interval: Interval, versions: dict[int, Totals]) -> estimate_codec.EstimateRow:
        newest = max(versions)
        theta = self._thresholds[newest].theta
        found, noise, filtered = self._filter.take(
            (totals, threshold.theta, _perturber(threshold.epsilon, threshold.alpha))
            for totals, threshold in ((versions[version], self._thresholds[version]) for version in sorted(versions))
        )
        if filtered is not None:
            filtered = hausman(found, noise, filtered)
            if self._follower is not None:
                self._follower.take(theta, *self._filter.level())
        self._running = combine((self._running, found))
        self.counters["intervals"] += 1
        return estimate_codec.EstimateRow(
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

    def stall(self, now: int) -> Finding | None:
        """Which partition holds the next interval back."""
        waiting = [source for source in range(self._sources) if source not in self._incoming.now.ticks]
        if self._open and waiting:
            return waits(
                "collect",
                f"intervals wait for reports partition {', '.join(map(str, waiting[:8]))}",
                "see what status says of collect",
            )
        return None
