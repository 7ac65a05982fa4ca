"""Rows on their way to public topics: in the configured format, each with its receipt.

A release may have millions of rows. What is sent of them are columns until the producer takes a row: dicts of all of them would
need as much memory again, and Python's garbage collector would go through them for seconds.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, overload

from susurrus.agents.formats.outputs.format import Writer
from susurrus.topics.receipt import Receipt
from susurrus.topics.wire.public_rows import PublicRows


class RowMessages(Sequence[dict[str, Any]]):
    """Messages of rows: each is made when it is asked for. stamps: ms. extra: what all of them have."""

    def __init__(
        self,
        keys: Sequence[bytes],
        values: Sequence[bytes | None],
        stamps: Sequence[int],
        extra: Mapping[str, Any],
    ) -> None:
        if not len(keys) == len(values) == len(stamps):
            raise ValueError(
                f"{len(keys)} keys, {len(values)} values and {len(stamps)} time stamps are not of the same rows"
            )
        self._keys, self._values, self._stamps, self._extra = keys, values, stamps, extra

    def __len__(self) -> int:
        return len(self._keys)

    def __iter__(self) -> Iterator[dict[str, Any]]:
        extra = self._extra
        for key, value, stamp in zip(self._keys, self._values, self._stamps, strict=True):
            yield {"key": key, "value": value, "timestamp": stamp, **extra}

    @overload
    def __getitem__(self, row: int) -> dict[str, Any]: ...

    @overload
    def __getitem__(self, row: slice) -> "RowMessages": ...

    def __getitem__(self, row: int | slice) -> "dict[str, Any] | RowMessages":
        if isinstance(row, slice):
            return RowMessages(self._keys[row], self._values[row], self._stamps[row], self._extra)
        return {"key": self._keys[row], "value": self._values[row], "timestamp": self._stamps[row], **self._extra}


class Publisher:
    """Makes messages of rows. make_writers: called once, by `open`; None where all rows are JSON. receipt: None for no header."""

    def __init__(
        self, make_writers: Callable[[], Mapping[str, Writer]] | None = None, receipt: Receipt | None = None
    ) -> None:
        self._make_writers = make_writers
        self._writers: Mapping[str, Writer] | None = {} if make_writers is None else None
        """The writer of each topic, by its full name. A topic without one stays JSON."""
        self._extra: dict[str, Any] = {} if receipt is None else {"headers": [receipt.header()]}

    def open(self) -> None:
        """Look the rows' schemas up, and register those that are missing. Raises ConfigurationError where that is not possible."""
        if self._make_writers is not None:
            self._writers = self._make_writers()

    def messages(
        self, topics: Sequence[str], keys: Sequence[bytes], rows: PublicRows, stamps: Iterable[int]
    ) -> list[RowMessages]:
        """Returns for each topic the messages of the same rows, which share what is encoded. stamps: ms."""
        if self._writers is None:
            raise RuntimeError("rows cannot be written before the publisher is open")
        times, encoded = list(stamps), dict[int | None, Sequence[bytes]]()
        found = []
        for topic in topics:
            writer = self._writers.get(topic)
            name = None if writer is None else writer.schema_id
            if name not in encoded:
                encoded[name] = rows.json if writer is None else writer.encode(rows)
            found.append(RowMessages(keys, encoded[name], times, self._extra))
        return found

    def withdrawals(self, keys: Sequence[bytes], stamps: Iterable[int]) -> RowMessages:
        """Messages without a value, by which a compacted topic forgets rows. stamps: ms."""
        return RowMessages(keys, [None] * len(keys), list(stamps), self._extra)
