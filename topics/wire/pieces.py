"""Parts of rows (row_parts.py) to bytes with numpy. A piece is what n rows have in one place:

    bytes          the same in all rows
    uint8[n, w]    w bytes in each row: doubles, and what stands around them
    list[bytes]    texts, and all else whose length differs from row to row

What has one length stays a matrix as long as it can: a matrix is made without a Python object per row.
"""

from collections.abc import Sequence
from itertools import repeat
from typing import TypeAlias

import msgspec
import numpy as np
import numpy.typing as npt

from susurrus.topics.wire.json_rows import spread
from susurrus.topics.wire.row_parts import (
    Delimited,
    Doubles,
    Keys,
    OfSome,
    Part,
    Texts,
    Varints,
    array_of,
    varint,
)

Matrix: TypeAlias = npt.NDArray[np.uint8]
Piece: TypeAlias = bytes | Matrix | list[bytes]

_decode = msgspec.json.Decoder().decode
_QUOTE, _BACKSLASH = ord('"'), b"\\"


def texts(piece: Piece, n: int) -> list[bytes]:
    """The bytes of each of n rows."""
    if isinstance(piece, bytes):
        return [piece] * n
    if isinstance(piece, list):
        return piece
    listed: list[bytes] = np.ascontiguousarray(piece).view(f"V{piece.shape[1]}").ravel().tolist()
    return listed


def row_of(parts: Sequence[Part], n: int) -> Piece:
    """The parts of n rows, one behind the other."""
    return _joined([_piece(part, n) for part in parts], n)


def _piece(part: Part, n: int) -> Piece:
    match part:
        case bytes():
            return part
        case Doubles():
            column = np.ascontiguousarray(part.numbers.astype("<f8"))
            bits = column.view(np.uint8).reshape(n, 8)
            there = np.ones(n, np.bool_) if part.zeros else column.view(np.uint64) != 0
            return _of_some(there, _joined([part.tag, bits[there]], int(np.count_nonzero(there))), b"")
        case Varints():
            there = np.ones(n, np.bool_) if part.zeros else part.numbers != 0
            number = int(np.count_nonzero(there))
            return _of_some(there, _joined([part.tag, _varints(part.numbers[there])], number), b"")
        case Texts():
            return list(part.texts)
        case Keys():
            return _keys(part)
        case Delimited():
            return _behind_length(part.tag, row_of(part.parts, n))
        case OfSome():
            number = int(np.count_nonzero(part.rows))
            return _of_some(part.rows, row_of(part.parts, number), part.otherwise)


def _joined(pieces: Sequence[Piece], n: int) -> Piece:
    found = [piece for piece in pieces if not isinstance(piece, bytes) or piece]
    if len(found) < 2:
        return found[0] if found else b""
    if any(isinstance(piece, list) for piece in found):
        columns = [repeat(piece, n) if isinstance(piece, bytes) else texts(piece, n) for piece in _runs(found, n)]
        return list(map(b"".join, zip(*columns, strict=True)))
    return _side_by_side(found, n)


def _runs(pieces: Sequence[Piece], n: int) -> list[Piece]:
    """The same with matrices that stand side by side as one, together with what is the same in all rows between them."""
    found: list[Piece] = []
    matrices: list[Piece] = []
    for piece in [*pieces, None]:
        if isinstance(piece, bytes | np.ndarray) and (matrices or isinstance(piece, np.ndarray)):
            matrices.append(piece)
            continue
        last = [matrices.pop()] if matrices and isinstance(matrices[-1], bytes) else []
        found += [*([_side_by_side(matrices, n)] if len(matrices) > 1 else matrices), *last]
        matrices = []
        if piece is not None:
            found.append(piece)
    return found


def _side_by_side(pieces: Sequence[Piece], n: int) -> Matrix:
    """One matrix of pieces that have one length each."""
    parts = [np.frombuffer(piece, np.uint8) if isinstance(piece, bytes) else np.asarray(piece) for piece in pieces]
    found = np.empty((n, sum(part.shape[-1] for part in parts)), np.uint8)
    at = 0
    for part in parts:
        found[:, at : at + part.shape[-1]] = part
        at += part.shape[-1]
    return found


def _behind_length(tag: bytes, piece: Piece) -> Piece:
    """tag, the piece's length, the piece."""
    if isinstance(piece, bytes):
        return tag + varint(len(piece)) + piece
    if isinstance(piece, list):
        before = {length: tag + varint(length) for length in set(map(len, piece))}
        return [before[len(text)] + text for text in piece]
    return _side_by_side([tag + varint(piece.shape[1]), piece], len(piece))


def _of_some(some: npt.NDArray[np.bool_], piece: Piece, otherwise: bytes) -> Piece:
    """The piece, of the k rows that have it, in their places; the other rows have ``otherwise``. some: bool[n]."""
    number = int(np.count_nonzero(some))
    if number == len(some):
        return piece
    return spread(texts(piece, number), some, otherwise) if number else otherwise


def _varints(numbers: npt.NDArray[np.uint64]) -> Piece:
    """LEB128 of each number: one to ten bytes."""
    width = np.ones(len(numbers), np.intp)
    for bits in range(7, 64, 7):
        width += numbers >= np.uint64(1 << bits)
    widths = np.unique(width).tolist()
    if len(widths) < 2:
        return _leb128(numbers, widths[0] if widths else 1)
    found = np.empty(len(numbers), object)
    for one in widths:
        of_it = np.flatnonzero(width == one)
        found[of_it] = texts(_leb128(numbers[of_it], one), len(of_it))
    listed: list[bytes] = found.tolist()
    return listed


def _leb128(numbers: npt.NDArray[np.uint64], width: int) -> Matrix:
    """The numbers in ``width`` bytes each, which is how many they need."""
    found = np.empty((len(numbers), width), np.uint8)
    for index in range(width):
        more = np.uint64(128 if index < width - 1 else 0)
        found[:, index] = numbers >> np.uint64(7 * index) & np.uint64(127) | more
    return found


def _keys(part: Keys) -> Piece:
    """Key by key what `Keys.of` says."""
    keys = part.keys
    if len(part.forms) == 1:
        [form] = part.forms
        before, escapes = form.prefixes, _BACKSLASH in b"".join(keys)
        # A text in which nothing is escaped is what stands between its quotes. To ask each key takes as long as to write it.
        return [
            before[len(key) - 2] + key[1:-1]
            if key[0] == _QUOTE and not (escapes and _BACKSLASH in key)
            else form.of(_decode(key))
            for key in keys
        ]
    forms = [(form, form.prefixes) for form in part.forms]
    # One key after the other: the arrays of all keys at once would keep Python's garbage collector busy.
    return [
        b"".join(
            [
                before[len(text := scalar.encode())] + text if type(scalar) is str else form.of(scalar)
                for (form, before), scalar in zip(forms, scalars, strict=True)
            ]
        )
        for scalars in map(array_of, keys)
    ]
