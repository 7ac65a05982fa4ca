"""Where the fields of a raw event are: dotted paths, the decoder type that reads only them, and their extraction.

A path is the names from the outside in. The empty path is the value itself. What a record has beside its value is under the empty
name, which no field can have: ("", "key"), ("", "headers", "user-id"). Texts write it `$key` and `$headers.user-id`.

msgspec skips what the type does not name, without building objects for it; that is most of the decoder's speed.
"""

import re
from collections.abc import Callable, Mapping, Sequence
from decimal import Decimal
from operator import attrgetter
from typing import Any, Final
from uuid import UUID

import msgspec
from msgspec import UNSET

Path = tuple[str, ...]

BESIDE: Final = ""
"""The first name of the path of what a record has beside its value."""
BESIDE_NAMES: Final = ("key", "headers", "topic", "partition", "offset", "timestamp", "value", "envelope")
"""The second one. `value` is the whole value, and `envelope` what an envelope (`input.envelope`) says around it."""

ENVELOPE: Final = (BESIDE, "envelope")
"""Where the paths begin that a format reads beside those of the value."""

PLAIN: Final = frozenset((str, int, float, bool, type(None)))
_PARTS: Final = re.compile(r"\\[.\\]|.", re.DOTALL)
_ESCAPED_IN_JSON: Final = re.compile(r'["\\\x00-\x1f]')
"""A character that JSON writes with an escape. msgspec finds no field with such a name."""


def parse_path(text: str) -> Path:
    r"""Names from the outside in; in a name, `\.` is a dot and `\\` a backslash, as is one before anything else.

    What begins with $ is beside the value; `\$` begins the name of a field. Raises ValueError for an empty or unknown name.
    """
    if text.startswith("$"):
        beside = parse_path(text[1:])
        if beside[0] not in BESIDE_NAMES:
            known = ", ".join(f"${name}" for name in BESIDE_NAMES)
            raise ValueError(
                f"path={text!r} is nothing that a record has beside its value ({known}): for a field of that name write \\{text}"
            )
        return (BESIDE, *beside)
    text = text[1:] if text.startswith("\\$") else text
    names = [""]
    for part in _PARTS.findall(text):
        if part == ".":
            names.append("")
        else:
            names[-1] += part[-1]
    if not all(names):
        raise ValueError(f"path={text!r} has an empty name: write it as outer.inner")
    return tuple(names)


def escaped(name: str) -> str:
    """One name as `parse_path` reads it inside a path."""
    return name.replace("\\", "\\\\").replace(".", "\\.")


def written(path: Path) -> str:
    """A path as `parse_path` reads it."""
    if path[:1] == (BESIDE,):
        return "$" + ".".join(map(escaped, path[1:]))
    text = ".".join(map(escaped, path))
    return f"\\{text}" if text.startswith("$") else text


def parse_paths(texts: Sequence[str]) -> list[Path]:
    """The paths of one record. Raises ValueError for an empty name, and when one path leads through another."""
    paths = [parse_path(text) for text in texts]
    check_paths(paths)
    return paths


def check_paths(paths: Sequence[Path]) -> None:
    """Raises ValueError when one path leads through another."""
    _tree(paths)


class Fields:
    """The fields at some paths of a JSON object.

    decode: from its text to a record with what is at the paths; raises as msgspec does. A path whose parent is absent or null is
    absent; a parent that is no object does not decode. Of duplicate names the last wins, as in most decoders. The empty path is the
    value itself, whatever it is. lists: of the paths, those of lists and objects whose members are decoded later, each by itself:
    they are msgspec.Raw. Raises ValueError when one path leads through another.
    """

    def __init__(self, paths: Sequence[Path], lists: Sequence[Path] = ()) -> None:
        tree = _tree(paths)
        if tree is None:
            self.decode: Callable[[bytes], Any] = msgspec.json.Decoder(_MEMBERS if () in lists else Any).decode
        else:
            for path in lists:
                node = tree
                for name in path[:-1]:
                    node = node[name]
                node[path[-1]] = _LIST
            self.decode = _decoder("Record", tree)
        self._tree = tree
        self._steps = {path: [] if tree is None else _steps(tree, path) for path in paths}

    def column(self, records: Sequence[Any], path: Path) -> list[Any]:
        """The values at a path, UNSET where absent."""
        steps = self._steps[path]
        if not steps:
            return list(records)
        try:
            return list(map(attrgetter(".".join(steps)), records))
        except AttributeError:  # an absent or null parent
            column: list[Any] = list(records)
            for step in steps:
                column = [getattr(x, step, UNSET) for x in column]
            return column


