"""Rows of a public topic in a binary format, column by column: what formats have in common.

A row's schema (row_schema.py) and its columns (json_rows.py) have the same shape. A writer goes through both once for a chunk of
rows, and finds what each row is made of (row_parts.py). row_writer.py makes the rows. Their bytes are those of the rows' JSON,
translated.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import msgspec
import numpy as np
import numpy.typing as npt

from susurrus.topics.wire.json_rows import Members as Values
from susurrus.topics.wire.json_rows import OfSomeRows, OrNull, Value
from susurrus.topics.wire.public_rows import PublicRows
from susurrus.topics.wire.row_parts import Keys, OfSome, Part, ScalarForm, merged
from susurrus.topics.wire.row_schema import Field, Leaf, Members, Parts, RowSchema, Several, Type
from susurrus.topics.wire.row_writer import written

_decode = msgspec.json.Decoder().decode


class ColumnWriter(ABC):
    """Writes rows of one schema. prefix: what each of them begins with. schema: one that it `writes`."""

    absent: bytes
    """What stands in the place of a member that a row does not have."""

    def __init__(self, schema: RowSchema, prefix: bytes) -> None:
        self._members, self._prefix = schema.members, prefix

    @staticmethod
    def writes(kind: Type) -> bool:
        """Whether rows of the type have columns: lists have none."""
        if isinstance(kind, Members | Parts):
            return all(ColumnWriter.writes(field.type) for field in kind.fields)
        return not isinstance(kind, Several)

    def write(self, rows: PublicRows) -> list[bytes]:
        """The topic's values. Members that the schema does not know are left out.

        Raises KeyError where one is missing that is always there, ValueError where a number or a key does not fit the schema.
        """
        found: list[bytes] = []
        for n, members in rows.chunks():
            parts = merged([self._prefix, *self._record(self._members, members, n)])
            found += written(parts, n)
        return found

    def _record(self, kind: Members, values: Values, n: int) -> list[Part]:
        """The members of an object, in the order of the schema."""
        return [part for at, field in enumerate(kind.fields, 1) for part in self._member(at, field, values, n)]

    def _member(self, number: int, field: Field, values: Values, n: int) -> list[Part]:
        if field.presence != "always" and field.name not in values:
            return [self.absent]
        value = values[field.name]
        if isinstance(value, OfSomeRows | OrNull):
            there = int(np.count_nonzero(value.rows))
            parts = self._present(number, field, value.of, there)
            return [OfSome(value.rows, merged(parts), self.absent)]
        return self._present(number, field, value, n)

    def _present(self, number: int, field: Field, value: Value, n: int) -> list[Part]:
        """A member that all n rows have."""
        if isinstance(value, str | int | float):  # a column of one row
            column = [msgspec.json.encode(value)] if isinstance(value, str) else np.array([value])
            return list(written(self.leaf(number, field, column), 1))
        if isinstance(value, OfSomeRows | OrNull):
            raise TypeError(f"{field.name}: what some rows have has itself what some rows have")
        if isinstance(field.type, Members):
            if not isinstance(value, Mapping):
                raise TypeError(f"{field.name}: an object of the schema is a column")
            return self.message(number, field, merged(self._record(field.type, value, n)))
        if isinstance(field.type, Parts):
            forms = tuple(self.form(at) for at, _ in enumerate(field.type.fields, 1))
            return self.message(number, field, [Keys(value, forms)])  # type: ignore[arg-type]  # texts, by the schema
        return self.leaf(number, field, value)

    # ---- of a format -------------------------------------------------------------------------------------------------

    @abstractmethod
    def message(self, number: int, field: Field, body: Sequence[Part]) -> list[Part]:
        """A member that is an object. number: the field's in its object, from 1 on. body: the object's members."""

    @abstractmethod
    def leaf(self, number: int, field: Field, value: Any) -> list[Part]:
        """A member without members. value: a column of numbers, or of JSON texts."""

    @abstractmethod
    def form(self, number: int) -> ScalarForm:
        """How a part of a key is written. number: its, from 1 on."""


def by_text(made: Callable[[str], bytes], column: Sequence[bytes]) -> list[bytes]:
    """made: from a decoded JSON text, called once for each of those in the column, which are few."""
    known = {text: made(_decode(text)) for text in set(column)}
    return [known[text] for text in column]


def integers(field: Field, column: Any) -> npt.NDArray[np.int64]:
    """The column as int64[n]. Raises ValueError where it has other numbers."""
    numbers = np.asarray(column)
    if field.type is not Leaf.INTEGER or numbers.dtype.kind != "i":
        raise ValueError(f"{field.name} has numbers of type {numbers.dtype}, which are no integers of 64 bits")
    return numbers.astype(np.int64)
