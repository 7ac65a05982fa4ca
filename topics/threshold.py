"""threshold: the server's public threshold and what phase 2 needs to know, for the clients. Compacted, public.

Every version is kept under its own key, so that late reports of an earlier version can still be read; the key `current`
repeats the one in force. It runs on clients, so it reads and writes JSON with the standard library.
"""

import json
import math
from dataclasses import asdict, dataclass, fields
from typing import Any

from susurrus.topics.wire.packing import MalformedRecord
from susurrus.topics.wire.row_schema import Field, Leaf, Members, RowSchema

VERSION = 1
CURRENT = b"current"
SCHEMA = RowSchema(
    Members(
        "Threshold",
        (
            Field("version", Leaf.INTEGER, "what reports name"),
            Field("theta", Leaf.NUMBER, "values are clipped to [0, theta]"),
            Field("epsilon", Leaf.NUMBER, "what one report costs"),
            Field("alpha", Leaf.NUMBER, "share of piecewise reports"),
            Field("reports", Leaf.INTEGER, "phase 1 reports that theta was chosen from"),
            Field("phase1_epsilon", Leaf.NUMBER, "what one of those cost"),
            Field("bound", Leaf.NUMBER, "their largest value"),
            Field("scale", Leaf.TEXT, "their scale"),
            Field("method", Leaf.TEXT, "what chose theta"),
            Field("epoch", Leaf.TEXT, "as in the estimates"),
            Field("published", Leaf.INTEGER, "ms since 1970"),
            Field("phase1_share", Leaf.NUMBER, "share of reports that stay phase 1"),
            Field("horizon", Leaf.INTEGER, "phase 2 reports that theta was chosen for"),
            Field("expected_truncation", Leaf.NUMBER, "what clipping is expected to cut off a value"),
            Field("schema", Leaf.INTEGER, "increases when a known member changes its meaning"),
        ),
    ),
    "The public threshold of a local pipeline, for its clients.",
    VERSION,
    always_json=True,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class ThresholdRecord:
    """What phase 2 goes by, and where it comes from.

    version: 1, 2, …, what phase 2 reports name. theta: clip values to [0, theta], in the values' unit. epsilon: of one
    phase 2 report. alpha: share of piecewise reports. reports: phase 1 reports used; phase1_epsilon, bound and scale:
    their Square Wave. method: what chose theta. published: ms. phase1_share: share of reports that stay phase 1, for
    the next threshold. horizon: phase 2 reports that theta was chosen for. expected_truncation: what clipping is
    expected to cut off a value, by the distribution that theta was chosen from; it is in no published sum.
    """

    version: int
    theta: float
    epsilon: float
    alpha: float
    reports: int
    phase1_epsilon: float
    bound: float
    scale: str = "linear"
    method: str = ""
    epoch: str = ""
    published: int = 0
    phase1_share: float = 0.0
    horizon: int = 0
    expected_truncation: float = 0.0


def encode(threshold: ThresholdRecord) -> list[tuple[bytes, bytes]]:
    """Two records for one transaction: by version and as the current one. Raises ValueError for impossible ones."""
    _check(threshold)
    value = json.dumps({**asdict(threshold), "schema": VERSION}, separators=(",", ":"), allow_nan=False).encode()
    return [(b"version/%d" % threshold.version, value), (CURRENT, value)]


def decode(value: bytes) -> ThresholdRecord:
    """Raises MalformedRecord. Fields of later versions are ignored."""
    try:
        record = json.loads(value)
        schema = record.pop("schema")
        known = {field.name: field.type for field in fields(ThresholdRecord)}
        found: dict[str, Any] = {name: _typed(record[name], kind) for name, kind in known.items() if name in record}
        threshold = ThresholdRecord(**found)
        _check(threshold)
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
        raise MalformedRecord(f"threshold record: {type(error).__name__}") from None
    if schema != VERSION:
        raise MalformedRecord(f"threshold schema={schema} is not {VERSION}: upgrade the client")
    return threshold


def _typed(value: object, kind: object) -> object:
    if kind is float and type(value) is int:
        return float(value)
    if type(value) is not kind:
        raise TypeError
    return value


def _check(threshold: ThresholdRecord) -> None:
    possible = {
        "version": 1 <= threshold.version < 2**32,
        "alpha": 0 <= threshold.alpha <= 1,
        "reports": threshold.reports >= 0,
        "phase1_share": 0 <= threshold.phase1_share < 1,
        "horizon": threshold.horizon >= 0,
        "expected_truncation": 0 <= threshold.expected_truncation < math.inf,
    }
    for name in ("theta", "epsilon", "phase1_epsilon", "bound"):
        possible[name] = 0 < getattr(threshold, name) < math.inf
    for name, fine in possible.items():
        if not fine:
            raise ValueError(f"{name}={getattr(threshold, name)} is impossible in a threshold")
