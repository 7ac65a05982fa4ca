"""What one release partition tells bound at the end of an interval, in the transaction that publishes it: see feedback.py.

rows of the interval's triggers ──▶ keys that are new in each window, how many there are in all
rows of the trigger at which a window's last one looks back ──▶ the unit of each of its keys
the list that a window hands on ──▶ keys of the next window, from this interval on
"""

from collections.abc import Mapping
from typing import Any

from susurrus.agents.histogram.remembered import Remembered
from susurrus.agents.histogram.services import HistogramServices
from susurrus.agents.histogram.table import Rows
from susurrus.agents.histogram.window_keys import WindowKeys
from susurrus.agents.runtime.commit import Commit, Output
from susurrus.mechanisms.calendar import Interval, WindowIndex, WindowStart
from susurrus.mechanisms.histogram.bounding import WEIGHT_ONE
from susurrus.topics import published_keys as codec

HandedOn = tuple[WindowIndex, Remembered]
"""A window, and the keys that are public in it from this interval on, because the window before has published them."""


class FeedbackWriter:
    """Writes published-keys, for strategies with feedback."""

    def __init__(self, services: HistogramServices, partition: int) -> None:
        self._services, self._calendar, self._strategy = services, services.calendar, services.strategy
        self._partition = partition

    def output(
        self,
        interval: Interval,
        published: Mapping[WindowStart, Rows],
        windows: Mapping[WindowIndex, WindowKeys[Any]],
        handed_on: HandedOn | None,
        lists: Mapping[WindowIndex, Remembered],
        commit: Commit,
    ) -> Output:
        """This interval's new keys, how many there are in all, and that the interval is complete.

        published: rows by window. windows: those of them that go on, whose state gets the units. handed_on: of a window that ends.
        lists: of windows where a list enters, and of those that are skipped and have one.
        """
        news = {start: rows.first for start, rows in published.items()}
        totals = {start: len(rows) for start, rows in published.items()}
        units = self._new_units(interval, published, windows, commit)
        if handed_on is not None:
            window, remembered = handed_on
            start = self._calendar.window_start(window)
            keys = remembered.keys
            if (rows := published.get(start)) is not None:
                known = set(rows.keys)
                keys = [key for key in keys if key not in known]
            news[start] = [*news.get(start, ()), *keys]
            totals[start] = totals.get(start, 0) + len(keys)
            if self._looks_back(window, interval):
                # They have no row in this window yet, so a record weighs as much as on a declared key.
                units[start] = units.get(start, {}) | dict.fromkeys(keys, WEIGHT_ONE)
        for window, remembered in lists.items():
            start = self._calendar.window_start(window)
            if start in published:
                # Told when the list was made. Told again, they would hide that the first record is lost.
                known = set(remembered.keys)
                news[start] = [key for key in news[start] if key not in known]
            elif self._looks_back(window, interval):
                # Bound does not know that the window is skipped. It measures its lists, which nobody uses, and asks for every unit.
                news[start], totals[start] = [], len(remembered)
                units[start] = dict.fromkeys(remembered.keys, WEIGHT_ONE)
        services = self._services
        epoch = bytes.fromhex(services.ledger.epoch)
        block = codec.block_of(self._partition, interval, services.config_digest, epoch, news, totals, units)
        pieces = codec.split(block, services.max_record_bytes)
        values = [{"value": codec.encode(piece)} for piece in pieces]
        return Output(services.topic("published-keys"), 0, values)

    def _looks_back(self, window: WindowIndex, interval: Interval) -> bool:
        """Whether the window's last trigger takes what is public at this interval."""
        lag = self._strategy.lag
        if not self._strategy.measures_lists or lag is None:
            return False
        return self._calendar.last_interval(window) - lag == interval

    def _new_units(
        self,
        interval: Interval,
        published: Mapping[WindowStart, Rows],
        windows: Mapping[WindowIndex, WindowKeys[Any]],
        commit: Commit,
    ) -> dict[WindowStart, dict[bytes, int]]:
        """Window start -> unit by key, of windows whose last trigger looks back at this interval; stored for that trigger."""
        known = {}
        for start, rows in published.items():
            window = self._calendar.window_at(start)
            if self._looks_back(window, interval):
                table = rows.sorted()
                units = self._strategy.row_units(table.keys, table.estimates)
                known[start] = dict(zip(table.keys, units.tolist(), strict=True))
                windows[window].keep_units(known[start], commit)
        return known
