"""The plan of each window of one release partition, where shares follow how much of earlier windows had lasted.

    rows of a window's last trigger ──Memory──▶ (known, rows) ──published-keys──▶ feedback.py
    feedback.py, all partitions ──decide──▶ kappa of a window, before its first trigger ──▶ its strategy; state; digest

Whoever needs the mechanism of a window asks for it here. Bound needs no kappa: every constant of bounding is the same.
Argument: docs/guarantees/closing.md, "Shares that follow the output".

Meta record: ``persistence``, pairs of a window and its kappa in tenths; ``lasted``, the numbers of the newest window that ended.
"""

import logging
from typing import Any

import numpy as np

from susurrus.agents.finding import Finding, waits
from susurrus.agents.histogram.services import HistogramServices
from susurrus.agents.histogram.table import SortedRows
from susurrus.agents.runtime.commit import Output
from susurrus.mechanisms.calendar import Interval, Trigger, WindowIndex
from susurrus.mechanisms.histogram.levels import level_of
from susurrus.mechanisms.histogram.persistence import LEAST_ROW, TENTHS, persistence_of
from susurrus.mechanisms.histogram.strategy import Strategy
from susurrus.topics import lasting_rows as codec

log = logging.getLogger(__name__)


class WindowPlans:
    """What is known of the plans of windows in one bounded partition. Where shares follow nothing, all have kappa 0."""

    def __init__(self, services: HistogramServices, partition: int, meta: dict[str, Any]) -> None:
        """meta: of the last commit."""
        self._services, self._calendar, self._partition = services, services.calendar, partition
        self._follows = services.settings.follows_persistence
        self._known = {WindowIndex(window): int(kappa) for window, kappa in meta.get("persistence", ())}
        known, rows = meta.get("lasted", (0, 0))
        self._lasted = int(known), int(rows)

    def to_meta(self) -> dict[str, Any]:
        """The part that a commit carries."""
        return {"persistence": sorted(self._known.items()), "lasted": list(self._lasted)} if self._follows else {}

    # ---- the plan of a window ----------------------------------------------------------------------------------------

    def decide(self, windows: list[WindowIndex]) -> Finding | None:
        """What the windows' plans wait for; None when all are known. Raises Refusal where records are lost.

        windows: those with a trigger at the next interval. A plan that is known never changes.
        """
        if not self._follows:
            return None
        for window in windows:
            if window not in self._known and (waiting := self._decide(window)) is not None:
                return waiting
        return None

    def _decide(self, window: WindowIndex) -> Finding | None:
        before = self._complete_before(window)
        if before is None:
            self._known[window] = 0
            return None
        index, last = self._services.published_keys, self._calendar.last_interval(before)
        assert index is not None  # a strategy whose shares follow the output takes feedback
        if (counts := index.lasted(last)) is None:
            behind = ", ".join(map(str, index.behind(last)[:8]))
            return index.unreadable or waits(
                "release",
                f"window={self._calendar.window_start(window)} waits for the last rows of the window before it, of release "
                f"{behind or 'to be read'}",
                "see what status says of release",
            )
        self._known[window] = persistence_of(*counts)
        shown = self._services.settings.window.instant_text(self._calendar.window_start(window))
        log.info("window %s: %d of %d rows before it lasted, kappa %g", shown, *counts, self._known[window] / TENTHS)
        return None

    def _complete_before(self, window: WindowIndex) -> WindowIndex | None:
        """The newest window of the epoch whose last interval comes before this one's first."""
        first = self._calendar.first_interval(window)
        before = self._calendar.preceding(window)
        while before >= self._services.ledger.first_window:
            if self._calendar.last_interval(before) < first:
                return before
            before = self._calendar.preceding(before)
        return None

    def persistence_of(self, window: WindowIndex) -> int:
        """kappa in tenths; 0 where shares follow nothing. Raises KeyError for a window that is not decided."""
        return self._known[window] if self._follows else 0

    def announced(self, window: WindowIndex) -> float | None:
        """kappa as `progress` announces it; None where shares follow nothing. Raises as `persistence_of`."""
        return self._known[window] / TENTHS if self._follows else None

    def strategy_of(self, window: WindowIndex) -> Strategy[Any]:
        """The mechanism of a window. Raises as `persistence_of`."""
        return self._services.strategy_of(window, self.persistence_of(window))

    def strategy_with(self, window: WindowIndex, digest: bytes) -> Strategy[Any] | None:
        """The mechanism of a window, also of one that is no longer known, by its plan's digest; None where no plan has it."""
        for kappa in range(TENTHS + 1) if self._follows else (0,):
            plan = self._services.plan_of(window, kappa)
            if plan.digest() == digest:
                return self._services.strategy_of(window, kappa)
        return None

    def pinned(self, window: WindowIndex, trigger: Trigger) -> bytes:
        """What the digest of a trigger covers of the plan: kappa, in that of a window's first one."""
        return bytes([self._known[window]]) if self._follows and trigger == 1 else b""

    # ---- windows that end --------------------------------------------------------------------------------------------

    def tell(
        self, window: WindowIndex, interval: Interval, rows: SortedRows | None, public: frozenset[bytes]
    ) -> list[Output]:
        """What all partitions must know of a window that ends with this interval.

        rows: of its last trigger, shown or not; None where it is skipped, and nothing changes. public: keys that were declared or
        remembered when it began.
        """
        if not self._follows:
            return []
        if rows is not None:
            self._lasted = self._count(rows, public)
        services = self._services
        record = codec.LastingRows(
            partition=self._partition,
            interval=interval,
            window=self._calendar.window_start(window),
            known=self._lasted[0],
            rows=self._lasted[1],
            config_digest=services.config_digest,
            epoch=bytes.fromhex(services.ledger.epoch),
        )
        return [Output(services.topic("published-keys"), 0, [{"value": codec.encode(record)}])]

    def _count(self, rows: SortedRows, public: frozenset[bytes]) -> tuple[int, int]:
        """(known, rows) of the levels whose shares follow what lasted, in the first column that counts users; smoothed rows, where
        there are such."""
        large = np.zeros(len(rows.keys), np.bool_)
        grouped, estimates = bool(self._services.settings.input.grouping_sets), rows.newest[0]
        level = level_of(rows.keys) if grouped else np.zeros(len(rows.keys), np.intp)
        for number, plan in enumerate(each.plan for each in self._services.strategy.by_level):
            if plan.follows_persistence and plan.counting is not None:
                large |= (level == number) & (estimates[:, plan.counting] >= LEAST_ROW)
        places = np.flatnonzero(large).tolist()
        return sum(rows.keys[at] in public for at in places), len(places)

    def forget(self, oldest: WindowIndex) -> None:
        """Drop windows that no view needs any more. oldest: that is open."""
        kept = self._calendar.preceding(oldest)
        self._known = {window: kappa for window, kappa in self._known.items() if window >= kept}
