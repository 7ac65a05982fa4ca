"""Schemas of Avro as programs of the compiled reader (topics/rust/src/avro.rs).

A program takes a record only if fastavro must read it, and each of its fields, in the same way. What it does not know is a step
that takes nothing, or no program: then fastavro reads the records.
"""

import json
import struct
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from typing import Any, Final

from susurrus.agents.formats.avro_resolution import CONSTANT, UNRESOLVED, WIDENED, Resolution, Unresolved
from susurrus.agents.formats.format import Programs
from susurrus.topics.compiled import compiled
from susurrus.topics.records.fields import Path, numbered

_MOST_STEPS: Final = 5_000
_DEEPEST: Final = 60
_MOST_SIZE: Final = 1 << 31
_LEAVE: Final = ("leave",)
_PLAIN: Final = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_")
_LONGS: Final = (-(2**63), 2**63 - 1)

Step = tuple[Any, ...]
_Wanted = int | dict[str, Any] | None
"""Of a value: the number of its path, what is wanted of its fields, or nothing."""

_SCALARS: Final[dict[str, Step]] = {
    "null": ("null",),
    "boolean": ("boolean",),
    "int": ("integer", *_LONGS),  # fastavro does not look at the range
    "long": ("integer", *_LONGS),
    "float": ("float",),
    "double": ("double",),
    "string": ("string",),
    "bytes": ("bytes", None),
    WIDENED: ("widened",),
}
"""Steps without the number of their path, which comes behind the kind."""
_WITHIN: Final[dict[str, tuple[int, int]]] = {
    "int-date": (-719_162, 2_932_896),
    "int-time-millis": (0, 86_399_999),
    "long-time-micros": (0, 86_399_999_999),
}
"""Logical types of integers, and which of these have a value. What it is, only Python knows."""
_INSTANTS: Final[dict[str, int]] = {
    "long-timestamp-millis": 1,
    "long-timestamp-micros": 1_000,
    "long-timestamp-nanos": 1_000_000,
}
"""Instants, by how many there are in a millisecond."""
_LOCAL: Final[dict[str, int]] = {
    "long-local-timestamp-millis": 1,
    "long-local-timestamp-micros": 1_000,
    "long-local-timestamp-nanos": 1_000_000,
}
"""The same of local times, which Python places in their zone."""


class _NoProgram(Exception):
    """Says of a schema that it has no program."""


class AvroPrograms(Programs):
    """Programs for the fields at distinct ``paths``.

    known: the schemas that are there before any record, by their numbers. found: the schemas of other numbers, as far as they can
    be had now; None where there are no others. names: of a schema, the definitions of its named types; None of one that may be
    costly. reader: the reader's schema and its names, where there is one beside the writer's.
    """

    def __init__(
        self,
        prefix: tuple[bytes, int, range],
        paths: Sequence[Path],
        known: Mapping[int, Any],
        found: Callable[[Sequence[int]], Iterator[tuple[int, Any]]] | None,
        names: Callable[[Any], Mapping[str, Any] | None],
        reader: tuple[Any, Mapping[str, Any]] | None = None,
    ) -> None:
        super().__init__(prefix)
        self._paths, self._known, self._found, self._names, self._reader = paths, known, found, names, reader

    def known(self) -> Iterator[tuple[int | None, Any]]:
        """Answers `Programs.known`."""
        for number, schema in self._known.items():
            yield number, self._program(schema)
        if self._found is None:
            yield None, None

    def of(self, numbers: Sequence[int]) -> Iterator[tuple[int, Any]]:
        """Answers `Programs.of`."""
        for number, schema in () if self._found is None else self._found(numbers):
            yield number, self._program(schema)

    def _program(self, schema: Any) -> Any:
        names = None if schema is None else self._names(schema)
        step = None if names is None else step_of(schema, names, self._paths, self._reader)
        return None if step is None else compiled.avro_program(step, len(self._paths))


def step_of(
    schema: Any, names: Mapping[str, Any], paths: Sequence[Path], reader: tuple[Any, Mapping[str, Any]] | None = None
) -> Step | None:
    """The program of a schema that is not costly, as avro.rs takes it; None where there is none. schema, names, reader: as fastavro
    parses them."""
    try:
        if reader is not None and reader[0] != schema:
            schema = Resolution(names, reader[1], _logical_types()).of(schema, reader[0])
        return _Compiler(names).record(schema, numbered(paths))
    except (_NoProgram, Unresolved, RecursionError, KeyError, TypeError, AttributeError):
        return None  # a schema is what others wrote, and fastavro parses more than Avro allows


