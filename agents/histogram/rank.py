"""rank: candidates -> top.  One partition.  State: none but what every stage of intervals has.

When every release partition has closed an interval, each window with a trigger then has a ranking: the first rows of what the
partitions have handed on. It is written once, also where there are no rows. What is ranked is released already, so this is
post-processing (docs/guarantees/post-processing.md).

State keys: those of intervals.py.
"""

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from susurrus.agents.histogram.interval_stage import IntervalStage
from susurrus.agents.histogram.services import HistogramServices
from susurrus.agents.kafka.offset import Offset
from susurrus.agents.runtime.budget import periods_of
from susurrus.agents.runtime.commit import Commit, Output
from susurrus.agents.runtime.store import Store
from susurrus.mechanisms.calendar import Interval, Trigger, WindowIndex
from susurrus.mechanisms.ranking import RowRanking
from susurrus.topics import candidates as candidates_codec
from susurrus.topics import top as top_codec
from susurrus.topics.candidates import CandidatesBlock
from susurrus.topics.histogram import RowColumns, decode_rows
from susurrus.topics.wire.public_rows import PublicRows


class RankStage(IntervalStage[CandidatesBlock]):
    """The one partition of candidates."""

    name, input, source = "rank", "candidates", "release"
    counted = ("triggers", "rows")
    encode, decode = staticmethod(candidates_codec.encode), staticmethod(candidates_codec.decode)

    services: HistogramServices

    def __init__(
        self, services: HistogramServices, partition: int, store: Store, meta: dict[str, Any], position: Offset
    ) -> None:
        super().__init__(services, partition, store, meta, position)
        top = services.settings.top
        if top is None:
            raise RuntimeError("there is nothing to rank without the section [top]")
        self._ranking = top.ranking
        self._renews = periods_of(services.settings) is not None
        self._begins: dict[WindowIndex, bool] = {}
        """Whether an open window begins."""

    @staticmethod
    def first_sources(services: HistogramServices) -> int:
        """Return the number of bounded partitions, which never changes."""
        return services.settings.topics.bounded_partitions

    def take_block(self, block: CandidatesBlock, offset: Offset, size: int) -> None:
        """Rows of one interval."""
        self._incoming.record(block.partition, offset)
        self._intervals.add(Interval(block.interval), block, len(block), offset, size)

    def commits(self, now: int) -> Iterator[Commit]:
        """One commit per closed interval that has a trigger."""
        while (ready := self._ready) > self._intervals.closed:
            yield self._close(ready)
        if self._intervals.outgrows(self._max_rows):
            yield self._spill()

    def _close(self, ready: Interval) -> Commit:
        """Close the next interval; several at once that have neither windows nor rows. ready: the last that may be closed."""
        interval, windows = self._following(ready)
        windows = self._begun(windows)
        commit = Commit(position=self._taken, meta={}, publishes=bool(windows))
        blocks = self._intervals.blocks(interval) if windows else []
        for window in windows:
            self._rank(window, self._calendar.trigger(window, interval), blocks, commit)
        commit.drops += self._intervals.close(interval)
        commit.position, commit.meta = self._claim()
        return commit

    def _begun(self, windows: Sequence[WindowIndex]) -> list[WindowIndex]:
        """Those that are not skipped. Release has written the decision before its tick for a window's first interval, so it is in
        the ledger; it is read to the very end, where an open transaction may hide it. What was decided holds where the budget
        renews no more: such decisions are older than this task."""
        if any(window not in self._begins for window in windows):
            ledger, start = self.services.ledger, self._calendar.window_start
            if self._renews:
                ledger.refresh(complete=True)
            skipped = ledger.skipped()
            self._begins = {window: start(window) not in skipped for window in windows}
        return [window for window in windows if self._begins[window]]

    def _rank(self, window: WindowIndex, trigger: Trigger, blocks: Sequence[CandidatesBlock], commit: Commit) -> None:
        """Add the ranking of one trigger to the commit."""
        services, start = self.services, self._calendar.window_start(window)
        release = services.header_of(window, trigger)
        rows = first_rows(
            self._ranking,
            [block.rows[row] for block in blocks for row in np.flatnonzero(block.window == start).tolist()],
        )
        key, value = top_codec.encode(release, str(self._ranking), rows)
        topic = services.topic("top")
        # The trigger's time, as in the rows: the producer's own would show how long the exact input took to handle.
        stamp = self._calendar.boundary(self._calendar.interval_of(window, trigger))
        [messages] = services.publisher.messages([topic], [key], PublicRows.of_json([value]), [stamp])
        commit.outputs.append(Output(topic, 0, messages))
        self.counters["triggers"] += 1
        self.counters["rows"] += len(rows)
        commit.released.append(services.released(window, trigger, len(rows), "the ranking of window"))


def first_rows(ranking: RowRanking, rows: Sequence[bytes]) -> list[bytes]:
    """The first of some rows of one release, which are JSON, in the order of the ranking. They may be given in any order.

    Raises MalformedRecord where a row is none.
    """
    decoded: list[RowColumns] = list(decode_rows(rows))
    keys = [key for part in decoded for key in part.keys]
    by_key = np.array(sorted(range(len(keys)), key=keys.__getitem__), np.intp)
    if not len(by_key):
        return []
    columns = {
        name: np.concatenate([column.shown for part in decoded for column in part.columns if column.name == name])
        for name in ranking.columns
    }
    first = ranking.first({name: column[by_key] for name, column in columns.items()})
    return [rows[row] for row in by_key[first].tolist()]
