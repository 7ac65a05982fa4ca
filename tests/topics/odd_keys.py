"""Keys as they may be published: canonical JSON of scalars that producers may write."""

from collections.abc import Sequence
from typing import Any

import msgspec
import numpy as np
from hypothesis import strategies as st

ODD: Sequence[Any] = (
    *(None, True, False, "", "a", '"', "\\", "/", "\n", "\x00", "\x7f", "\u2028", "ä", "日本", "😀", "%b", "null", "1"),
    *(",", "[", ']"', '","', "a" * 63, "a" * 64, "ä" * 64, "a" * 8191, "a" * 8192),
    *(0, 1, -1, 63, 64, -64, -65, 2**31, 2**53 + 1, 10**17, 10**18 - 1, 10**18, -(10**18)),
    *(2**63 - 1, -(2**63), 2**63, 2**63 + 1, 2**64 - 1),
    *(0.0, -0.0, 1.0, 1.5, -2.5e17, 1e22, 1e-7, 5e-324, 1.7976931348623157e308),
)


def key_parts(arity: int) -> st.SearchStrategy[tuple[Any, ...]]:
    """The parts of a key."""
    text = st.text(st.characters(exclude_categories=["Cs"]))
    number = st.integers(-(2**63), 2**64 - 1) | st.floats(allow_nan=False, allow_infinity=False)
    return st.tuples(*[st.sampled_from(ODD) | text | number] * arity)


def random_parts(generator: np.random.Generator, arity: int) -> tuple[Any, ...]:
    """The same, many of them in a short time."""
    return tuple(_random_part(generator) for _ in range(arity))


def _random_part(generator: np.random.Generator) -> Any:
    match int(generator.integers(5)):
        case 0:
            return ODD[int(generator.integers(len(ODD)))]
        case 1:
            return int(generator.integers(-(2**63), 2**63)) >> int(generator.integers(64))
        case 2:
            return int(generator.integers(0, 2**64, dtype=np.uint64)) >> int(generator.integers(64))
        case 3:
            number = float(generator.integers(0, 2**64, dtype=np.uint64).view(np.float64))
            return number if np.isfinite(number) else 0.5
        case _:
            codes = generator.integers(1, [0x100, 0x800, 0xD800][int(generator.integers(3))], generator.integers(9))
            return "".join(map(chr, codes.tolist()))


def keys_of(parts: Sequence[tuple[Any, ...]]) -> list[bytes]:
    """Canonical JSON, as topics/records/categories.py makes it."""
    return [msgspec.json.encode(part[0] if len(part) == 1 else part) for part in parts]
