"""progress: which trigger each partition of histogram has completed, empty releases included. Public.

A record is written in the release's own transaction. A reader that has seen (window, trigger) from all `of_partitions`
partitions knows how many rows each announced. It has the whole trigger once it has that many rows, since the partitions of
a transaction become visible one after the other. Later triggers of a partition imply the earlier ones, so compaction may
keep only the last per (epoch, window, partition). An epoch publishes with noise of its own, from each window's first
trigger on. Rows of two epochs are never put together; the epoch with the higher number is the newer.

Trigger 0 says that a window is skipped: `[budget]`, which renews, had no room for it, and nothing of it is published. One partition
says it for all.
"""

from typing import Annotated

import msgspec

from susurrus.topics.wire.json_rows import decoder
from susurrus.topics.wire.row_schema import Field, Leaf, Members, RowSchema
from susurrus.topics.wire.timestamps import format_time, parse_time

VERSION = 1
SCHEMA = RowSchema(
    Members(
        "Progress",
        (
            Field("window", Leaf.INSTANT, "the window's first instant"),
            Field("trigger", Leaf.INTEGER, "the release that this partition has completed; 0: the window is skipped"),
            Field("of_triggers", Leaf.INTEGER, "releases of the window"),
            Field("partition", Leaf.INTEGER, "of histogram and latest"),
            Field("of_partitions", Leaf.INTEGER, "a release is complete when so many partitions have announced it"),
            Field("rows", Leaf.INTEGER, "rows of the release in this partition"),
            Field(
                "rolling_rows",
                Leaf.INTEGER,
                "rows of rolling at this trigger, where there is a rolling view",
                "optional",
            ),
            Field(
                "remembered",
                Leaf.INTEGER,
                "keys of this partition that are public because the window before has published them, where keys are remembered",
                "optional",
            ),
            Field(
                "persistence",
                Leaf.NUMBER,
                "how much of an earlier window had lasted, which the window's shares of the budget follow: 0 to 1, in tenths",
                "optional",
            ),
            Field("epoch", Leaf.TEXT, "as in the rows"),
            Field("epoch_number", Leaf.INTEGER, "a newer epoch has a higher one"),
            Field("schema", Leaf.INTEGER, "increases when a known member changes its meaning"),
        ),
    ),
    "One partition has published everything of a release.",
    VERSION,
    always_json=True,
)


class Progress(msgspec.Struct, frozen=True, kw_only=True):
    """One partition has published everything of a trigger.

    window: start in ms. trigger: 1..of_triggers; 0 where the window is skipped. partition: of histogram. rows: published rows,
    a function of the rows. epoch: as in the rows, hex. epoch_number: 1, 2, …; a newer epoch has a higher one. rolling_rows: rows of
    the rolling view, None where the trigger has none. remembered: keys of the partition that the window before has handed on, 0
    before it is over; None where no keys are remembered. persistence: kappa of the window, 0 to 1; None where shares follow
    nothing. Both are functions of released rows (docs/guarantees/memory.md), so a reader learns nothing from them.
    """

    window: int
    trigger: int
    of_triggers: int
    partition: int
    of_partitions: int
    rows: int
    epoch: str
    epoch_number: int = 1
    rolling_rows: int | None = None
    remembered: int | None = None
    persistence: float | None = None

    @property
    def skips(self) -> bool:
        """Whether it says that the window is skipped: there is no release of it in this epoch."""
        return self.trigger == 0


class _Key(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    epoch: str
    window: str
    partition: int


class _Value(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    window: str
    trigger: Annotated[int, msgspec.Meta(ge=0)]
    of_triggers: Annotated[int, msgspec.Meta(ge=1)]
    partition: Annotated[int, msgspec.Meta(ge=0)]
    of_partitions: Annotated[int, msgspec.Meta(ge=1)]
    rows: Annotated[int, msgspec.Meta(ge=0)]
    rolling_rows: Annotated[int, msgspec.Meta(ge=0)] | None = None
    remembered: Annotated[int, msgspec.Meta(ge=0)] | None = None
    persistence: Annotated[float, msgspec.Meta(ge=0, le=1)] | None = None
    epoch: str
    epoch_number: Annotated[int, msgspec.Meta(ge=1)]
    schema: int


_decode = decoder(_Value, "progress record", VERSION, times=("window",))


def encode(progress: Progress) -> tuple[bytes, bytes]:
    """Key and value."""
    window = format_time(progress.window)
    value = _Value(**msgspec.structs.asdict(progress) | {"window": window, "schema": VERSION})
    key = _Key(epoch=progress.epoch, window=window, partition=progress.partition)
    return msgspec.json.encode(key), msgspec.json.encode(value)


def decode(value: bytes) -> Progress:
    """Raises MalformedRecord."""
    fields = msgspec.structs.asdict(_decode(value))
    del fields["schema"]
    return Progress(**fields | {"window": parse_time(fields["window"])})
