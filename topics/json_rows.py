"""JSON values of the public topics: rows by the thousand from one template a batch, and decoders of versioned records."""

from collections.abc import Callable, Mapping, Sequence
from typing import Protocol, TypeVar

import msgspec
import numpy as np
import numpy.typing as npt

from susurrus.topics.packing import MalformedRecord
from susurrus.topics.timestamps import parse_time

Numbers = npt.NDArray[np.int64] | npt.NDArray[np.float64]


def text(value: str) -> bytes:
    """A JSON string."""
    return msgspec.json.encode(value)


def number(value: float, name: str) -> bytes:
    """A JSON number with the shortest digits that read back the same. Raises ValueError when it is not finite."""
    if not np.isfinite(value):
        raise ValueError(f"{name}={value} is not finite, which is never published")
    return msgspec.json.encode(value)


def numbers(column: Numbers, n: int, name: str, *, missing: bool = False) -> list[bytes]:
    """n JSON numbers. missing: NaN becomes null; else what is not finite raises ValueError, as does another length."""
    if column.shape != (n,):
        raise ValueError(f"{name} has shape {column.shape} and does not fit {n} rows")
    finite = np.isfinite(column)
    if not finite.all() and not (missing and np.isnan(column[~finite]).all()):
        raise ValueError(f"a number of {name} is not finite, which is never published")
    return msgspec.json.encode(column.tolist())[1:-1].split(b",") if n else []  # msgspec writes NaN as null


Members = Mapping[str, "bytes | Sequence[bytes] | Members"]
"""A JSON object: a constant, a column of texts, or an object, by name; all texts are JSON."""


def rows(members: Members) -> list[bytes]:
    """One JSON object a row, filled into one template; the columns are of one length."""
    columns: list[Sequence[bytes]] = []

    def template(value: bytes | Sequence[bytes] | Members) -> bytes:
        if isinstance(value, bytes):
            return _literal(value)
        if isinstance(value, Mapping):
            return b"{" + b",".join(_literal(text(name)) + b":" + template(of) for name, of in value.items()) + b"}"
        columns.append(value)
        return b"%b"

    pattern = template(members)
    return [pattern % fields for fields in zip(*columns, strict=True)]


def _literal(constant: bytes) -> bytes:
    return constant.replace(b"%", b"%%")


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
