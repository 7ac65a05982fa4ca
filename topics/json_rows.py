"""JSON rows by the thousand: columns of numbers to texts, and one template per batch. Used by the public topics."""

from collections.abc import Sequence

import msgspec
import numpy as np
import numpy.typing as npt

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


def literal(constant: bytes) -> bytes:
    """A constant of a template, where a percent sign is written twice."""
    return constant.replace(b"%", b"%%")


def fill(template: bytes, columns: Sequence[Sequence[bytes]]) -> list[bytes]:
    """Row i of the template: its %b in turn from row i of the columns."""
    return [template % fields for fields in zip(*columns, strict=True)]
