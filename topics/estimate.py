"""estimate: sums and means per time interval from the reports of the clients, public.

    key    {"slot":"2026-01-01T00:00:00Z"}
    value  {"slot_start":…,"slot_end":…,"count":4021,"sum":{"estimate":…,"std_error":…},"mean":{…},"running_sum":{…},
            "filtered_sum":{…} or null,"threshold_version":2,"theta":96.0,"epsilon":1.0,"epoch":"…","schema":1}

The estimates are unbiased for the values clipped to [0, theta]; the standard errors do not cover what clipping cuts off.
count is the number of reports. It is public: local privacy protects the values, not their number. running_sum goes from the
first interval to this one, so that any range of intervals is the difference of two rows (their errors subtract in squares).
filtered_sum, where there is one, is the smoothed sum of this interval, biased towards slow change.
"""

import math

import msgspec

from susurrus.topics.histogram import Measured
from susurrus.topics.wire.json_rows import decoder
from susurrus.topics.wire.row_schema import MEASURED, Field, Leaf, Members, RowSchema
from susurrus.topics.wire.timestamps import parse_time

VERSION = 1
SCHEMA = RowSchema(
    Members(
        "EstimateRow",
        (
            Field("slot_start", Leaf.INSTANT, "the interval's first instant"),
            Field("slot_end", Leaf.INSTANT, "the first instant after the interval"),
            Field("count", Leaf.INTEGER, "number of reports"),
            Field("sum", MEASURED, "sum of the values, clipped to [0, theta]"),
            Field("mean", MEASURED, "mean of the clipped values; none without reports", "nullable"),
            Field("running_sum", MEASURED, "sum from the first interval to this one"),
            Field("filtered_sum", MEASURED, "the interval's sum, smoothed: biased towards slow change", "nullable"),
            Field("threshold_version", Leaf.INTEGER, "the threshold of the newest reports"),
            Field("theta", Leaf.NUMBER, "the public threshold that clips the values"),
            Field("epsilon", Leaf.NUMBER, "what one report costs"),
            Field("epoch", Leaf.TEXT, "rows of two epochs have other noise: never combine them"),
            Field("schema", Leaf.INTEGER, "increases when a known member changes its meaning"),
        ),
    ),
    "Sums and means of one interval of locally private reports.",
    VERSION,
)


class EstimateRow(msgspec.Struct, frozen=True, kw_only=True):
    """One interval. Times are RFC 3339. mean is null without reports."""

    interval_start: str = msgspec.field(name="slot_start")
    interval_end: str = msgspec.field(name="slot_end")
    count: int
    sum: Measured
    mean: Measured | None
    running_sum: Measured
    filtered_sum: Measured | None
    threshold_version: int
    theta: float
    epsilon: float
    epoch: str
    schema: int = VERSION

    @property
    def interval(self) -> int:
        """Interval start in ms."""
        return parse_time(self.interval_start)


class _Key(msgspec.Struct, frozen=True):
    interval: str = msgspec.field(name="slot")


decode = decoder(EstimateRow, "estimate", VERSION, times=("interval_start", "interval_end"))


def encode(estimate: EstimateRow) -> tuple[bytes, bytes]:
    """Key and value. Raises ValueError for a number that is not finite."""
    for measured in (estimate.sum, estimate.mean, estimate.running_sum, estimate.filtered_sum):
        if measured is not None and not (math.isfinite(measured.estimate) and math.isfinite(measured.std_error)):
            raise ValueError("a number of the estimate is not finite, which is never published")
    return msgspec.json.encode(_Key(estimate.interval_start)), msgspec.json.encode(estimate)
