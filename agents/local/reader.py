"""Range queries over published intervals, from the rows of the `estimate` topic alone.

rows = read_estimates(settings)
range_sum(rows, start, end)        plain: unbiased for the clipped values
filtered_sum(rows, start, end)     the causal filter as of the range's last interval; biased towards slow change. Where it does
                                   not fit the plain sums, it is the plain sum
"""

from collections.abc import Iterable, Sequence

import numpy as np
import numpy.typing as npt

from susurrus.agents.config.settings import Settings
from susurrus.agents.formats.outputs import reader_of
from susurrus.agents.kafka.clients_of import clients_of
from susurrus.mechanisms.kalman import Filtered, filter_ranges
from susurrus.mechanisms.local.estimate import Estimate, combine
from susurrus.mechanisms.local.filter import hausman
from susurrus.topics import estimate as estimate_codec

Rows = Sequence[estimate_codec.EstimateRow]


def read_estimates(settings: Settings) -> list[estimate_codec.EstimateRow]:
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


def _combined(rows: Iterable[estimate_codec.EstimateRow]) -> Estimate:
    return combine(Estimate(row.count, float(row.sum.estimate), row.sum.std_error**2) for row in rows)


def _inside(rows: Rows, start: int, end: int) -> list[estimate_codec.EstimateRow]:
    return [row for row in rows if start <= row.interval < end]


def range_sum(rows: Rows, start: int, end: int) -> Estimate:
    """Sum over the intervals that begin in [start, end) (ms): unbiased given the thresholds, errors independent."""
    return _combined(_inside(rows, start, end))


def filtered_sum(rows: Rows, start: int, end: int) -> Filtered:
    """The filter's answer for the same range, from all intervals up to its end; the plain sum if Hausman's test refuses it.

    Intervals under different thresholds clip differently; the filter takes that for changes of the level.
    """
    chosen = [row for row in _inside(rows, start, end) if row.count]
    if not chosen:
        return Filtered(0.0, 0.0)
    known = [row for row in rows if row.interval <= chosen[-1].interval and row.count]
    first = known.index(chosen[0])
    counts = np.array([row.count for row in known], dtype=np.float64)
    means = np.array([row.sum.estimate for row in known], dtype=np.float64) / counts
    noise = _noise(known, counts)
    ranges = np.array([[first, len(known)]], dtype=np.int64)
    [answer] = filter_ranges(counts, means, noise / counts**2, ranges)
    return hausman(_combined(chosen), float(noise[first:].sum()), answer)


def _noise(known: Rows, counts: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    """The variance of the noise of each interval's sum, float64[intervals].

    The noise of a report is theta^2 v, v pooled over all intervals: an interval's own error depends on its own estimate and
    would bias the averages. An interval in which theta changed has reports under both thetas, so its own error is used.
    """
    thetas = np.array([row.theta for row in known])
    own = np.array([row.sum.std_error for row in known]) ** 2
    pooled = thetas**2 * counts * np.cumsum(own / thetas**2) / np.cumsum(counts)
    changed = np.concatenate(([False], np.diff([row.threshold_version for row in known]) != 0))
    return np.where(changed, own, pooled)
