"""What a record has beside its value, as columns: key, headers, topic, partition, offset and time stamp.

The key has a format of its own. A header is text in UTF-8, or its bytes where an expression looks at these. Of several headers with
one name the last counts, as in Kafka's own clients.
"""

from collections.abc import Callable, Sequence
from typing import Any, Final, Protocol

from msgspec import UNSET

from susurrus.agents.expressions.beside import HEADER_BYTES
from susurrus.agents.finding import Finding
from susurrus.agents.formats.format import Format, Overdue
from susurrus.agents.formats.keys import SCALAR_KEYS
from susurrus.topics.records.fields import BESIDE, Path, written
from susurrus.topics.records.reason import Reason
from susurrus.topics.records.table import RecordTable, headers_of, keys_of
from susurrus.topics.wire.batch_reader import Headers

KEY: Final = (BESIDE, "key")
HEADERS: Final = (BESIDE, "headers")
BYTES_OF_HEADERS: Final = (BESIDE, HEADER_BYTES)

Failed = dict[int, Reason]


class Record(Protocol):
    """A record of Kafka, as far as it is read."""

    @property
    def offset(self) -> int: ...
    @property
    def timestamp(self) -> int: ...
    @property
    def key(self) -> bytes | None: ...
    @property
    def value(self) -> bytes | None: ...
    @property
    def headers(self) -> Headers: ...


class Beside:
    """Columns for paths of what is beside the value.

    key: the name of one of SCALAR_KEYS, or a format that was made for the paths of the key, below it. topic, partition: of all
    records; None where each says its own.
    """

    def __init__(self, paths: Sequence[Path], key: str | Format, *, topic: str | None, partition: int | None) -> None:
        constant = {"topic": topic, "partition": partition}
        self._key, self._constant = key, {name: value for name, value in constant.items() if value is not None}
        self._of_key = [path for path in paths if path[:2] == KEY]
        self._headers = [path for path in paths if path[:2] in (HEADERS, BYTES_OF_HEADERS)]
        self._others = [path for path in paths if path not in self._of_key and path not in self._headers]
        self.patience = key.patience if isinstance(key, Format) else 0
        """How long after a record was written the schema of its key may become known, in ms."""
        self.waits: Finding | None = None

    @property
    def idle(self) -> bool:
        """Whether there are no paths."""
        return not (self._of_key or self._headers or self._others)

    def columns(self, records: Sequence[Record], overdue: Overdue) -> tuple[dict[Path, list[Any]], dict[Path, Failed]]:
        """A column for each path, and the rows at which one could not be read. Columns of the key may end early: ``waits`` says
        why."""
        columns: dict[Path, list[Any]] = {path: self._plain(path[1], records) for path in self._others}
        failed: dict[Path, Failed] = {}
        if self._headers:
            named = [dict(headers) for headers in headers_of(records)]
            for path in self._headers:
                read = bytes.decode if path[:2] == HEADERS else bytes
                columns[path], failed[path] = _each(
                    read, [one.get(path[2], UNSET) for one in named], Reason.UNREADABLE_HEADER
                )
        if isinstance(self._key, str):
            for path in self._of_key:
                columns[path], failed[path] = _each(SCALAR_KEYS[self._key], keys_of(records), Reason.UNREADABLE_KEY)
        elif self._of_key:
            self._read_keys(self._key, records, overdue, columns, failed)
        return columns, failed

    def close(self) -> None:
        """Close connections."""
        if isinstance(self._key, Format):
            self._key.close()

    def _plain(self, name: str, records: Sequence[Record]) -> list[Any]:
        if name in self._constant:
            return [self._constant[name]] * len(records)
        if isinstance(records, RecordTable) and name in ("offset", "timestamp"):
            return list(getattr(records, name).tolist())
        return [getattr(record, name) for record in records]

    def _read_keys(
        self,
        form: Format,
        records: Sequence[Record],
        overdue: Overdue,
        columns: dict[Path, list[Any]],
        failed: dict[Path, Failed],
    ) -> None:
        headers = headers_of(records) if form.reads_headers else None
        for path in self._of_key:
            columns[path], failed[path] = [], {}
        start = 0
        for chunk in form.read(keys_of(records), overdue, headers):
            for path, column in zip(self._of_key, chunk.columns, strict=True):
                columns[path] += chunk.spread(column)
                failed[path].update(
                    # No key is as a null key.
                    {
                        start + row: Reason.UNREADABLE_KEY
                        for row, why in chunk.refused.items()
                        if why != Reason.TOMBSTONE
                    }
                )
            start += chunk.rows
        self.waits = form.waits


def _each(read: Callable[[bytes], Any], values: Sequence[Any], why: Reason) -> tuple[list[Any], Failed]:
    """Each value by itself; none and absent stay so."""
    column: list[Any] = []
    failed: Failed = {}
    for row, value in enumerate(values):
        try:
            column.append(value if value is None or value is UNSET else read(value))
        except ValueError:
            column.append(UNSET)
            failed[row] = why
    return column, failed


def problem(path: Path, key: str) -> str | None:
    """Why a path beside the value leads to nothing that could be read. key: the key's format."""
    name, rest = path[1], path[2:]
    if path[:2] == BYTES_OF_HEADERS:
        return None  # an expression has made it of a header's path
    if name == "headers":
        return None if len(rest) == 1 else f"{written(path)}: name one header, as $headers.user-id"
    if name == "key":
        if rest and key in SCALAR_KEYS:
            return f'{written(path)}: a key in input.key_format = "{key}" has no fields; write $key, or name its format'
        return None
    if name == "envelope":
        return None if rest else f"{written(path)}: name a field inside it"
    return (
        f"{written(path)}: {'write its field without $value' if name == 'value' else 'it has no fields'}"
        if rest
        else None
    )
