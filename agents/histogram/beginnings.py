"""Whether a window begins, as one release partition knows it: before its first trigger it is charged or skipped, or it waits.

    ledger, log of charges ──standing.py──▶ Beginnings ──DecidedWindow──▶ a commit of release-0; the others wait until they read it

Nothing of a window is published before that. Argument: docs/guarantees/composition.md.

Meta record: ``charges_sent``, the windows whose charge is committed but not read back yet.
"""

import logging
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from susurrus.agents.finding import Finding, waits
from susurrus.agents.histogram.services import HistogramServices
from susurrus.agents.runtime.commit import Output
from susurrus.agents.runtime.standing import Renewing, standing_of
from susurrus.mechanisms.calendar import WindowIndex

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class DecidedWindow:
    """What release-0 commits of a window. begins: None where that is the charge alone, and what comes of it is read later."""

    window: WindowIndex
    outputs: list[Output]
    begins: bool | None


class Beginnings:
    """Those of the windows of one bounded partition. meta: of the last commit."""

    def __init__(self, services: HistogramServices, partition: int, meta: dict[str, Any]) -> None:
        self._services, self._calendar, self._partition = services, services.calendar, partition
        self._standing = standing_of(services.settings, services.ledger, services.calendar, services.guarantee_of)
        self._begins: dict[WindowIndex, bool] = {}
        """Whether a window begins, as far as that is known."""
        self._charges_sent = set(map(WindowIndex, meta["charges_sent"]))

    @staticmethod
    def first_meta() -> dict[str, Any]:
        """Before the first commit: no window is charged."""
        return {"charges_sent": []}

    def to_meta(self) -> dict[str, Any]:
        """The part that a commit carries."""
        return {"charges_sent": sorted(self._charges_sent)}

    def among(self, windows: Iterable[WindowIndex]) -> list[WindowIndex]:
        """Those that begin. Of all of them it is known: `decide` has nothing to say."""
        return [window for window in windows if self._begins[window]]

    def decide(self, windows: Iterable[WindowIndex]) -> DecidedWindow | Finding | None:
        """What is next for the first window of which nothing is known; None without one. What it returns counts as committed.

        The order of the log of charges decides what the budget allows, so nothing else is done before.
        """
        window = next((w for w in windows if not self._is_known(w)), None)
        if window is None:
            return None
        if self._partition != 0:
            return waits("charge", "waiting for release-0 to charge the window", "see what status says of release 0")
        decided = self._standing.decide(window, charged=window in self._charges_sent)
        if decided is None:
            # Committed, but some pipeline's open transaction still hides it: a second charge would count twice.
            return waits(
                "charge",
                "waiting for the window's charge to appear in the log of charges, where an open transaction hides it",
                "if it stays, end the transaction (kafka-transactions.sh find-hanging, then abort)",
            )
        outputs, begins = decided
        if begins is None:
            self._charges_sent.add(window)
        else:
            self._begins[window] = begins
            self._charges_sent.discard(window)
        if begins is False:
            self._say_skipped(window)
        return DecidedWindow(window, outputs, begins)

    def forget(self, oldest: WindowIndex) -> None:
        """Drop windows before this one."""
        self._begins = {window: begins for window, begins in self._begins.items() if window >= oldest}

    def _is_known(self, window: WindowIndex) -> bool:
        """Whether it is known that the window begins, or that it is skipped."""
        if window not in self._begins and (begins := self._standing.begins(window)) is not None:
            self._begins[window] = begins
            self._charges_sent.discard(window)
        return window in self._begins

    def _say_skipped(self, window: WindowIndex) -> None:
        assert isinstance(self._standing, Renewing)
        start, shown = self._calendar.window_start(window), self._services.settings.window.instant_text
        log.warning(
            "window %s is skipped: %s has no room for it, and nothing of it is published; with what is charged now, the window of "
            "%s is the next that begins (see susurrus ledger show)",
            shown(start), self._standing.total, shown(self._standing.room_again(window)),
        )  # fmt: skip
