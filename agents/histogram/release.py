"""release: bounded -> histogram, latest, progress, published-keys, candidates.  Key: the GROUP BY key.
State: per (window, key) exact totals.

When every by-user partition has closed an interval, each open window has a trigger. Before its first one a window is charged,
or, where the budget renews and has no room, skipped (beginnings.py): what came of it goes with its intervals. Then the
strategy steps over its keys (window_keys.py), and what it publishes is written (publication.py). Where rows of the last trigger
are calibrated, that takes two commits (barrier.py).

Where keys are remembered, a window's last trigger hands its large keys on to the next window (remembered.py), and rows are drawn to
those of the window before (shown_rows.py).

Where windows add up, what they measured of unpublished keys is kept, too (evidence.py).

State keys: those of window_keys.py, publication.py, remembered.py, shown_rows.py, evidence.py and intervals.py.
"""

from collections import defaultdict
from collections.abc import Iterator
from typing import Any

from susurrus.agents.finding import Finding, waits
from susurrus.agents.histogram.barrier import Barrier, Held
from susurrus.agents.histogram.beginnings import Beginnings
from susurrus.agents.histogram.candidates import Candidates
from susurrus.agents.histogram.evidence import EvidenceOf, EvidenceTable
from susurrus.agents.histogram.feedback_writer import FeedbackWriter
from susurrus.agents.histogram.interval_stage import IntervalStage
from susurrus.agents.histogram.publication import Publication
from susurrus.agents.histogram.remembered import Memory, Remembered
from susurrus.agents.histogram.services import HistogramServices
from susurrus.agents.histogram.shown_rows import Display, ShownRows
from susurrus.agents.histogram.table import Gathered, Rows, SortedRows, gather
from susurrus.agents.histogram.window_keys import WindowKeys
from susurrus.agents.histogram.window_memory import gauges_of, possible_evidence
from susurrus.agents.histogram.window_plans import WindowPlans
from susurrus.agents.kafka.offset import Offset
from susurrus.agents.runtime.commit import Commit
from susurrus.agents.runtime.inbox import Inbox
from susurrus.agents.runtime.stage import MorePublic
from susurrus.agents.runtime.store import Store
from susurrus.mechanisms.calendar import Interval, Trigger, WindowIndex, WindowStart
from susurrus.mechanisms.errors import Refusal
from susurrus.topics import bounded as bounded_codec
from susurrus.topics.bounded import BoundedBlock
from susurrus.topics.wire.partitioner import partition as partition_of
from susurrus.topics.wire.timestamps import format_time


