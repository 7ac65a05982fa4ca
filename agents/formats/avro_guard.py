"""What one payload in Avro can cost: few bytes may ask for endless nesting, or for more values than a machine has memory for.

fastavro reads by recursion in C, so a payload of a recursive schema that nests some thousand levels ends the process. A list of
values that take no bytes (null, an empty record) may have any number of them. Decimals take time with the square of their length.
Each of these would be one record that stops all others, again after each restart.

Of most schemas no payload can do that, which is found once. Those of the others are walked before they are read.
"""

from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final

from susurrus.agents.formats.format import RefusedPayload
from susurrus.topics.records.reason import Reason
from susurrus.topics.records.refusal import MAX_DEPTH

MOST_VALUES: Final = 10_000
VALUES_PER_BYTE: Final = 64
"""A payload may have so many values, and so many more for each of its bytes."""
LONGEST_DECIMAL: Final = 1_000
"""The most bytes of a decimal. Any number of sense has fewer than a hundred."""

_LEAST: Final = {"null": 0, "boolean": 1, "int": 1, "long": 1, "float": 4, "double": 8, "bytes": 1, "string": 1}
PRIMITIVES: Final = frozenset(_LEAST)
Reader = Callable[..., Any]


class _Costly(Exception):
    """Says of a schema that its payloads must be walked."""


def short(read: Reader) -> Reader:
    """fastavro's reader of decimals, for those that are not too long."""

    def of(data: bytes, *schemas: Any) -> Any:
        if len(data) > LONGEST_DECIMAL:
            raise ValueError("a decimal is too long")
        return read(data, *schemas)

    return of


def costly(schema: Any, names: Mapping[str, Any]) -> bool:
    """Whether payloads of a schema must be walked. names: the definitions of named types, as fastavro parses them."""
    try:
        _measured(schema, names, {})
    except (_Costly, RecursionError):
        return True
    return False


def _measured(
    kind: Any, names: Mapping[str, Any], known: dict[str, tuple[int, int, int] | None]
) -> tuple[int, int, int]:
    """(least bytes, values, levels) of a type; what lists and maps hold is not counted. Raises _Costly."""
    if isinstance(kind, str):
        if kind in _LEAST:
            return _LEAST[kind], 1, 0
        if kind not in known:
            known[kind] = None  # under way
            known[kind] = _measured(names[kind], names, known)
        found = known[kind]
        if found is None:
            raise _Costly
        return found
    if isinstance(kind, list):
        branches = [_measured(branch, names, known) for branch in kind]
        return (
            1 + min(least for least, _, _ in branches),
            1 + max(v for _, v, _ in branches),
            max(d for _, _, d in branches),
        )
    type_ = kind["type"]
    if type_ == "enum":
        return 1, 1, 0
    if type_ == "fixed":
        return int(kind["size"]), 1, 0
    if type_ in ("array", "map"):
        least, values, depth = _measured(kind["items" if type_ == "array" else "values"], names, known)
        least += type_ == "map"  # a key
        if values > VALUES_PER_BYTE * least or depth >= MAX_DEPTH:
            raise _Costly
        return 1, 1, depth + 1
    if type_ not in ("record", "error"):
        return _measured(type_, names, known)
    if "name" in kind and known.get(kind["name"], ()) == ():
        known[kind["name"]] = None
    fields = [_measured(field["type"], names, known) for field in kind["fields"]]
    found = sum(f[0] for f in fields), 1 + sum(f[1] for f in fields), 1 + max((f[2] for f in fields), default=0)
    if found[1] > MOST_VALUES or found[2] > MAX_DEPTH:
        raise _Costly
    known[kind["name"]] = found
    return found


def walk(data: bytes, schema: Any, names: Mapping[str, Any]) -> None:
    """Raises RefusedPayload where a payload nests too deep, ValueError where it is cut off or has too many values."""
    _Walk(data, names).value(schema, 0)


class _Walk:
    def __init__(self, data: bytes, names: Mapping[str, Any]) -> None:
        self._data, self._names, self._at = data, names, 0
        self._left = MOST_VALUES + VALUES_PER_BYTE * len(data)

    def value(self, kind: Any, depth: int) -> None:
        """Over a value. depth: how many records, lists and maps it is in."""
        self._left -= 1
        if self._left < 0:
            raise ValueError("too many values")
        while not isinstance(kind, str) or kind not in _LEAST:  # unions and names, down to what they stand for
            if isinstance(kind, str):
                kind = self._names[kind]
            elif isinstance(kind, list):
                branch = self._number()
                if not 0 <= branch < len(kind):
                    raise ValueError("no such branch")
                kind = kind[branch]
            elif kind["type"] in ("record", "error", "array", "map"):
                break
            elif kind["type"] == "fixed":
                return self._skip(int(kind["size"]))
            else:
                kind = "int" if kind["type"] == "enum" else kind["type"]
        if not isinstance(kind, str):
            if depth >= MAX_DEPTH:
                raise RefusedPayload(Reason.TOO_DEEP)
            for inner in self._parts(kind):
                self.value(inner, depth + 1)  # the only call inside a call: a level takes one frame of Python's
        elif kind in ("int", "long"):
            self._number()
        elif kind in ("bytes", "string"):
            self._skip(self._number())
        else:
            self._skip(_LEAST[kind])
        return None

    def _parts(self, kind: Any) -> Iterator[Any]:
        """The types of what is in a record, list or map, each once the one before it is behind."""
        if kind["type"] in ("record", "error"):
            yield from (field["type"] for field in kind["fields"])
            return
        keyed = kind["type"] == "map"
        while count := self._number():
            if count < 0:
                count = -count
                self._number()  # the block's bytes
            for _ in range(count):
                if keyed:
                    self._skip(self._number())
                yield kind["values" if keyed else "items"]

    def _skip(self, size: int) -> None:
        if size < 0 or size > len(self._data) - self._at:
            raise ValueError("a value runs over the end")
        self._at += size

    def _number(self) -> int:
        number, self._at = long_at(self._data, self._at)
        return number


def long_at(data: bytes, at: int) -> tuple[int, int]:
    """The number at a place, and where it ends. Raises ValueError where there is none."""
    word = shift = 0
    while True:
        if at >= len(data) or shift > 63:
            raise ValueError("a number runs over the end")
        byte = data[at]
        at += 1
        word |= (byte & 0x7F) << shift
        if byte < 0x80:
            return int((word >> 1) ^ -(word & 1)), at
        shift += 7
