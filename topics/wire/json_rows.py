"""JSON values of the public topics: rows by the thousand from one template a batch, and decoders of versioned records."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol, TypeAlias, TypeVar

import msgspec
import numpy as np
import numpy.typing as npt

from susurrus.topics.wire.packing import MalformedRecord
from susurrus.topics.wire.timestamps import parse_time

Numbers = npt.NDArray[np.int64] | npt.NDArray[np.float64]

Value: TypeAlias = "str | float | Numbers | Sequence[bytes] | Members | OfSomeRows | OrNull"
"""What rows have in one place: a constant, a column of numbers, a column of JSON texts, or an object, also one of some rows."""
Members: TypeAlias = Mapping[str, Value]
"""A JSON object: by name what its members are."""


@dataclass(frozen=True, slots=True, eq=False)
class OfSomeRows:
    """An object that only some rows have; the others have no such member. It is not the first member of its object.

    rows: bool[n]. of: columns of the k rows that have it, in their order; at least one.
    """

    rows: npt.NDArray[np.bool_]
    of: Members


@dataclass(frozen=True, slots=True, eq=False)
class OrNull:
    """A number or an object that only some rows have; the others have null.

    rows: bool[n]. of: columns of the k rows that have it, in their order.
    """

    rows: npt.NDArray[np.bool_]
    of: Numbers | Members


def rows(n: int, members: Members) -> list[bytes]:
    """n JSON objects from one template. Numbers have the shortest digits that read back the same.

    Raises ValueError where a number is not finite, which is never published, or a column has another length.
    """
    check(members, "", n)
    return checked_rows(n, members)


def checked_rows(n: int, members: Members) -> list[bytes]:
    """The same of members that are checked."""
    columns: list[Sequence[bytes]] = []
    pattern = _template(members, n, columns)
    return [pattern % fields for fields in zip(*columns, strict=True)] if columns else [pattern % ()] * n


def check(value: Value, name: str, n: int) -> None:
    """Raises ValueError where a number is not finite, or a column has another length. name: of the member, with a dot before it."""
    if isinstance(value, Mapping):
        for inner, of in value.items():
            check(of, f"{name}.{inner}", n)
    elif isinstance(value, OfSomeRows | OrNull):
        if value.rows.shape != (n,):
            raise ValueError(f"{name[1:]} has rows of shape {value.rows.shape} and does not fit {n} rows")
        check(value.of, name, int(np.count_nonzero(value.rows)))
    elif not isinstance(value, str):
        if isinstance(value, int | float | np.ndarray) and not np.isfinite(value).all():
            raise ValueError(f"a number of {name[1:]} is not finite, which is never published")
        if isinstance(value, int | float):
            return
        shape = value.shape if isinstance(value, np.ndarray) else (len(value),)
        if shape != (n,):
            raise ValueError(f"{name[1:]} has shape {shape} and does not fit {n} rows")


def _template(value: Value, n: int, columns: list[Sequence[bytes]]) -> bytes:
    """The template of a value, whose columns are added to ``columns``.

    Not a function inside `rows`: one that calls itself is a cycle, and would keep the columns of every release until Python's
    collector runs.
    """
    if isinstance(value, Mapping):
        return b"{" + b"".join(_member(of, inner, n, columns) for inner, of in value.items())[1:] + b"}"
    if isinstance(value, str):
        return _literal(value)
    if isinstance(value, int | float):
        return msgspec.json.encode(value)
    if isinstance(value, OfSomeRows):
        raise TypeError("an object of some rows is a member of another")
    if isinstance(value, OrNull):
        columns.append(spread(_texts_of(value), value.rows, b"null"))
    else:
        columns.append(texts(value) if isinstance(value, np.ndarray) else value)
    return b"%b"


def _member(of: Value, inner: str, n: int, columns: list[Sequence[bytes]]) -> bytes:
    """The template of a member with the comma before it. inner: its name."""
    if not isinstance(of, OfSomeRows):
        return b"," + _literal(inner) + b":" + _template(of, n, columns)
    before = b"," + msgspec.json.encode(inner) + b":"
    columns.append(spread([before + text for text in _texts_of(of)], of.rows, b""))
    return b"%b"


def _texts_of(value: OfSomeRows | OrNull) -> list[bytes]:
    """The JSON of the rows that have something."""
    if isinstance(value.of, np.ndarray):
        return texts(value.of)
    return checked_rows(int(np.count_nonzero(value.rows)), value.of)


def spread(made: Sequence[bytes], some: npt.NDArray[np.bool_], otherwise: bytes) -> list[bytes]:
    """What was made for some rows, in their places; the other rows have one text. some: bool[n]."""
    found = iter(made)
    return [next(found) if there else otherwise for there in some.tolist()]


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
