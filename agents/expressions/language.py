"""Scalar expressions over the fields of one record, in the SQL of DuckDB: read, checked, and written in one canonical form.

The engine's own parser reads them, so what is checked is what runs. The canonical text is what the engine writes of the tree: two
spellings of one expression are one text, which enters the configuration's digest. Every node of the tree is on an allow-list;
functions are checked by the catalogue (catalogue.py). Evaluation is in evaluation.py.
"""

import json
import re
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any, Final

from susurrus.agents.expressions.beside import fold, is_beside, problem_of_path, unfold
from susurrus.agents.expressions.catalogue import ALWAYS_LISTS, functions, types
from susurrus.agents.expressions.connection import connect
from susurrus.agents.expressions.growth import MAX_BYTES, MAX_LIST_TEXT_BYTES, MAX_TEXT_BYTES, problem_of, size_of
from susurrus.agents.expressions.lookup import LookupCall, call_of, is_lookup, key_of, problem_of_lookup
from susurrus.agents.expressions.misread import doubts, hyphened_words, misread, named_result, quoted_words
from susurrus.mechanisms.errors import ConfigurationError
from susurrus.topics.records.fields import Path

_SELECT: Final = "SELECT "
_OPERATORS: Final = frozenset(
    (
        "OPERATOR_NOT", "OPERATOR_IS_NULL", "OPERATOR_IS_NOT_NULL", "OPERATOR_COALESCE", "COMPARE_IN", "COMPARE_NOT_IN",
        "ARRAY_EXTRACT", "OPERATOR_TRY",
    )
)  # fmt: skip
_PLAIN: Final = frozenset(("CONSTANT", "COMPARISON", "CONJUNCTION", "BETWEEN", "CASE"))
_REFUSED: Final = {
    "SUBQUERY": "a query inside an expression",
    "WINDOW": "a window function, which sees other records",
    "STAR": "all fields at once",
    "LAMBDA": "a lambda",
    "COLLATE": "a collation",
}
_CLOCKS: Final = frozenset(("current_date", "current_time", "current_timestamp", "localtime", "localtimestamp"))
"""Names that SQL reads as the clock, where no field has them."""


@dataclass(frozen=True, slots=True)
class Expression:
    """One checked expression. text: canonical. fields: paths of the fields that it names, in order of first occurrence."""

    text: str
    fields: tuple[Path, ...]

    def bytes_of(self, longest: int, blobs: Collection[Path] = ()) -> int:
        """What all parts together take for a record whose fields have texts of at most so many bytes. blobs: fields with bytes."""
        return size_of(_selected(self.text)[0], longest, blobs).total

    def doubts(self) -> list[str]:
        """Names of fields in double quotes that may be meant as texts (`misread.doubts`)."""
        return doubts(_nodes(_selected(self.text)))

    def texts(self) -> list[str]:
        """The texts in single quotes, as SQL writes them, in order of first occurrence."""
        found: dict[str, None] = {}
        for node in _nodes(_selected(self.text)):
            if node["class"] == "CONSTANT" and node["literal"]["kind"] == "STRING":
                found["'" + str(node["literal"]["text"]).replace("'", "''") + "'"] = None
        return list(found)

    def lookups(self) -> list[LookupCall]:
        """What it asks lookup tables for, in order of first occurrence."""
        return list(dict.fromkeys(call_of(node) for node in _nodes(_selected(self.text)) if is_lookup(node)))

    def renamed(self, names: Mapping[Path, str]) -> str:
        """The expression as the engine evaluates it: with other names for its fields, and the functions of lookup tables."""
        selected = _selected(self.text)
        for node in list(_nodes(selected)):
            if is_lookup(node):
                key, [called] = key_of(node), _selected(f"{call_of(node).function}(CAST(a AS VARCHAR))")
                called["arguments"][0]["expression"]["child"] = key
                node.clear()
                node.update(called)
        for node in _nodes(selected):
            if node["class"] == "COLUMN_REF":
                node["column_names"] = [names[tuple(node["column_names"])]]
        return _written(selected)


