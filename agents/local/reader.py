"""Range queries over published intervals, from the rows of the `estimate` topic alone.

rows = read_estimates(settings)
range_sum(rows, start, end)        plain: unbiased for the clipped values
filtered_sum(rows, start, end)     the causal filter as of the range's last interval; biased towards slow change
"""

import math
from collections.abc import Iterable, Sequence

import numpy as np

from susurrus.agents.config.settings import Settings
from susurrus.agents.formats.outputs import reader_of
from susurrus.agents.kafka.clients import clients_of
from susurrus.mechanisms.kalman import Filtered, filter_ranges
from susurrus.mechanisms.local.estimate import Estimate, combine
from susurrus.topics import estimate as estimate_codec

Rows = Sequence[estimate_codec.Estimate]


def read_estimates(settings: Settings) -> list[estimate_codec.Estimate]:
    """All published intervals, in order of time; committed rows only, up to the end of the topic when it is read."""
    topic = settings.topic("estimate")
    json = reader_of(settings.output, settings.schemas[topic], settings.namespace)
    clients = clients_of(settings, quiet=True)
    try:
        records = clients.read(topic, group="reader", complete=False)
    finally:
        clients.close()
    rows = [estimate_codec.decode(json(record.value or b"")) for record in records]
    return sorted(rows, key=lambda row: row.interval)


def _combined(rows: Iterable[estimate_codec.Estimate]) -> Estimate:
    return combine(Estimate(row.count, float(row.sum.estimate), row.sum.std_error**2) for row in rows)


def _inside(rows: Rows, start: int, end: int) -> list[estimate_codec.Estimate]:
    return [row for row in rows if start <= row.interval < end]


def range_sum(rows: Rows, start: int, end: int) -> Estimate:
    """Sum over the intervals that begin in [start, end) (ms): unbiased given the thresholds, errors independent."""
    return _combined(_inside(rows, start, end))


def filtered_sum(rows: Rows, start: int, end: int) -> Filtered:
    """The filter's answer for the same range, from all intervals up to its end.

    Intervals under another threshold than the last one's clip differently. The filter does not use them, and they count by
    their plain sums.
    """
    chosen = _inside(rows, start, end)
    if not chosen:
        return Filtered(0.0, 0.0)
    version = chosen[-1].threshold_version
    known = [
        row for row in rows if row.interval <= chosen[-1].interval and row.threshold_version == version and row.count
    ]
    before = _combined(row for row in chosen if row.threshold_version != version)
    first = next((index for index, row in enumerate(known) if row.interval >= start), len(known))
    if first == len(known):
        return Filtered(before.sum, before.standard_error)
    counts = np.array([row.count for row in known], dtype=np.float64)
    means = np.array([row.sum.estimate for row in known], dtype=np.float64) / counts
    # The noise per report, pooled: an interval's own error depends on its own estimate and would bias the averages.
    pooled = np.cumsum([row.sum.std_error**2 for row in known]) / np.cumsum(counts)
    ranges = np.array([[first, len(known)]], dtype=np.int64)
    [answer] = filter_ranges(counts, means, pooled / counts, ranges)
    return Filtered(before.sum + answer.sum, math.hypot(before.standard_error, answer.standard_error))
