"""Declared keys: public knowledge, from a list in the configuration, a file of JSON lines or a product of values, in the
decoder's canonical form.

A declared key must be byte for byte the key that records of the raw topic decode to, or the same key would be published
twice; topics/records/categories.py defines that form.
"""

import json
from collections.abc import Iterable, Mapping, Sequence
from itertools import product
from math import prod
from pathlib import Path
from typing import Any, Final

import msgspec

from susurrus.mechanisms.errors import ConfigurationError

MOST_COMBINATIONS: Final = 20_000
"""Keys of a product: each of them is a row at every trigger, and all of them are in one record of the ledger."""
_ENCODER = msgspec.json.Encoder()


def canonical(keys: Iterable[Any]) -> tuple[bytes, ...]:
    """Canonical JSON of keys, sorted, without duplicates. A key is a JSON scalar, or a tuple of them if it is
    composite."""
    return tuple(sorted({_ENCODER.encode(_plain(key)) for key in keys}))


def read(path: Path, arity: int) -> tuple[bytes, ...]:
    """The keys of a file with one JSON scalar (or array of ``arity`` scalars) a line.

    Raises ConfigurationError that names the line, but not what is in it.
    """
    keys: list[Any] = []
    try:
        # Not splitlines: a JSON text may hold a line separator such as U+2028.
        lines = path.read_text(encoding="utf-8").split("\n")
    except (OSError, UnicodeDecodeError):
        raise ConfigurationError(
            f'keys.declared_file = "{path}": cannot be read; give a UTF-8 file of JSON lines'
        ) from None
    for number, line in enumerate(lines, start=1):
        if not line.strip():
            continue
        try:
            key = json.loads(line, parse_constant=_refuse_constant)
        except ValueError:
            raise ConfigurationError(
                f'keys.declared_file = "{path}": line {number} is not JSON; write one scalar or array a line'
            ) from None
        parts = key if isinstance(key, list) else [key]
        if len(parts) != arity or any(isinstance(part, dict | list) for part in parts):
            raise ConfigurationError(
                f'keys.declared_file = "{path}": line {number} needs scalar parts={arity}, as input.key has'
            )
        keys.append(tuple(parts) if isinstance(key, list) else key)
    if not keys:
        raise ConfigurationError(f'keys.declared_file = "{path}": is empty; list at least one key, or leave it out')
    return canonical(keys)


def combined(values: Mapping[str, Sequence[Any]], parts: Sequence[str]) -> tuple[bytes, ...]:
    """All combinations of the values, as ``canonical`` has them. parts: names of the key's parts, in their order; each is one of
    ``values``."""
    ordered = [values[part] for part in parts]
    return canonical(ordered[0] if len(ordered) == 1 else product(*ordered))


def number_of_combinations(values: Mapping[str, Sequence[Any]]) -> int:
    """How many there are, values that are given twice counted twice."""
    return prod(map(len, values.values()))


def _plain(key: Any) -> Any:
    if isinstance(key, tuple | list):
        return [_plain(part) for part in key]
    # 1 and 1.0 are one key, -0.0 is 0; True is an int to Python, but another key in JSON.
    return int(key) if isinstance(key, float) and key.is_integer() else key


def _refuse_constant(name: str) -> None:
    raise ValueError(f"{name} is not JSON")