def parse(text: str, *, listed: bool = False) -> Expression:
    """Read and check an expression. listed: it results in a list of texts. Raises ConfigurationError, whose last lines show the
    place."""
    try:
        return _parsed(text, listed)
    except RecursionError:
        raise _error(text, None, "the expression is nested too deep; join fewer parts") from None


def _parsed(text: str, listed: bool) -> Expression:
    tree = _tree(text)
    source = (_SELECT + text).encode()
    if tree["error"]:
        if (hyphened := hyphened_words(source, _place(tree))) is not None:
            raise _error(text, hyphened.place, hyphened.problem)
        meant, first = quoted_words(source, _stops, _place(tree))
        if meant:
            many = ", ".join(f'"{word}"' for word in meant)
            are = "is a word of SQL: put the field" if len(meant) == 1 else "are words of SQL: put the fields"
            raise _error(text, first, f"{', '.join(meant)} {are} in double quotes, {many}")
        raise _error(
            text,
            _place(tree),
            f"{tree['error_message']}; write one SQL expression over the record's fields, with texts in single quotes, and with "
            "names in double quotes that have more than letters, digits and _",
        )
    statements = tree["statements"]
    if len(statements) != 1 or _frame(statements[0]) != _frame(_tree("1")["statements"][0]):
        raise _error(text, None, "this is more than one expression; write one, without clauses such as FROM or LIMIT")
    selected = statements[0]["node"]["select_list"]
    fold(selected)
    if len(selected) != 1:
        raise _error(text, None, "these are several expressions; write one")
    if selected[0]["alias"]:
        if (named := named_result(selected[0]["alias"], text.encode())) is not None:
            raise _error(text, len(_SELECT) + named.place, named.problem)
        alias = selected[0]["alias"]
        if re.search(r"\bas\b\s+\S+\s*$", text, re.IGNORECASE):
            raise _error(text, None, f'AS "{alias}" has no meaning here; leave it out')
        raise _error(
            text,
            None,
            f"{alias} names the result, which has no meaning here; leave it out, or put a text of several words in single quotes "
            "and a field of such a name in double quotes",
        )
    fields: dict[Path, None] = {}
    for node in _nodes(selected):
        if listed and is_lookup(node):
            raise _error(
                text,
                node["query_location"],
                "lookup finds one text, and a list is no key of it; use it on the items of the list",
            )
        if (found := misread(node, source)) is not None:
            raise _error(text, found.place, found.problem)
        if problem := _problem(node):
            raise _error(text, node.get("query_location"), problem)
        if node["class"] == "COLUMN_REF":
            fields[tuple(node["column_names"])] = None
    longest = MAX_LIST_TEXT_BYTES if listed else MAX_TEXT_BYTES
    size = size_of(selected[0], longest)
    if listed and not size.listed:
        raise _error(
            text,
            None,
            "the expression does not result in a list of texts; write one that does, for example string_split(tags, ',')",
        )
    if not listed and selected[0]["class"] == "FUNCTION" and selected[0]["function_name"].lower() in ALWAYS_LISTS:
        raise _error(
            text, None, "the expression results in a list, which is no key and no value; choose an item, such as [1]"
        )
    grown = size.total
    if grown > MAX_BYTES:
        raise _error(
            text,
            None,
            f"one record's texts, of up to {longest:,} bytes each, could become {grown:,} bytes in the expression, "
            f"and at most {MAX_BYTES:,} are possible; join fewer texts, or shorten what replaces them",
        )
    return Expression(_written(selected), tuple(fields))


def quoted(path: Path) -> str:
    """A field's path as an expression names it."""
    return _written([{**_selected("a")[0], "column_names": list(path)}])