def numbered(paths: Sequence[Path]) -> dict[str, Any]:
    """The names below each name, and the number of a path where it ends. No path leads through another."""
    tree: dict[str, Any] = {}
    for number, path in enumerate(paths):
        node = tree
        for name in path[:-1]:
            node = node.setdefault(name, {})
        node[path[-1]] = number
    return tree


def _tree(paths: Sequence[Path]) -> dict[str, Any] | None:
    """The names below each name, None where a path ends."""
    if () in paths:
        if any(paths):
            raise ValueError("the whole value is wanted beside a field of it: name a scalar inside it, or no field")
        return None
    tree: dict[str, Any] = {}
    for path in dict.fromkeys(paths):
        node = tree
        for name in path[:-1]:
            node = node.setdefault(name, {})
            if node is None:
                break
        if node is None or path[-1] in node:
            raise ValueError(f"path={'.'.join(path)!r} leads through another field: name a scalar inside it")
        node[path[-1]] = None
    return tree


_MEMBERS: Final[Any] = list[msgspec.Raw] | dict[str, msgspec.Raw] | str | int | float | bool | None
_LIST: Final[Any] = object()
"""Stands in a tree where members are decoded later."""


def _decoder(name: str, tree: Mapping[str, Any], *, optional: bool = False) -> Callable[[bytes], Any]:
    """Reads one object. optional: or null."""
    if not _is_escaped(tree):
        kind = _struct(name, tree)
        return msgspec.json.Decoder(kind | None if optional else kind).decode
    # Slower: the whole object by its names, and then what stands at the wanted ones.
    objects: Any = dict[str, msgspec.Raw]
    whole = msgspec.json.Decoder(objects | None if optional else objects).decode
    record = msgspec.defstruct(name, [(f"f{index}", Any, UNSET) for index in range(len(tree))], gc=False)
    below: list[tuple[str, str, Callable[[Any], Any]]] = [
        (f"f{index}", field, _read(f"{name}{index}", inner)) for index, (field, inner) in enumerate(tree.items())
    ]

    def decode(text: bytes) -> Any:
        found = whole(text)
        if found is None:
            return None
        return record(**{at: read(found[field]) for at, field, read in below if field in found})

    return decode


def _read(name: str, inner: Any) -> Callable[[Any], Any]:
    if inner is None or inner is _LIST:
        return msgspec.json.Decoder(Any if inner is None else _MEMBERS).decode
    return _decoder(name, inner, optional=True)


def _is_escaped(tree: Mapping[str, Any]) -> bool:
    return any(
        _ESCAPED_IN_JSON.search(field) or (isinstance(below, dict) and _is_escaped(below))
        for field, below in tree.items()
    )


def _struct(name: str, tree: Mapping[str, Any]) -> type[msgspec.Struct]:
    names, fields = {}, []
    for index, (field, below) in enumerate(tree.items()):
        kind: Any = Any if below is None else _MEMBERS if below is _LIST else _struct(f"{name}{index}", below) | None
        fields.append((f"f{index}", kind, msgspec.field(default=UNSET)))
        names[f"f{index}"] = field
    return msgspec.defstruct(name, fields, rename=names, gc=False)


def _steps(tree: Mapping[str, Any], path: Path) -> list[str]:
    steps, node = [], tree
    for name in path:
        steps.append(f"f{list(node).index(name)}")
        node = node[name]
    return steps


def walk(value: Any, path: Path) -> Any:
    """The same extraction from plain dicts: UNSET where absent. Raises TypeError where a parent is no object."""
    for name in path:
        if value is None or value is UNSET:
            return UNSET
        if type(value) is not dict and not isinstance(value, Mapping):
            raise TypeError("a parent is no object")
        value = value.get(name, UNSET)
    return value


def plain(value: Any) -> Any:
    """A JSON scalar for what only schemas know: decimals become numbers, UUIDs strings; the rest stays as it is."""
    if type(value) in PLAIN:
        return value
    if isinstance(value, Decimal):
        whole = value.is_finite() and value.adjusted() < 20 and value == value.to_integral_value()
        return int(value) if whole else float(value)
    return str(value) if isinstance(value, UUID) else value
