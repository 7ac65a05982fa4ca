"""top: the first released rows of each trigger, in the order of one column, public. One record per trigger, also without rows.

    key    {"window":"2026-01-01T00:00:00Z"}
    value  {"window_start":…,"window_end":…,"trigger":3,"of_triggers":96,"ranking":"ORDER BY visits DESC LIMIT 10",
            "rows":[{"rank":1,"key":"/index.html","values":{"visits":{"estimate":118,"std_error":9.25}}}],
            "strategy":"toeplitz","epoch":"…","schema":1}

Key and values of a row are, byte for byte in JSON, those of its row in `histogram`. A key that is not among the rows may still be
large: docs/guarantees/post-processing.md.
"""

from collections.abc import Container, Sequence
from typing import Any

import msgspec

from susurrus.topics import histogram
from susurrus.topics.histogram import MeasuredColumn, TriggerHeader
from susurrus.topics.wire.json_rows import decoder
from susurrus.topics.wire.packing import MalformedRecord
from susurrus.topics.wire.row_schema import Field, Leaf, Members, RowSchema, Several
from susurrus.topics.wire.timestamps import format_time, parse_time

VERSION = 1


class RankedRow(msgspec.Struct, frozen=True, kw_only=True):
    """A row of a ranking. rank: from 1 on. key: the decoded JSON. values: as in `histogram`."""

    rank: int
    key: Any
    values: dict[str, MeasuredColumn]


class RankedRelease(msgspec.Struct, frozen=True, kw_only=True):
    """The first rows of one trigger as a reader gets them. ranking: what is first, in words of SQL."""

    window_start: str
    window_end: str
    trigger: int
    of_triggers: int
    ranking: str
    rows: list[RankedRow]
    strategy: str
    epoch: str
    schema: int
    window_date: str | None = None

    @property
    def window(self) -> int:
        """Window start in ms."""
        return parse_time(self.window_start)


decode = decoder(RankedRelease, "top record", VERSION, times=("window_start", "window_end"))


class _PackedRow(msgspec.Struct, frozen=True):
    """What a ranking takes of a row of `histogram`, as it is written."""

    key: msgspec.Raw
    values: msgspec.Raw


class _RankedRow(msgspec.Struct, frozen=True):
    rank: int
    key: msgspec.Raw
    values: msgspec.Raw


class _RankedRelease(msgspec.Struct, frozen=True, kw_only=True):
    window_start: str
    window_end: str
    window_date: str | msgspec.UnsetType = msgspec.UNSET
    trigger: int
    of_triggers: int
    ranking: str
    rows: list[_RankedRow]
    strategy: str
    epoch: str
    schema: int = VERSION


class _Key(msgspec.Struct, frozen=True):
    window: str


_packed_row = msgspec.json.Decoder(_PackedRow)


def encode(release: TriggerHeader, ranking: str, rows: Sequence[bytes]) -> tuple[bytes, bytes]:
    """Key and value of one trigger. rows: of `histogram` as JSON, in their order. Raises MalformedRecord where a row is none."""
    try:
        parts = list(map(_packed_row.decode, rows))
    except (ValueError, RecursionError) as error:
        raise MalformedRecord(f"histogram row: {error}") from None
    start = format_time(release.window_start)
    value = _RankedRelease(
        window_start=start,
        window_end=format_time(release.window_end),
        window_date=msgspec.UNSET if release.window_date is None else release.window_date,
        trigger=release.trigger,
        of_triggers=release.of_triggers,
        ranking=ranking,
        rows=[_RankedRow(rank, part.key, part.values) for rank, part in enumerate(parts, 1)],
        strategy=release.strategy,
        epoch=release.epoch,
    )
    return msgspec.json.encode(_Key(start)), msgspec.json.encode(value)


def schema(
    key: Sequence[str], columns: Sequence[str], intervals: Container[str] = (), *, dated: bool = False
) -> RowSchema:
    """The schema of the values. Arguments as in `histogram.schema`."""
    of_rows = {field.name: field for field in histogram.schema(key, columns, intervals, dated=dated).members.fields}
    ranked = Members(
        "RankedRow",
        (Field("rank", Leaf.INTEGER, "from 1 on"), of_rows["key"], of_rows["values"]),
    )
    names = ("window_start", "window_end", *(("window_date",) if dated else ()), "trigger", "of_triggers")
    first = [of_rows[name] for name in names]
    last = [of_rows[name] for name in ("strategy", "epoch", "schema")]
    members = (
        *first,
        Field("ranking", Leaf.TEXT, "what is first, in words of SQL"),
        Field("rows", Several(ranked), "the first released rows; a key that is not among them may still be large"),
        *last,
    )
    return RowSchema(Members("TopRow", members), "The first rows of one release of a private histogram.", VERSION)
