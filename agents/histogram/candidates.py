"""What a release partition hands on to the rank stage: its own first rows of every trigger, and ticks.

    rows of a commit ──▶ those that may be first of all partitions ──▶ candidates, in the same commit as the rows

Meta record: ``candidates``, how many records the partition has written to the topic.
"""

from collections.abc import Sequence
from typing import Any, Final

import numpy as np

from susurrus.agents.histogram.services import HistogramServices
from susurrus.agents.runtime.commit import Output
from susurrus.agents.runtime.ticks import Written
from susurrus.mechanisms.calendar import Interval, WindowStart
from susurrus.mechanisms.ranking import RowRanking
from susurrus.topics import candidates as codec
from susurrus.topics.histogram import ColumnRows

_META: Final = "candidates"


class Candidates:
    """One bounded partition's part in a ranking. meta: of the last commit."""

    def __init__(self, services: HistogramServices, partition: int, ranking: RowRanking, meta: dict[str, Any]) -> None:
        self._services, self._partition, self._ranking = services, partition, ranking
        self._topic = services.topic("candidates")
        self._written = Written(partition, self._topic, meta.get(_META, [0]), config_digest=services.config_digest)
        self._rows: list[bytes] = []
        self._windows: list[int] = []

    def to_meta(self) -> dict[str, Any]:
        """The part that a commit carries."""
        return {_META: self._written.to_meta()}

    def add(self, window: WindowStart, columns: Sequence[ColumnRows], rows: Sequence[bytes]) -> None:
        """Take the rows of one window that a commit publishes, as JSON in the order of their keys."""
        first = self._ranking.first({column.name: column.shown for column in columns})
        self._rows += [rows[row] for row in first.tolist()]
        self._windows += [window] * len(first)

    def outputs(self, interval: Interval) -> list[Output]:
        """What the commit that closes an interval writes: what was taken for it, and the tick."""
        block = codec.CandidatesBlock(
            partition=self._partition, interval=interval, window=np.array(self._windows, np.int64), rows=self._rows
        )
        self._rows, self._windows = [], []
        values = [{"value": codec.encode(piece)} for piece in codec.split(block, self._services.max_record_bytes)]
        found = [Output(self._topic, 0, values)] if values else []
        self._written.count(found)
        return [*found, *self._written.ticks(interval)]
