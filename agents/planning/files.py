"""Sample files as the chunks that a decoder of raw records takes: JSON lines, CSV, tab-separated text and Parquet.

    file ──▶ here: the fields at some paths ──▶ expressions, decoder (sample.py)

The name's end says what a file is (`FORMS`); text may be compressed with gzip. JSON lines are read as the records of a raw topic
are. The cells of a CSV file are texts: a column becomes numbers where all its cells are (`_typed`), since expressions and measured
fields need numbers. What is wrong with one record is a Reason in its row, as in the pipeline.
"""

import csv
import gzip
import re
import zlib
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from itertools import islice
from pathlib import Path as FilePath
from typing import Any, Final, TextIO, cast

from susurrus.agents.formats.json import Json
from susurrus.mechanisms.errors import ConfigurationError
from susurrus.topics.records.fields import Path
from susurrus.topics.records.payloads import CHUNK, Chunk, chunk_of_objects
from susurrus.topics.records.reason import Reason

FORMS: Final = (".jsonl", ".ndjson", ".json", ".csv", ".tsv", ".parquet")

_SEPARATORS: Final = ",;\t|"
_INTEGER: Final = re.compile(r"0|-?[1-9][0-9]{0,17}")
"""An integer as JSON writes it, so that no two texts become one number."""
_NUMBER: Final = re.compile(r"-?[0-9]+(\.[0-9]*)?([eE][-+]?[0-9]+)?|-?\.[0-9]+([eE][-+]?[0-9]+)?")
_TRUTH: Final = {"true": True, "false": False}


def chunks(file: FilePath, paths: Sequence[Path], *, names: Collection[Path]) -> Iterator[Chunk]:
    """The records of a file, with a column for each path.

    names: those of the paths that say who or what, such as the user and the key: their texts are told apart as they are
    written. Raises ConfigurationError for a file that cannot be read, or has no column of a path.
    """
    ends = file.suffixes
    packed = bool(ends) and ends[-1].lower() == ".gz"
    form = (ends[-1 - packed] if len(ends) > packed else "").lower()
    if form not in FORMS or (packed and form == ".parquet"):
        raise ConfigurationError(
            f"{file}: its name does not say what it is; let it end in {', '.join(FORMS)} (text also with .gz)"
        )
    try:
        if form == ".parquet":
            yield from _parquet(file, paths)
        elif form in (".csv", ".tsv"):
            with _text(file, packed) as text:
                yield from _separated(file, text, paths, names, tab=form == ".tsv")
        else:
            open_bytes: Callable[..., Any] = gzip.open if packed else open
            with open_bytes(file, "rb") as lines:
                yield from _json(lines, paths)
    except (OSError, EOFError, csv.Error, zlib.error) as error:
        raise ConfigurationError(
            f"{file}: cannot be read ({_said(error)}); correct its name, or write it again"
        ) from None


def _said(error: Exception) -> str:
    """What happened, without the words of a library: they may quote a record."""
    return (isinstance(error, OSError) and error.strerror) or type(error).__name__


def _json(lines: Iterable[bytes], paths: Sequence[Path]) -> Iterator[Chunk]:
    reader, filled = Json(paths, None), (line for line in lines if line.strip())
    while batch := list(islice(filled, CHUNK)):
        yield from reader.read(batch, lambda row: True)


def _text(file: FilePath, packed: bool) -> TextIO:
    # A byte that is no UTF-8 is kept apart, and its record refused, as the pipeline refuses it.
    open_text: Callable[..., Any] = gzip.open if packed else open
    return cast("TextIO", open_text(file, "rt", encoding="utf-8-sig", errors="surrogateescape", newline=""))


