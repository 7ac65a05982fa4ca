"""Rows on their way to public topics: in the configured format, each with its receipt."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from susurrus.agents.formats.outputs.format import Writer
from susurrus.topics.receipt import Receipt
from susurrus.topics.wire.public_rows import PublicRows


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
    ) -> list[list[dict[str, Any]]]:
        """Returns for each topic the messages of the same rows. stamps: ms.

        The producer writes into the messages, so topics cannot share them. They share what is encoded.
        """
        if self._writers is None:
            raise RuntimeError("rows cannot be written before the publisher is open")
        times, encoded = list(stamps), dict[int | None, Sequence[bytes]]()
        found = []
        for topic in topics:
            writer = self._writers.get(topic)
            name = None if writer is None else writer.schema_id
            if name not in encoded:
                encoded[name] = rows.json if writer is None else writer.encode(rows)
            found.append(
                [
                    {"key": key, "value": value, "timestamp": stamp, **self._extra}
                    for key, value, stamp in zip(keys, encoded[name], times, strict=True)
                ]
            )
        return found

    def withdrawals(self, keys: Sequence[bytes], stamps: Iterable[int]) -> list[dict[str, Any]]:
        """Messages without a value, by which a compacted topic forgets rows. stamps: ms."""
        return [
            {"key": key, "value": None, "timestamp": stamp, **self._extra}
            for key, stamp in zip(keys, stamps, strict=True)
        ]
