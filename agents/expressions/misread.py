"""What SQL reads otherwise than it was meant: names with a hyphen or an at sign, texts in double quotes, words of SQL as names.

What can be told by the spelling is refused, with what to write. The canonical text of an expression has none of that, so it is
never refused. Names that need their double quotes look alike whether they are meant as fields or as texts: where a text is likely,
there is a warning (`doubts`).
"""

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import cache
from typing import Any, Final, NamedTuple

from susurrus.agents.expressions.connection import connect
from susurrus.topics.records.fields import BESIDE_NAMES

_Node = Mapping[str, Any]

_LETTER: Final = rb"[A-Za-z_\x80-\xff]"
_ANY: Final = rb"[\w\x80-\xff]"
_HYPHENED: Final = re.compile(rb"\$?" + _LETTER + rb"[\w.\x80-\xff]*(?:-" + _ANY + rb"+)+")
_PLAIN: Final = re.compile(r"[^\W\d]\w*")
_QUOTED: Final = re.compile(rb'"([A-Za-z_]\w*)"')
_WORD: Final = re.compile(rb"[A-Za-z_]\w*")
_NAMED_RESULT: Final = re.compile(rb"\s*(" + _ANY + rb"+)\s*:\s*(" + _ANY + rb"+)")
_TEXT_OPERATORS: Final = frozenset(("||", "~~", "!~~", "~~*", "!~~*", "~~~", "^@"))
_JOINS: Final = frozenset(("||", "concat", "concat_ws"))
"""Functions whose first argument is as likely a text as the others."""
_MOST_WORDS: Final = 8


class Misread(NamedTuple):
    """Why a part of an expression is not what its spelling looks like, and what to write. place: in the bytes of the source."""

    problem: str
    place: int


def misread(node: _Node, source: bytes) -> Misread | None:
    """What is misread in a node itself. source: what the engine read."""
    if node["class"] == "FUNCTION" and node["is_operator"]:
        arguments = [argument["expression"] for argument in node["arguments"]]
        if node["function_name"] == "-" and len(arguments) == 2 and _is_field(arguments[1]):
            at = arguments[1]["query_location"]
            if source[at - 1 : at] == b"-" and (found := _hyphened(source, at)) is not None:
                return found
        if node["function_name"] == "@" and _is_field(arguments[0]):
            at = arguments[0]["query_location"]
            if source[at - 1 : at] == b"@":
                name = arguments[0]["column_names"][-1]
                return Misread(
                    f'@{name} is the absolute value of the field {name}: for a field of that name write "@{name}" in double '
                    f"quotes, to compute write abs({name})",
                    at - 1,
                )
    if node["class"] == "PARAMETER":
        name = "$" + node["identifier"]
        beside = ", ".join(f"${one}" for one in BESIDE_NAMES)
        return Misread(
            f'{name} is a parameter of SQL, and there are none: for a field of that name write "{name}" in double quotes; what a '
            f"record has beside its value is {beside}",
            node["query_location"],
        )
    return _text_in_double_quotes(node, source)


def named_result(alias: str, source: bytes) -> Misread | None:
    """A name with a colon at the beginning. alias: what the engine takes for the result's name. source: without SELECT."""
    found = _NAMED_RESULT.match(source)
    if found is None or found[1].decode() != alias:
        return None
    name = f"{alias}:{found[2].decode()}"
    return Misread(
        f'{alias}: names the result, which has no meaning here: for a field of that name write "{name}" in double quotes',
        found.start(1),
    )


def hyphened_words(source: bytes, position: int | None) -> Misread | None:
    """A hyphened name of which a part is a word of SQL, where the engine stops: behind it or inside."""
    if position is None:
        return None
    for found in _HYPHENED.finditer(source):
        parts = {part.lower() for part in found[0].decode().split("-")}
        if found.start() <= position <= _next(source, found.end()) and parts & words():
            return _hyphened(source, found.start() + 1)
    return None


def _next(source: bytes, position: int) -> int:
    """Where the next sign is that is no blank."""
    return len(source) - len(source[position:].lstrip())


