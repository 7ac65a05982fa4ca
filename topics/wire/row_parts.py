"""What rows of a binary format are made of, in the order of their bytes. n rows have the same parts, and their own bytes in each.

A part is bytes that are the same in all rows, or one of the classes below. row_writer.py makes rows of them.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, TypeAlias

import msgspec
import numpy as np
import numpy.typing as npt

INT64: Final = range(-(1 << 63), 1 << 63)
WORD: Final = (1 << 64) - 1
_decode = msgspec.json.Decoder().decode
array_of = msgspec.json.Decoder(tuple[Any, ...]).decode
"""The decoded parts of a key that has several. Raises ValueError where it is no array."""


def varint(number: int) -> bytes:
    """LEB128 of an integer from 0 on."""
    found = bytearray()
    while number > 127:
        found.append(number & 127 | 128)
        number >>= 7
    found.append(number)
    return bytes(found)


def zigzag(number: int) -> int:
    """0, -1, 1, -2, … as 0, 1, 2, 3, …"""
    return 2 * number if number >= 0 else -2 * number - 1


class Prefixes(dict[int, bytes]):
    """By the length of a text, what stands before it. make: from the length; called once for each."""

    def __init__(self, make: Callable[[int], bytes]) -> None:
        super().__init__()
        self._make = make

    def __missing__(self, length: int) -> bytes:
        found = self[length] = self._make(length)
        return found


@dataclass(frozen=True, slots=True, eq=False)
class Doubles:
    """tag and IEEE 754, little-endian. numbers: float64[n]. zeros: whether 0 is written; -0 always is."""

    tag: bytes
    numbers: npt.NDArray[np.float64]
    zeros: bool


@dataclass(frozen=True, slots=True, eq=False)
class Varints:
    """tag and LEB128. numbers: uint64[n]. zeros: whether 0 is written."""

    tag: bytes
    numbers: npt.NDArray[np.uint64]
    zeros: bool


@dataclass(frozen=True, slots=True, eq=False)
class Texts:
    """n texts as they are."""

    texts: Sequence[bytes]


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class ScalarForm:
    """How a part of a key is written: a mark, and for an integer or a text what follows.

    tag: what stands before the part and its length; None where neither does. zigzag: integers are, else they are two's complement.
    factor: of a text's length, as it is written. other: writes numbers that int64 does not hold; raises ValueError for all else.
    """

    tag: bytes | None
    null: bytes
    false: bytes
    true: bytes
    integer: bytes
    zigzag: bool
    text: bytes
    factor: int
    other: Callable[[Any], bytes]
    prefixes: Prefixes = field(init=False)
    """What stands before a text, by its length in bytes."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "prefixes", Prefixes(self._before))

    def _before(self, length: int) -> bytes:
        inner = self.text + varint(length * self.factor)
        return inner if self.tag is None else self.tag + varint(len(inner) + length) + inner

    def of(self, part: Any) -> bytes:
        """The bytes of a decoded part. Raises ValueError where it is no scalar that the format has."""
        if type(part) is str:
            data = part.encode()
            return self.prefixes[len(data)] + data
        if part is None:
            found = self.null
        elif type(part) is bool:
            found = self.true if part else self.false
        elif type(part) is int and part in INT64:
            found = self.integer + varint(zigzag(part) if self.zigzag else part & WORD)
        else:
            found = self.other(part)
        return found if self.tag is None else self.tag + varint(len(found)) + found


@dataclass(frozen=True, slots=True, eq=False)
class Keys:
    """n keys, canonical JSON each. forms: of their parts. A key of one part is a scalar, else an array."""

    keys: Sequence[bytes]
    forms: tuple[ScalarForm, ...]

    def of(self, key: bytes) -> bytes:
        """The bytes of one key. Raises ValueError where it does not fit."""
        parts = (_decode(key),) if len(self.forms) == 1 else array_of(key)
        return b"".join([form.of(part) for form, part in zip(self.forms, parts, strict=True)])


@dataclass(frozen=True, slots=True, eq=False)
class Delimited:
    """tag, the length of the parts, and the parts."""

    tag: bytes
    parts: "Sequence[Part]"


@dataclass(frozen=True, slots=True, eq=False)
class OfSome:
    """parts: of the k rows that have them; the others have ``otherwise``. rows: bool[n]."""

    rows: npt.NDArray[np.bool_]
    parts: "Sequence[Part]"
    otherwise: bytes


Part: TypeAlias = bytes | Doubles | Varints | Texts | Keys | Delimited | OfSome


def merged(parts: Sequence[Part]) -> list[Part]:
    """The same, with bytes that stand side by side as one part."""
    found: list[Part] = []
    for part in parts:
        last = found[-1] if found else None
        if isinstance(part, bytes) and isinstance(last, bytes):
            found[-1] = last + part
        elif part != b"":
            found.append(part)
    return found
