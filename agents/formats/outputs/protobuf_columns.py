"""Rows as Protobuf messages, column by column: byte for byte what the library writes of the rows' JSON.

A field is its tag (number and wire type) and its value. A number or text that is 0 or empty is left out, unless its presence is
marked: it may be absent, or is a member of a `oneof`, as the kinds of a scalar are.
"""

import struct
from collections.abc import Sequence
from functools import cache, partial
from typing import Any

import numpy as np

from susurrus.topics.wire.column_writer import ColumnWriter, by_text, integers
from susurrus.topics.wire.row_parts import WORD, Delimited, Doubles, Keys, Part, ScalarForm, Texts, Varints, varint
from susurrus.topics.wire.row_schema import Field, Leaf
from susurrus.topics.wire.timestamps import parse_time

_VARINT, _FIXED, _BYTES = 0, 1, 2
"""Wire types."""


def _tag(number: int, wire: int) -> bytes:
    return varint(number << 3 | wire)


_BOOLEAN, _INTEGER, _UNSIGNED = (_tag(number, _VARINT) for number in (1, 2, 3))
_NUMBER, _TEXT = _tag(4, _FIXED), _tag(5, _BYTES)
"""Members of a Scalar, in their order in the schema (protobuf.py)."""
_SECONDS, _NANOS = _tag(1, _VARINT), _tag(2, _VARINT)
"""Members of a Timestamp."""


def _other(part: Any) -> bytes:
    """A number that int64 does not hold."""
    if type(part) is float:
        return _NUMBER + struct.pack("<d", part)
    if type(part) is int and 0 <= part <= WORD:
        return _UNSIGNED + varint(part)
    raise ValueError("a part of a key is no scalar, or an integer of more than 64 bits")


class ProtobufColumns(ColumnWriter):
    """Writes the schema of `ProtobufRows`."""

    absent = b""

    def message(self, number: int, field: Field, body: Sequence[Part]) -> list[Part]:
        """Tag, length, members."""
        return [Delimited(_tag(number, _BYTES), body)]

    def leaf(self, number: int, field: Field, value: Any) -> list[Part]:
        """Tags and values of a column."""
        marked = field.presence != "always"
        match field.type:
            case Leaf.NUMBER:
                return [Doubles(_tag(number, _FIXED), np.asarray(value, np.float64), zeros=marked)]
            case Leaf.INTEGER:
                numbers = integers(field, value).view(np.uint64)
                return [Varints(_tag(number, _VARINT), numbers, zeros=marked)]
            case Leaf.TEXT:
                return [Texts(by_text(partial(_text, _tag(number, _BYTES), marked), value))]
            case Leaf.INSTANT:
                return [Texts(by_text(partial(_timestamp, _tag(number, _BYTES)), value))]
            case _:
                return [Keys(value, (self.form(number),))]

    def form(self, number: int) -> ScalarForm:
        """A message with one member, or none for null."""
        return _form(number)


@cache
def _form(number: int) -> ScalarForm:
    return ScalarForm(
        tag=_tag(number, _BYTES),
        null=b"",
        false=_BOOLEAN + b"\0",
        true=_BOOLEAN + b"\1",
        integer=_INTEGER,
        zigzag=False,
        text=_TEXT,
        factor=1,
        other=_other,
    )


def _text(tag: bytes, marked: bool, text: str) -> bytes:
    data = text.encode()
    return tag + varint(len(data)) + data if data or marked else b""


def _timestamp(tag: bytes, text: str) -> bytes:
    seconds, milliseconds = divmod(parse_time(text), 1000)
    body = _SECONDS + varint(seconds & WORD) if seconds else b""
    if milliseconds:
        body += _NANOS + varint(milliseconds * 1_000_000)
    return tag + varint(len(body)) + body
