"""JSON values of the public topics: rows by the thousand from one template a batch, and decoders of versioned records."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol, TypeVar

import msgspec
import numpy as np
import numpy.typing as npt

from susurrus.topics.wire.packing import MalformedRecord
from susurrus.topics.wire.timestamps import parse_time

Numbers = npt.NDArray[np.int64] | npt.NDArray[np.float64]

Members = Mapping[str, "str | float | Numbers | Sequence[bytes] | Members | OfSomeRows"]
"""A JSON object: by name a constant, a column of numbers, a column of JSON texts, or an object, also one of some rows."""


@dataclass(frozen=True, slots=True, eq=False)
class OfSomeRows:
    """An object that only some rows have; the others have no such member. It is not the first member of its object.

    rows: bool[n]. members: columns of the k rows that have it, in their order; at least one.
    """

    rows: npt.NDArray[np.bool_]
    members: Members


def rows(n: int, members: Members) -> list[bytes]:
    """n JSON objects from one template. Numbers have the shortest digits that read back the same.

    Raises ValueError where a number is not finite, which is never published, or a column has another length.
    """
    columns: list[Sequence[bytes]] = []
    pattern = _template(members, "", n, columns)
    return [pattern % fields for fields in zip(*columns, strict=True)]


def _template(
    value: "str | float | Numbers | Sequence[bytes] | Members", name: str, n: int, columns: list[Sequence[bytes]]
) -> bytes:
    """The template of a value, whose columns are added to ``columns``.

    Not a function inside `rows`: one that calls itself is a cycle, and would keep the columns of every release until Python's
    collector runs.
    """
    if isinstance(value, Mapping):
        parts = [_member(of, f"{name}.{inner}", inner, n, columns) for inner, of in value.items()]
        return b"{" + b"".join(parts)[1:] + b"}"
    if isinstance(value, str):
        return _literal(value)
    if isinstance(value, int | float | np.ndarray) and not np.isfinite(value).all():
        raise ValueError(f"a number of {name[1:]} is not finite, which is never published")
    if isinstance(value, int | float):
        return msgspec.json.encode(value)
    shape = value.shape if isinstance(value, np.ndarray) else (len(value),)
    if shape != (n,):
        raise ValueError(f"{name[1:]} has shape {shape} and does not fit {n} rows")
    columns.append(texts(value) if isinstance(value, np.ndarray) else value)
    return b"%b"


def _member(
    of: "str | float | Numbers | Sequence[bytes] | Members | OfSomeRows",
    name: str,
    inner: str,
    n: int,
    columns: list[Sequence[bytes]],
) -> bytes:
    """The template of a member with the comma before it. inner: the last part of its name."""
    if not isinstance(of, OfSomeRows):
        return b"," + _literal(inner) + b":" + _template(of, name, n, columns)
    if of.rows.shape != (n,):
        raise ValueError(f"{name[1:]} has rows of shape {of.rows.shape} and does not fit {n} rows")
    some = np.flatnonzero(of.rows)
    theirs: list[Sequence[bytes]] = []
    pattern = _member(of.members, name, inner, len(some), theirs)
    texts_of = [b""] * n
    for row, fields in zip(some.tolist(), zip(*theirs, strict=True), strict=True):
        texts_of[row] = pattern % fields
    columns.append(texts_of)
    return b"%b"


def _literal(constant: str) -> bytes:
    """A JSON string, inside a template."""
    return msgspec.json.encode(constant).replace(b"%", b"%%")


def texts(column: Numbers) -> list[bytes]:
    """The JSON of each number."""
    return msgspec.json.encode(column.tolist())[1:-1].split(b",") if len(column) else []


class Versioned(Protocol):
    """A record that says by which schema it was written."""

    @property
    def schema(self) -> int: ...


Found = TypeVar("Found", bound=Versioned)


def decoder(record: type[Found], name: str, version: int = 1, *, times: Sequence[str] = ()) -> Callable[[bytes], Found]:
    """A function that returns the record of a JSON value. It raises MalformedRecord; fields of later versions are ignored.

    name: of the topic, for messages. times: names of the fields that hold RFC 3339 instants.
    """
    json = msgspec.json.Decoder(record)

    def decode(value: bytes) -> Found:
        """The record. Raises MalformedRecord."""
        try:
            found = json.decode(value)
            for field in times:
                parse_time(getattr(found, field))
        except (ValueError, RecursionError) as error:
            raise MalformedRecord(f"{name}: {error}") from None
        if found.schema != version:
            raise MalformedRecord(f"{name} schema={found.schema} is not {version}: upgrade the reader")
        return found

    return decode