class ReleaseStage(IntervalStage[BoundedBlock]):
    """One bounded partition."""

    name, input, source = "release", "bounded", "bound"
    counted = ("triggers", "rows", "skipped")
    encode, decode = staticmethod(bounded_codec.encode), staticmethod(bounded_codec.decode)

    services: HistogramServices

    def __init__(
        self, services: HistogramServices, partition: int, store: Store, meta: dict[str, Any], position: Offset
    ) -> None:
        """The ledger and the public topics say what has been published. Raises MorePublic where the state does not know it."""
        super().__init__(services, partition, store, meta, position)
        settings = services.settings
        self._strategy = services.strategy
        self._pad = settings.window.publication_pad
        self._live = settings.clock.chosen.live
        declared = settings.declared_keys
        targets = partition_of(declared, settings.topics.bounded_partitions).tolist()
        self._declared = frozenset(key for key, target in zip(declared, targets, strict=True) if target == partition)
        self._noise = services.noise_source()
        self._candidates = None if settings.top is None else Candidates(services, partition, settings.top.ranking, meta)
        self._plans = WindowPlans(services, partition, meta)
        self._publication = Publication(services, partition, store, self._plans, self._candidates)
        self._windows: dict[WindowIndex, WindowKeys[Any]] = {}
        """The open windows that have had a trigger."""
        refines = bool(self._strategy.refined)
        self._barrier = Barrier(services, partition, meta, self._publication) if refines else None
        self._feedback = FeedbackWriter(services, partition)
        self._memory = Memory(services, store) if settings.remember else None
        adds_up = self._strategy.evidence_windows > 1
        self._evidence = EvidenceTable(services, store, self._noise, self._plans) if adds_up else None
        self._shown = None if self._memory is None else ShownRows(store, self._memory, self._declared)
        self._evidence_windows = possible_evidence(settings)
        self._beginnings = Beginnings(services, partition, meta)
        services.read_published_keys()
        self._compare_with_public()

    def report(self) -> dict[str, Any]:
        """Counters, the last closed interval, and what the newest trigger has from windows before."""
        return {**super().report(), "gauges": gauges_of(self._publication.announced, self._evidence_windows)}

    # ---- input -------------------------------------------------------------------------------------------------------

    @staticmethod
    def first_sources(services: HistogramServices) -> int:
        """Return the number of by-user partitions, which never changes."""
        return services.settings.topics.by_user_partitions

    @classmethod
    def begin(cls, services: HistogramServices, partition: int, start: Offset) -> tuple[dict[str, Any], Offset]:
        """Nothing is closed, and no window is charged."""
        meta, position = super().begin(services, partition, start)
        return {**meta, **Beginnings.first_meta()}, position

    def wakes(self, inbox: Inbox) -> None:
        """Wake it when more is known of the rows of other partitions, where rows are pooled or shares follow them."""
        if self.services.published_keys is not None:
            self.services.published_keys.wakes(inbox)

    def _compare_with_public(self) -> None:
        """Raise MorePublic for a state that is older than what has been published: an older copy was put back.

        Progress is written in the transaction that closes its interval. So a state knows all that was published until its owner
        fenced the earlier owners.
        """
        public, ledger = self.services.public_progress, self.services.ledger
        if public is None:
            return
        public.refresh()
        said = public.ahead(
            self.partition, epoch=ledger.epoch, number=ledger.epoch_number, closed=self._intervals.closed
        )
        if said is None:
            self._publication.announced = public.last(self.partition, ledger.epoch)
            return
        reached = format_time(self._calendar.boundary(self._intervals.closed))
        raise MorePublic(
            "more is public than the state knows; the changelog is read again",
            evidence=said,
            refusal=Refusal(
                f"stage=release partition={self.partition} knows epoch={ledger.epoch_number} up to {reached}, but "
                f"topic={public.topic} shows trigger={said.trigger} of window={format_time(said.window)} in "
                f"epoch={said.epoch_number}, so internal topics are an older copy, and the same noise would be published over "
                "other data",
                f"restore them as they were at the last commit, or {ledger.way_out}",
            ),
        )

    def take_block(self, block: BoundedBlock, offset: Offset, size: int) -> None:
        """Increments of one interval."""
        self._incoming.record(block.partition, offset)
        self._intervals.add(Interval(block.interval), block, len(block), offset, size)

    # ---- output ------------------------------------------------------------------------------------------------------

    def commits(self, now: int) -> Iterator[Commit]:
        """One commit per closed interval, because every interval has its own public results; two where rows are pooled."""
        self._waiting = None
        while (ready := self._ready) > self._intervals.closed:
            match self._next(ready, now):
                case Finding() as waiting:
                    self._waiting = waiting
                    break
                case commit:
                    yield commit
        self.patient = self._waiting is None
        if self._intervals.outgrows(self._max_rows):
            yield self._spill()

    def _next(self, ready: Interval, now: int) -> Commit | Finding:
        """Return what the next interval needs first: its pad, the charge of a window, evidence of the last rows, its end.

        ready: the last interval that may be closed.
        """
        following = Interval(self._intervals.closed + 1)
        if self._live and now < self._calendar.boundary(following) + self._pad:
            return waits("publication pad", f"interval={following} is published at its boundary + publication_pad")
        interval, windows = self._following(ready)
        if (before := self._charge(windows)) is not None:
            return before
        windows = self._beginnings.among(windows)
        if (undecided := self._plans.decide(windows)) is not None:
            return undecided
        return self._tell(interval, windows) or self._close(interval, windows)

    def _charge(self, windows: list[WindowIndex]) -> Commit | Finding | None:
        """Charge or skip a window, before anything of it is published."""
        decided = self._beginnings.decide(windows)
        if decided is None or isinstance(decided, Finding):
            return decided
        outputs = decided.outputs
        if decided.begins is False:
            outputs.append(self._publication.skipped(decided.window))
            self.counters["skipped"] += 1
        return Commit(*self._claim(), outputs=outputs, kind="" if decided.begins is None else "decision")

    def _tell(self, interval: Interval, windows: list[WindowIndex]) -> Commit | Finding | None:
        """Tell the other partitions of a window's last rows where they are calibrated together, and wait for theirs."""
        window = next((w for w in windows if self._calendar.last_interval(w) == interval), None)
        if self._barrier is None or window is None:
            return None
        held = self._barrier.held or self._barrier.hold(self._last_trigger(window, interval))
        if not self._barrier.has_told(interval):
            told = self._barrier.tell(held)
            return Commit(*self._claim(), outputs=[told], kind="evidence")
        return self._barrier.wait(held)

    def _meta(self, position: Offset) -> dict[str, Any]:
        told = {} if self._barrier is None else self._barrier.to_meta()
        ranked = {} if self._candidates is None else self._candidates.to_meta()
        plans = self._plans.to_meta()
        return {**super()._meta(position), **self._beginnings.to_meta(), **told, **ranked, **plans}

    def _last_trigger(self, window: WindowIndex, interval: Interval) -> Held:
        """What the window's last trigger publishes, apart from its calibration. Changes nothing: at its end, the state goes.

        Raises ReplayMismatch where the trigger was published from other data.
        """
        gathered, trigger = self._gather(interval), Trigger(self._calendar.triggers_of(window))
        news = gathered[self._calendar.window_start(window)]
        strategy = self._plans.strategy_of(window)
        evidence = None if self._evidence is None else self._evidence.of(window, strategy)
        public = self._publication.is_public(window, trigger, news, self._entering(window, trigger), evidence)
        rows = self._step(window, trigger, news, Commit(position=self._taken, meta={}), evidence)
        return Held(
            interval=interval,
            window=window,
            strategy=strategy,
            gathered=gathered,
            rows=rows,
            public=public,
            evidence=evidence,
        )

    def _gather(self, interval: Interval) -> dict[WindowStart, Gathered]:
        """The increments of an interval by window, empty ones for windows without."""
        width = self._strategy.plan.width
        return defaultdict(lambda: Gathered.nothing(width), gather(self._intervals.blocks(interval), width))

    def _close(self, interval: Interval, windows: list[WindowIndex]) -> Commit:
        held = None if self._barrier is None else self._barrier.release()
        gathered = self._gather(interval) if held is None else held.gathered
        kind = "" if held is None else "calibrated"
        commit = Commit(position=self._taken, meta={}, kind=kind, publishes=bool(windows))
        published: dict[WindowStart, Rows] = {}
        tables: dict[WindowStart, SortedRows] = {}
        for window in windows:
            trigger, start = self._calendar.trigger(window, interval), self._calendar.window_start(window)
            evidence = None
            if held is not None and window == held.window:
                rows, evidence = held.rows, held.evidence
            else:
                rows = self._step(window, trigger, gathered[start], commit)
            tables[start] = self._publish(window, trigger, gathered[start], rows, commit, evidence)
            published[start] = rows
        handed_on = self._hand_on(interval, published, tables, commit)
        if self._strategy.feedback:
            lists = {} if self._memory is None else self._memory.lists_to_tell(interval, windows)
            told = self._feedback.output(interval, published, self._windows, handed_on, lists, commit)
            commit.outputs.append(told)
        if self._candidates is not None:
            commit.outputs += self._candidates.outputs(interval)
        commit.drops += self._intervals.close(interval)
        oldest = self._calendar.oldest_open(Interval(interval + 1))
        self._beginnings.forget(oldest)
        self._plans.forget(oldest)
        commit.position, commit.meta = self._claim()
        return commit

    def _keys_of(self, window: WindowIndex) -> WindowKeys[Any]:
        if window not in self._windows:
            noise = self._noise.window(window)
            strategy = self._plans.strategy_of(window)
            self._windows[window] = WindowKeys(self._store, strategy, self._declared, window, noise)
        return self._windows[window]

    def _step(
        self,
        window: WindowIndex,
        trigger: Trigger,
        news: Gathered,
        commit: Commit,
        evidence: EvidenceOf | None = None,
    ) -> Rows:
        """What a trigger publishes; from the last rows of the window before, too, where those are remembered.

        evidence: at the last trigger, where windows add up.
        """
        keys, memory = self._keys_of(window), self._memory
        if memory is None:
            return keys.trigger(trigger, news, commit, evidence=evidence)
        entering, without_row = memory.entering(window, trigger), memory.without_row(window, trigger)
        if entering is not None:
            commit.kind = commit.kind or "entering"
        return keys.trigger(
            trigger,
            news,
            commit,
            entering=frozenset(() if entering is None else entering.keys),
            weighing_one=frozenset(() if without_row is None else without_row.keys),
            evidence=evidence,
        )

    def _entering(self, window: WindowIndex, trigger: Trigger) -> Remembered | None:
        return None if self._memory is None else self._memory.entering(window, trigger)

    def _hand_on(
        self,
        interval: Interval,
        published: dict[WindowStart, Rows],
        tables: dict[WindowStart, SortedRows],
        commit: Commit,
    ) -> tuple[WindowIndex, Remembered] | None:
        """(the next window, what is remembered in it), at the last interval of a window, also of one that is skipped.

        tables: the rows of `published`, smoothed. Raises Refusal where the last rows cannot be made again: those of the other
        partitions are no longer known.
        """
        if self._memory is None or (window := self._memory.ending(interval)) is None:
            return None
        start = self._calendar.window_start(window)
        rows = published.get(start)
        if rows is not None and self._barrier is not None and not rows.is_calibrated:
            raise Refusal(
                f"stage=release partition={self.partition} has lost which keys are remembered from window="
                f"{format_time(start)}, whose last rows are published",
                f"restore the changelog topic as it was at the last commit, or {self.services.ledger.way_out}",
            )
        last = tables.get(start)
        commit.outputs += self._plans.tell(window, interval, last, self._declared.union(self._memory.of(window).keys))
        return self._memory.hand_on(window, last, commit)

    def _publish(
        self,
        window: WindowIndex,
        trigger: Trigger,
        news: Gathered,
        rows: Rows,
        commit: Commit,
        evidence: EvidenceOf | None,
    ) -> SortedRows:
        """Publish what is shown of the rows; returns all of them, smoothed where keys are remembered."""
        table = rows.sorted()
        display = Display(rows=table, withdrawn=[])
        if self._shown is not None:
            table, display = self._shown.of(window, trigger, table, rows.first, commit)
        entering = self._entering(window, trigger)
        if self._publication.publish(window, trigger, news, table, display, commit, entering, evidence):
            number = len(display.rows.keys)
            self.counters["triggers"] += 1
            self.counters["rows"] += number
            commit.released.append(self.services.released(window, trigger, number))
        if trigger == self._calendar.triggers_of(window):
            self._windows.pop(window).drop(commit)
            if evidence is not None:
                evidence.changes(commit)
        return table