def _problem(node: Mapping[str, Any]) -> str | None:
    """What is wrong with a node itself."""
    kind = node["class"]
    if kind in _PLAIN or (kind == "OPERATOR" and node["type"] in _OPERATORS):
        return None
    if is_beside(node):
        return problem_of_path(tuple(node["column_names"]))
    if kind == "COLUMN_REF":
        if node["column_names"][-1].lower() in _CLOCKS:
            return f"{node['column_names'][-1]} is the clock, which a record does not decide; use a field"
        return None
    if kind == "CAST":
        return None
    if kind == "TYPE":
        name = str(node["type_name"])
        return None if name.lower() in types() else f"a cast to {name} is not possible; cast to a type of scalars"
    if kind == "FUNCTION":
        return _function_problem(node)
    what = _REFUSED.get(kind, f"this ({node['type'].lower()})")
    return f"{what} is not possible; use operators and functions of one record's fields"


def _function_problem(node: Mapping[str, Any]) -> str | None:
    name = str(node["function_name"])
    if node["distinct"] or node["filter"] or node["order_bys"]["orders"]:
        return f"{name} is used like an aggregate, which sees other records; use functions of one record's fields"
    if node["schema"] or node["catalog"] or any(argument["name"] for argument in node["arguments"]):
        return f"write {name} without a schema, and its arguments without names"
    if name.lower() == "unnest":
        return (
            "unnest makes several rows of one record: write the list as input.each = { of = { expression = '...' }, as = 'item' }, "
            "in SQL as CROSS JOIN UNNEST(...) AS item, and use item here"
        )
    if is_lookup(node):
        return problem_of_lookup(node)
    if name.lower() not in functions():
        return (
            f"the function {name} is not available: unknown, or it is not decided by one record alone, or not on every machine "
            "alike, or not in bounded memory; docs/expressions.md lists the functions"
        )
    return problem_of(node)


def _nodes(part: Any) -> Iterator[dict[str, Any]]:
    """All expressions inside a part of the tree, outermost first."""
    if isinstance(part, list):
        for item in part:
            yield from _nodes(item)
    elif isinstance(part, dict):
        if "class" in part:
            yield part
        for item in part.values():
            yield from _nodes(item)


def _frame(statement: dict[str, Any]) -> dict[str, Any]:
    """What surrounds the expressions of a statement: any clause would show here. Parameters are no clause, and refused by name."""
    return {
        **statement,
        "named_param_map": [],
        "node": {name: of for name, of in statement["node"].items() if name != "select_list"},
    }


@cache
def _parser() -> Any:
    return connect()


def _tree(text: str) -> dict[str, Any]:
    row = _parser().cursor().execute("SELECT json_serialize_sql(?)", [_SELECT + text]).fetchone()
    tree: dict[str, Any] = json.loads(row[0])
    return tree


def _stops(source: bytes) -> int | None:
    """Where the engine stops reading, None where it reads all."""
    tree = _tree(source.decode().removeprefix(_SELECT))
    return (_place(tree) or 0) if tree["error"] else None


def _selected(text: str) -> list[dict[str, Any]]:
    """What a statement selects."""
    selected: list[dict[str, Any]] = _tree(text)["statements"][0]["node"]["select_list"]
    fold(selected)
    return selected


def _written(selected: list[dict[str, Any]]) -> str:
    """The text of what is selected, which is of no use any more."""
    unfold(selected, lambda: _selected("encode(a)")[0], lambda name: quoted((name,)))
    tree = _tree("a")
    tree["statements"][0]["node"]["select_list"] = selected
    row = _parser().cursor().execute("SELECT json_deserialize_sql(?)", [json.dumps(tree)]).fetchone()
    return str(row[0]).removeprefix(_SELECT)


def _place(tree: Mapping[str, Any]) -> int | None:
    position = tree.get("position")
    return None if position is None else int(position)


def _error(text: str, location: int | None, problem: str) -> ConfigurationError:
    """The problem, and below it the line with a caret. location: in the bytes of what the engine read."""
    if location is None:
        return ConfigurationError(problem)
    before = (_SELECT + text).encode()[:location].decode(errors="ignore").removeprefix(_SELECT)
    line = text.splitlines()[before.count("\n")] if text.splitlines() else ""
    return ConfigurationError(f"{problem}\n    {line}\n    {' ' * (len(before) - before.rfind(chr(10)) - 1)}^")
