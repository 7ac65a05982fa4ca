"""Lookup tables: public files beside the configuration, of which an expression finds a value by its key.

`lookup('countries.csv', code)` is a function of one record and a constant: it finds the same for equal keys, whatever stands beside
the record, and nothing of a record reaches the table. The table is read once, when the configuration is read, and its content is
part of the digest. The engine reaches no file: it is given a function for each column that is asked for.
"""

import csv
import hashlib
import io
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, NamedTuple

from susurrus.mechanisms.errors import ConfigurationError

NAME: Final = "lookup"
"""What the function is called in an expression."""
MAX_VALUE_BYTES: Final = 1_024
"""The longest value of a table in bytes of UTF-8: what the size of an expression counts for one (growth.py)."""
MAX_FILE_BYTES: Final = 16 << 20
_USE: Final = (
    "write lookup('countries.csv', code), with a file beside the configuration, and a third text for another column"
)
_FILE: Final = re.compile(r"[A-Za-z0-9_-][A-Za-z0-9._-]{0,127}")
_UTF8_BOM: Final = "\ufeff"


class LookupCall(NamedTuple):
    """What an expression asks for: a file, and the name of the column with the values; None is the second."""

    file: str
    column: str | None

    @property
    def function(self) -> str:
        """What the engine calls it. It depends on the call alone, so every engine has the same."""
        return f"lookup_{hashlib.blake2b(repr(tuple(self)).encode(), digest_size=12).hexdigest()}"


@dataclass(frozen=True, slots=True, eq=False)
class LookupTable:
    """A file as it was read. sha256: of its bytes, hexadecimal. keys: how many. columns: by name, values by their keys."""

    sha256: str
    keys: int
    columns: Mapping[str, Mapping[str, str]]

    def finder(self, column: str | None) -> "Find":
        """A function from a key to its value; None where there is no such key, or no key. Raises KeyError for a column that is not
        there."""
        values = next(iter(self.columns.values())) if column is None else self.columns[column]

        def find(key: str | None) -> str | None:
            return None if key is None else values.get(key)

        return find


Find = Callable[[str | None], str | None]
LookupTables = Mapping[str, LookupTable]
"""By the name of the file."""


def finders(tables: LookupTables, calls: Iterable[LookupCall]) -> dict[str, Find]:
    """For each call the function that answers it, by the name under which the engine calls it. Raises KeyError where its table is
    not there."""
    return {call.function: tables[call.file].finder(call.column) for call in calls}


def is_lookup(node: Mapping[str, Any]) -> bool:
    """Whether a node of the engine's tree is a call of this function."""
    return node["class"] == "FUNCTION" and str(node["function_name"]).lower() == NAME


def problem_of_lookup(node: Mapping[str, Any]) -> str | None:
    """What is wrong with the arguments of a call."""
    arguments = _arguments(node)
    if len(arguments) not in (2, 3):
        return f"lookup takes a file, a key and, if there are several columns, the name of one; {_USE}"
    for argument in (arguments[0], *arguments[2:]):
        if argument["class"] != "CONSTANT" or argument["literal"].get("kind") != "STRING":
            return f"file and column of lookup must be written out in single quotes; {_USE}"
    file = str(arguments[0]["literal"]["text"])
    if not _FILE.fullmatch(file):
        return f"lookup reads files beside the configuration only, by their plain names, without folders; {_USE}"
    return None


def call_of(node: Mapping[str, Any]) -> LookupCall:
    """What a call asks for, once it has no problem."""
    file, *column = (str(one["literal"]["text"]) for one in (_arguments(node)[0], *_arguments(node)[2:]))
    return LookupCall(file, column[0] if column else None)


def key_of(node: Mapping[str, Any]) -> Any:
    """The expression of the key."""
    return _arguments(node)[1]


def _arguments(node: Mapping[str, Any]) -> list[Any]:
    return [argument["expression"] for argument in node["arguments"]]


def read_tables(calls: Iterable[LookupCall], directory: Path) -> dict[str, LookupTable]:
    """The tables of these calls, in the order of their names. Raises ConfigurationError where a file cannot be used, or has no such
    column. It does not say what is in a file."""
    calls = list(calls)
    tables = {file: _read(directory / file, file) for file in sorted({call.file for call in calls})}
    for file, column in calls:
        if column is not None and column not in tables[file].columns:
            known = ", ".join(tables[file].columns)
            raise ConfigurationError(
                f"lookup('{file}'): the file has no column \"{column}\" behind its first one", f"name one of: {known}"
            )
    return tables


def _read(path: Path, file: str) -> LookupTable:
    called = f"lookup('{file}')"
    try:
        with path.open("rb") as opened:
            data = opened.read(MAX_FILE_BYTES + 1)
        text = data.decode("utf-8").removeprefix(_UTF8_BOM)
    except (OSError, ValueError):
        raise ConfigurationError(
            f"{called}: the file cannot be read", "put a file in UTF-8 of that name beside the configuration"
        ) from None
    if len(data) > MAX_FILE_BYTES:
        raise ConfigurationError(
            f"{called}: the file has more than {MAX_FILE_BYTES:,} bytes",
            "join so large a table before, for example with Flink",
        )
    lines = _lines(text, called)
    _, names = next(lines, (1, []))
    if len(names) < 2 or len(set(names)) < len(names) or not all(names):
        raise ConfigurationError(
            f"{called}: the first line does not name two columns or more",
            "begin the file with, for example: code,country",
        )
    keys: dict[str, None] = {}
    rows: list[list[str]] = []
    for number, row in lines:
        if len(row) != len(names):
            problem = f"has {len(row)} fields, and the first line names {len(names)}"
        elif row[0] in keys:
            problem = "has the key of a line before"
        elif max(len(value.encode()) for value in row[1:]) > MAX_VALUE_BYTES:
            problem = f"has a value of more than {MAX_VALUE_BYTES:,} bytes"
        else:
            keys[row[0]] = None
            rows.append(row[1:])
            continue
        raise ConfigurationError(f"{called}: line {number} {problem}", "correct the line")
    columns = {name: dict(zip(keys, (row[place] for row in rows), strict=True)) for place, name in enumerate(names[1:])}
    return LookupTable(hashlib.sha256(data).hexdigest(), len(keys), columns)


def _lines(text: str, called: str) -> Iterator[tuple[int, list[str]]]:
    """Lines that are not empty, with their numbers."""
    reader = csv.reader(io.StringIO(text, newline=""), strict=True)
    try:
        for row in reader:
            if row:
                yield reader.line_num, row
    except csv.Error:
        raise ConfigurationError(
            f"{called}: line {reader.line_num} is no line of CSV",
            "write fields with commas in double quotes, and close each quote",
        ) from None
