"""Rows as Avro records, column by column: byte for byte what fastavro writes of the rows' JSON."""

import struct
from collections.abc import Sequence
from typing import Any, Final

import numpy as np

from susurrus.topics.wire.column_writer import ColumnWriter, by_text, integers
from susurrus.topics.wire.row_parts import Doubles, Keys, Part, ScalarForm, Texts, Varints, varint, zigzag
from susurrus.topics.wire.row_schema import Field, Leaf
from susurrus.topics.wire.timestamps import parse_time

_NULL, _BOOLEAN, _LONG, _DOUBLE, _STRING, _UNSIGNED = (varint(zigzag(branch)) for branch in range(6))
"""Branches of the union that a part of a key is, in their order in the schema (avro.py)."""
_THERE: Final = varint(zigzag(1))
"""The branch of a member that may be null. Null is the first one."""
_MOST_DIGITS: Final = 20
"""Of a decimal in the schema."""


def _other(part: Any) -> bytes:
    """A number that a long does not hold: a decimal, or a double where it is negative or has a fraction."""
    if type(part) is int and part > 0:
        if len(str(part)) > _MOST_DIGITS:
            raise ValueError(f"a part of a key has more than {_MOST_DIGITS} digits")
        data = part.to_bytes(part.bit_length() // 8 + 1, "big")
        return _UNSIGNED + varint(zigzag(len(data))) + data
    if type(part) in (int, float):
        return _DOUBLE + struct.pack("<d", part)
    raise ValueError("a part of a key is no scalar")


_FORM: Final = ScalarForm(
    tag=None,
    null=_NULL,
    false=_BOOLEAN + b"\0",
    true=_BOOLEAN + b"\1",
    integer=_LONG,
    zigzag=True,
    text=_STRING,
    factor=2,  # the zigzag of a length
    other=_other,
)


class AvroColumns(ColumnWriter):
    """Writes the schema of `AvroRows`."""

    absent = _NULL

    def message(self, number: int, field: Field, body: Sequence[Part]) -> list[Part]:
        """The members themselves."""
        return [*_branch(field), *body]

    def leaf(self, number: int, field: Field, value: Any) -> list[Part]:
        """The bytes of a column."""
        return [*_branch(field), _leaf(field, value)]

    def form(self, number: int) -> ScalarForm:
        """The same for all parts."""
        return _FORM


def _branch(field: Field) -> list[Part]:
    return [] if field.presence == "always" else [_THERE]


def _leaf(field: Field, value: Any) -> Part:
    match field.type:
        case Leaf.NUMBER:
            return Doubles(b"", np.asarray(value, np.float64), zeros=True)
        case Leaf.INTEGER:
            numbers = integers(field, value)
            return Varints(b"", ((numbers << 1) ^ (numbers >> 63)).view(np.uint64), zeros=True)
        case Leaf.TEXT:
            return Texts(by_text(_text, value))
        case Leaf.INSTANT:
            return Texts(by_text(_instant, value))
        case _:
            return Keys(value, (_FORM,))


def _text(text: str) -> bytes:
    data = text.encode()
    return varint(zigzag(len(data))) + data


def _instant(text: str) -> bytes:
    return varint(zigzag(parse_time(text)))
