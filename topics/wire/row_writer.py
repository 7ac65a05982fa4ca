"""Rows of a binary format from their parts (row_parts.py): compiled where that was built, else with numpy.

`pieces` is the definition. The compiled form is topics/rust/src/rows.rs; it asks `Keys.of` for each key that is not plain.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np

from susurrus.topics.compiled import compiled
from susurrus.topics.wire import pieces
from susurrus.topics.wire.row_parts import Delimited, Doubles, Keys, OfSome, Part, Texts, Varints


def written(parts: Sequence[Part], n: int) -> list[bytes]:
    """n rows. Raises ValueError where a key does not fit its forms."""
    if compiled is None:
        return pieces.texts(pieces.row_of(parts, n), n)
    found: list[bytes] = compiled.write_rows(n, list(map(_tuple, parts)))
    return found


def _tuple(part: Part) -> tuple[Any, ...]:
    """A part as the compiled code takes it: its name, and columns as bytes in the machine's order."""
    match part:
        case bytes():
            return "constant", part
        case Doubles():
            return "doubles", part.tag, part.numbers.astype(np.float64).tobytes(), part.zeros
        case Varints():
            return "varints", part.tag, part.numbers.astype(np.uint64).tobytes(), part.zeros
        case Texts():
            return "texts", list(part.texts)
        case Keys():
            return "keys", list(part.keys), list(part.forms), part.of
        case Delimited():
            return "delimited", part.tag, list(map(_tuple, part.parts))
        case OfSome():
            return "some", part.rows.astype(np.bool_).tobytes(), list(map(_tuple, part.parts)), part.otherwise