class _Compiler:
    def __init__(self, names: Mapping[str, Any]) -> None:
        self._names, self._left = names, _MOST_STEPS

    def record(self, kind: Any, wanted: dict[str, Any]) -> Step:
        """The step of a whole record, which is no scalar."""
        kind = self._resolved(kind)
        if isinstance(kind, list):
            return ("union", *(self.record(branch, wanted) for branch in kind))
        return self.step(kind, wanted, 0) if _type(kind) in ("record", "error") else _LEAVE

    def step(self, kind: Any, wanted: _Wanted, depth: int) -> Step:
        """The step of a value."""
        self._left -= 1
        if self._left < 0 or depth > _DEEPEST:
            raise _NoProgram
        kind = self._resolved(kind)
        if isinstance(kind, list):
            return ("union", *(self.step(branch, wanted, depth + 1) for branch in kind))
        name = _type(kind)
        logical = f"{name}-{kind['logicalType']}" if isinstance(kind, dict) and kind.get("logicalType") else ""
        if name == CONSTANT:
            return _constant(kind["value"], wanted)
        if name == UNRESOLVED:
            return _LEAVE
        if name in ("record", "error"):
            return self._fields(kind, wanted, depth)
        if name in ("array", "map"):
            inside = self.step(kind["items" if name == "array" else "values"], None, depth + 1)
            return (name, inside) if wanted is None else _LEAVE
        if isinstance(wanted, dict):
            # A null parent has no fields; any other that is no object is refused.
            return ("null", None) if name == "null" else _LEAVE
        if logical and logical in _logical_types():
            return _logical(kind, logical, wanted)
        return self._scalar(kind, name, wanted)

    def _fields(self, kind: Any, wanted: _Wanted, depth: int) -> Step:
        if isinstance(wanted, int):
            return _LEAVE  # an object is no scalar
        fields = [(field["name"], field["type"]) for field in kind["fields"]]
        if len(dict(fields)) < len(fields):
            raise _NoProgram
        below = wanted or {}
        return ("record", *(self.step(inner, below.get(name), depth + 1) for name, inner in fields))

    def _scalar(self, kind: Any, name: str, slot: int | None) -> Step:
        if name == "fixed":
            return ("bytes", slot, _size(kind))
        if name == "enum":
            symbols = list(kind["symbols"])
            plain = all(isinstance(symbol, str) and _PLAIN.issuperset(symbol) for symbol in symbols)
            return ("enum", slot, symbols) if plain else _LEAVE
        if name not in _SCALARS:
            raise _NoProgram
        step, *rest = _SCALARS[name]
        return (step, slot, *rest)

    def _resolved(self, kind: Any) -> Any:
        """A name is what it stands for."""
        return self._names[kind] if isinstance(kind, str) and kind not in _SCALARS else kind


def _type(kind: Any) -> str:
    name = kind if isinstance(kind, str) else kind["type"]
    if not isinstance(name, str):
        raise _NoProgram
    return name


def _logical(kind: Any, logical: str, slot: int | None) -> Step:
    """The step of a type of which fastavro makes something else. Also where nobody wants it, it must have a value."""
    if logical in _WITHIN:
        return ("integer", None, *_WITHIN[logical]) if slot is None else _LEAVE
    if logical in _INSTANTS:
        return ("instant", slot, _INSTANTS[logical])
    if logical in _LOCAL:
        return ("instant", None, _LOCAL[logical]) if slot is None else _LEAVE
    if logical == "string-uuid":
        return ("uuid text", slot)
    if logical == "fixed-uuid":
        return ("uuid", slot) if _size(kind) == 16 else _LEAVE
    if logical in ("bytes-decimal", "fixed-decimal"):
        size = _size(kind) if logical == "fixed-decimal" else None
        precision, scale = _integer(kind["precision"], range(1, 1_000)), _integer(kind.get("scale", 0), range(19))
        return ("decimal", slot, precision, scale, size)
    raise _NoProgram


def _constant(value: Any, wanted: _Wanted) -> Step:
    """The step of a field that was not written."""
    if wanted is None or (value is None and isinstance(wanted, dict)):
        return ("record",)  # nothing
    if isinstance(wanted, dict):
        return _LEAVE
    if value is None or type(value) is bool:
        return ("constant", wanted, "null" if value is None else "boolean", json.dumps(value).encode())
    if type(value) is int and _LONGS[0] <= value <= _LONGS[1]:
        return ("constant", wanted, "integer", b"%d" % value)
    if type(value) is float:
        return ("constant", wanted, "float", struct.pack("<d", value))
    plain = type(value) is str and all(one >= " " and one not in '"\\' for one in value) and value.isascii()
    return ("constant", wanted, "text", f'"{value}"'.encode()) if plain else _LEAVE


def _size(kind: Any) -> int:
    return _integer(kind["size"], range(_MOST_SIZE))


def _integer(number: Any, within: range) -> int:
    if type(number) is not int or number not in within:
        raise _NoProgram
    return number


def _logical_types() -> Collection[str]:
    """The types of which fastavro makes something else, by its own names."""
    from fastavro.read import LOGICAL_READERS

    return LOGICAL_READERS
