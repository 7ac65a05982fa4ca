"""Where the fields of a raw event are: dotted paths, the decoder type that reads only them, and their extraction.

msgspec skips what the type does not name, without building objects for it; that is most of the decoder's speed.
"""

import re
from collections.abc import Mapping, Sequence
from decimal import Decimal
from operator import attrgetter
from typing import Any
from uuid import UUID

import msgspec
from msgspec import UNSET

Path = tuple[str, ...]

_PLAIN = frozenset((str, int, float, bool, type(None)))


def parse_path(text: str) -> Path:
    r"""Names from the outside in; `a\.b` is one name with a dot. Raises ValueError for an empty name."""
    path = tuple(name.replace("\\.", ".") for name in re.split(r"(?<!\\)\.", text))
    if not all(path):
        raise ValueError(f"path={text!r} has an empty name: write it as outer.inner")
    return path


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

    record: struct type for msgspec. A path whose parent is absent or null is absent; a parent that is no object does
    not decode. Of duplicate names the last wins, as in most decoders. Raises ValueError when one path leads through
    another.
    """

    def __init__(self, paths: Sequence[Path]) -> None:
        tree = _tree(paths)
        self.record = _struct("Record", tree)
        self._tree = tree
        self._steps = {path: _steps(tree, path) for path in paths}

    def column(self, records: Sequence[Any], path: Path) -> list[Any]:
        """The values at a path, UNSET where absent."""
        steps = self._steps[path]
        try:
            return list(map(attrgetter(".".join(steps)), records))
        except AttributeError:  # an absent or null parent
            column: list[Any] = list(records)
            for step in steps:
                column = [getattr(x, step, UNSET) for x in column]
            return column


def _tree(paths: Sequence[Path]) -> dict[str, Any]:
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


def _struct(name: str, tree: Mapping[str, Any]) -> type[msgspec.Struct]:
    names, fields = {}, []
    for index, (field, below) in enumerate(tree.items()):
        kind = Any if below is None else _struct(f"{name}{index}", below) | None
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
    if type(value) in _PLAIN:
        return value
    if isinstance(value, Decimal):
        whole = value.is_finite() and value.adjusted() < 20 and value == value.to_integral_value()
        return int(value) if whole else float(value)
    return str(value) if isinstance(value, UUID) else value