def _separated(
    file: FilePath, lines: TextIO, paths: Sequence[Path], names: Collection[Path], *, tab: bool
) -> Iterator[Chunk]:
    """The cells of the paths' columns, typed by the whole column: so the whole file is read before the first chunk."""
    first = lines.readline()
    separator = "\t" if tab else max(_SEPARATORS, key=first.count)
    quoting: Any = csv.QUOTE_NONE if tab else csv.QUOTE_MINIMAL
    header = next(csv.reader([first], delimiter=separator, quoting=quoting), [])
    places = _places(file, header, paths)
    cells: list[list[Any]] = [[] for _ in paths]
    refused: dict[int, Reason] = {}
    rows = 0
    for row in csv.reader(lines, delimiter=separator, quoting=quoting):
        if not row:
            continue
        if len(row) != len(header):
            refused[rows] = Reason.UNDECODABLE
        elif any(not _is_text(row[place]) for place in places):
            refused[rows] = Reason.INVALID_UTF8
        else:
            for column, place in zip(cells, places, strict=True):
                column.append(row[place])
        rows += 1
    columns = [_typed(column, path in names) for path, column in zip(paths, cells, strict=True)]
    yield from _cut(rows, columns, refused)


def _places(file: FilePath, header: Sequence[str], paths: Sequence[Path]) -> list[int]:
    """Where the column of each path stands."""
    wanted = [".".join(path) for path in paths]
    if missing := [name for name in wanted if name not in header]:
        raise ConfigurationError(
            f"{file}: has no column {', '.join(missing)}, but {', '.join(header) or 'none at all'}: correct [input] and "
            "[[columns]], or give the file a first line with the names of the fields"
        )
    return [header.index(name) for name in wanted]


def _is_text(cell: str) -> bool:
    return cell.isascii() or not any("\ud800" <= character <= "\udfff" for character in cell)


def _typed(cells: list[str], name: bool) -> list[Any]:
    """Cells as JSON scalars; an empty one is null. name: of users or keys, where 1.0 and 1.00 are not the same."""
    filled = {cell for cell in cells if cell}
    read: Callable[[str], Any] = str
    if filled and all(map(_INTEGER.fullmatch, filled)):
        read = int
    elif filled and not name and all(map(_NUMBER.fullmatch, filled)):
        read = float
    elif filled and filled <= _TRUTH.keys():
        read = _TRUTH.__getitem__
    known: Mapping[str, Any] = {"": None} | {cell: read(cell) for cell in filled}
    return [known[cell] for cell in cells]


def _cut(rows: int, columns: Sequence[list[Any]], refused: Mapping[int, Reason]) -> Iterator[Chunk]:
    """Whole columns in chunks."""
    taken = 0
    for start in range(0, rows, CHUNK):
        size = min(CHUNK, rows - start)
        bad = {row - start: refused[row] for row in range(start, start + size) if row in refused} if refused else {}
        good = size - len(bad)
        yield Chunk(rows=size, columns=[column[taken : taken + good] for column in columns], refused=bad)
        taken += good


def _parquet(file: FilePath, paths: Sequence[Path]) -> Iterator[Chunk]:
    """Reads by the engine of the expressions, which knows Parquet. A time without a zone is UTC."""
    import duckdb  # takes long to load, and most samples are not Parquet

    with file.open("rb"):  # an error of the system rather than of the engine
        pass
    with duckdb.connect(":memory:", config={"threads": "1", "autoinstall_known_extensions": "false"}) as engine:
        engine.execute("SET TimeZone = 'UTC'")
        try:
            described = engine.execute("DESCRIBE SELECT * FROM read_parquet(?)", [str(file)]).fetchall()
            outer = list(dict.fromkeys(path[0] for path in paths))
            _places(file, [name for name, *_ in described], [(name,) for name in outer])
            columns = ", ".join('"' + name.replace('"', '""') + '"' for name in outer)
            found = engine.execute(f"SELECT {columns} FROM read_parquet(?)", [str(file)])
            while rows := found.fetchmany(CHUNK):
                records = [dict(zip(outer, map(_zoned, row), strict=True)) for row in rows]
                yield chunk_of_objects(records, paths)
        except duckdb.Error as error:
            raise OSError(None, type(error).__name__) from None


def _zoned(value: Any) -> Any:
    if isinstance(value, datetime) and value.tzinfo is None:
        return value.replace(tzinfo=UTC)
    return value
