"""A schema with which records of Avro were written, as the reader's one (`input.schema_file`) shows it: one schema for both.

fastavro resolves the two for each value. Here they are resolved once, into what avro_programs.py compiles: fields have the reader's
names, and kinds that no schema can name say what is made of a value. Where two types could be resolved in several ways, only
fastavro decides.
"""

from collections.abc import Iterator, Mapping
from typing import Any, Final

_PROMOTED: Final = frozenset({("int", "long"), ("float", "double")})
"""Pairs of types whose values are the same in Python."""
_FLOATS: Final = frozenset({(whole, number) for whole in ("int", "long") for number in ("float", "double")})
_MOST_TYPES: Final = 5_000

WIDENED: Final = "(widened)"
"""The kind of an integer that becomes a float."""
CONSTANT: Final = "(constant)"
"""The kind of a field that was not written: it is its default, ``value``."""
UNRESOLVED: Final = "(unresolved)"
"""The kind of a branch of which the reader's schema makes nothing that is certain."""


class Unresolved(Exception):
    """Says of two schemas that only fastavro knows what becomes of records."""


class Resolution:
    """Resolves types of a writer and a reader. writers, readers: the definitions of their named types. computed: the logical types
    of which fastavro makes something else, as its names; the writer's count."""

    def __init__(self, writers: Mapping[str, Any], readers: Mapping[str, Any], computed: Any) -> None:
        self._writers, self._readers, self._computed, self._left = writers, readers, computed, _MOST_TYPES

    def of(self, writer: Any, reader: Any) -> Any:
        """One type for both. Raises Unresolved, and whatever odd schemas make Python raise."""
        self._left -= 1
        if self._left < 0:
            raise Unresolved
        writer, reader = _named(writer, self._writers), _named(reader, self._readers)
        if isinstance(writer, list):
            return [self._branch(branch, reader) for branch in writer]
        kind = _type(writer)
        if isinstance(reader, list):
            reader = _named(_one(kind, reader), self._readers)
        wanted = _type(reader)
        if kind in ("record", "error", "enum", "fixed"):
            if kind != wanted or writer["name"] != reader["name"]:
                raise Unresolved
            return self._of_name(kind, writer, reader)
        if kind in ("array", "map"):
            inside = "items" if kind == "array" else "values"
            if kind != wanted:
                raise Unresolved
            return {"type": kind, inside: self.of(writer[inside], reader[inside])}
        if kind == wanted or (kind, wanted) in _PROMOTED:
            return writer
        if (kind, wanted) not in _FLOATS:
            raise Unresolved
        logical = isinstance(writer, dict) and f"{kind}-{writer.get('logicalType')}" in self._computed
        return writer if logical else {"type": WIDENED}

    def _branch(self, branch: Any, reader: Any) -> Any:
        try:
            return self.of(branch, reader)
        except Unresolved:
            return {"type": UNRESOLVED}

    def _of_name(self, kind: str, writer: Any, reader: Any) -> Any:
        if kind == "fixed":
            known = writer["size"] == reader["size"]
        elif kind == "enum":
            known = set(writer["symbols"]) <= set(reader["symbols"])
        else:
            return {"type": kind, "fields": list(self._fields(writer["fields"], reader["fields"]))}
        if not known:
            raise Unresolved
        return writer

    def _fields(self, writers: Any, readers: Any) -> Iterator[dict[str, Any]]:
        by_name = {field["name"]: field for field in readers}
        by_alias = {alias: field for field in readers for alias in field.get("aliases", ())}
        taken: set[str] = set()
        for place, field in enumerate(writers):
            reader = by_name.get(field["name"], by_alias.get(field["name"]))
            if reader is None:
                yield {"name": ("skipped", place), "type": field["type"]}  # with the writer's names
                continue
            if reader["name"] in taken:
                raise Unresolved
            taken.add(reader["name"])
            yield {"name": reader["name"], "type": self.of(field["type"], reader["type"])}
        for name, field in by_name.items():
            if name not in taken:
                if "default" not in field:
                    raise Unresolved
                yield {"name": name, "type": {"type": CONSTANT, "value": field["default"]}}


def _named(kind: Any, names: Mapping[str, Any]) -> Any:
    return names.get(kind, kind) if isinstance(kind, str) else kind


def _type(kind: Any) -> str:
    name = kind if isinstance(kind, str) else kind["type"]
    if not isinstance(name, str):
        raise Unresolved
    return name


def _one(kind: str, branches: list[Any]) -> Any:
    """The branch that is read: of null and one other type, since of more the first that matches would be."""
    others = [branch for branch in branches if branch != "null"]
    if len(others) > 1 or len(branches) - len(others) > 1:
        raise Unresolved
    found = ["null"] if kind == "null" else others
    if not found or found[0] not in branches:
        raise Unresolved
    return found[0]