def _hyphened(source: bytes, place: int) -> Misread | None:
    """The names with minuses and no blanks between them that lie around a place."""
    for found in _HYPHENED.finditer(source):
        if found.start() < place < found.end():
            name = found[0].decode()
            outer, dot, inner = name[: name.index("-")].rpartition(".")
            quoted = f'{outer}{dot}"{inner}{name[name.index("-") :]}"'
            return Misread(
                f"{name} is a subtraction, {name.replace('-', ' minus ')}: for a field of that name write {quoted} in double "
                "quotes, to subtract put blanks around the -",
                found.start(),
            )
    return None


def _where_texts_stand(node: _Node) -> Iterator[_Node]:
    """The parts of a node that could as well be texts, if they are fields."""
    if node["class"] == "COMPARISON":
        if _is_field(node["right"]):
            yield node["left"]
        yield node["right"]
    elif node["class"] == "BETWEEN":
        yield from (node["lower"], node["upper"])
    elif node["type"] in ("COMPARE_IN", "COMPARE_NOT_IN", "OPERATOR_COALESCE"):
        yield from node["children"][1:]
    elif node["class"] == "CASE":
        yield from (check["then_expr"] for check in node["case_checks"])
        yield node["else_expr"]
    elif node["class"] == "FUNCTION" and (not node["is_operator"] or node["function_name"] in _TEXT_OPERATORS):
        first = 0 if node["function_name"].lower() in _JOINS else 1
        yield from (argument["expression"] for argument in node["arguments"][first:])


def _text_in_double_quotes(node: _Node, source: bytes) -> Misread | None:
    """A name in needless double quotes where a text could stand."""
    for part in _where_texts_stand(node):
        if not _is_field(part) or len(part["column_names"]) > 1 or part["query_location"] > len(source):
            continue
        found = _QUOTED.match(source, part["query_location"])
        if found is not None and found[1].decode().lower() not in words():
            name = found[1].decode()
            return Misread(
                f"\"{name}\" in double quotes is the field {name}, and texts have single quotes: write '{name}' for the text, or "
                f"{name} without quotes for the field",
                found.start(),
            )
    return None


def doubts(nodes: Iterable[_Node]) -> list[str]:
    """Names of fields that are in double quotes in the canonical text and stand where a text could stand; each once.

    Words of SQL that need no quotes (type, name) are often fields, so they are none as arguments of functions.
    """
    found: dict[str, None] = {}
    for node in nodes:
        of_sql = reserved() if node["class"] == "FUNCTION" else words()
        for part in _where_texts_stand(node):
            if _is_field(part) and len(part["column_names"]) == 1:
                name = str(part["column_names"][0])
                if name.lower() in of_sql or not _PLAIN.fullmatch(name):
                    found[name] = None
    return list(found)


def quoted_words(
    source: bytes, read: Callable[[bytes], int | None], position: int | None
) -> tuple[list[str], int | None]:
    """The words of SQL that stand where fields are meant, and where the first one is: in double quotes, the engine reads the
    expression.

    read: where the engine stops, None where it reads all. position: where it stops at first.
    """
    found: list[str] = []
    first = None
    while position is not None and len(found) < _MOST_WORDS:
        word = _word_at(source, position)
        if word is None or word[0].decode().lower() not in words():
            return [], None
        found.append(word[0].decode())
        first = word.start() if first is None else first
        source = source[: word.start()] + b'"' + word[0] + b'"' + source[word.end() :]
        stopped = read(source)
        if stopped is not None and stopped <= position + 2:
            return [], None
        position = stopped
    return (found, first) if position is None else ([], None)


def _word_at(source: bytes, position: int) -> re.Match[bytes] | None:
    """The word at a place, or else the last one before it."""
    if (found := _WORD.match(source, position)) is not None:
        return found
    before = [
        word for word in _WORD.finditer(source) if word.end() <= position and not source[word.end() : position].strip()
    ]
    return before[-1] if before else None


@cache
def words() -> frozenset[str]:
    """The words that the engine reads as SQL in some places, in lower case. It writes fields of these names in double quotes."""
    return frozenset(name.lower() for name, _ in _keywords())


@cache
def reserved() -> frozenset[str]:
    """Returns the words that name a field in double quotes only."""
    return frozenset(name.lower() for name, category in _keywords() if category == "reserved")


def _keywords() -> list[tuple[str, str]]:
    rows: list[tuple[str, str]] = (
        connect().execute("SELECT keyword_name, keyword_category FROM duckdb_keywords()").fetchall()
    )
    return rows


def _is_field(node: _Node) -> bool:
    return bool(node["class"] == "COLUMN_REF")
