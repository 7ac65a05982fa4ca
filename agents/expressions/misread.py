"""What SQL reads otherwise than it was meant: names with a hyphen or an at sign, texts in double quotes, words of SQL as names.

Each is refused with the spelling to use. The canonical text of an expression has none of them, so it is never refused.
"""

import re
from collections.abc import Callable, Mapping
from functools import cache
from typing import Any, Final

from susurrus.agents.expressions.connection import connect

_HYPHENED: Final = re.compile(rb"[A-Za-z_][\w.]*(?:-[A-Za-z_]\w*)+")
_QUOTED: Final = re.compile(rb'"([A-Za-z_]\w*)"')
_WORD: Final = re.compile(rb"[A-Za-z_]\w*")
_COMPARED: Final = frozenset(
    ("~~", "!~~", "~~*", "!~~*", "~~~", "starts_with", "contains", "prefix", "suffix", "ends_with")
)
_MOST_WORDS: Final = 8


def misread(node: Mapping[str, Any], source: bytes) -> str | None:
    """Why a part of an expression is not what its spelling looks like, and what to write. source: what the engine read."""
    if node["class"] == "FUNCTION" and node["is_operator"]:
        arguments = [argument["expression"] for argument in node["arguments"]]
        if node["function_name"] == "-" and len(arguments) == 2:
            return _hyphen(arguments[1], source)
        if node["function_name"] == "@" and _is_field(arguments[0]):
            at = arguments[0]["query_location"]
            if source[at - 1 : at] == b"@":
                name = arguments[0]["column_names"][-1]
                return (
                    f'@{name} is the absolute value of the field {name}: for a field of that name write "@{name}" in double '
                    f"quotes, to compute write abs({name})"
                )
    return _text_in_double_quotes(node, source)


def _hyphen(right: Mapping[str, Any], source: bytes) -> str | None:
    """Two names with a minus between them and no blanks."""
    if not _is_field(right):
        return None
    at = right["query_location"]
    for found in _HYPHENED.finditer(source):
        if found.start() < at < found.end() and source[at - 1 : at] == b"-":
            name = found[0].decode()
            outer, dot, inner = name[: name.index("-")].rpartition(".")
            quoted = f'{outer}{dot}"{inner}{name[name.index("-") :]}"'
            return (
                f"{name} is a subtraction, {name.replace('-', ' minus ')}: for a field of that name write {quoted} in double "
                "quotes, to subtract put blanks around the -"
            )
    return None


def _text_in_double_quotes(node: Mapping[str, Any], source: bytes) -> str | None:
    """A name in needless double quotes where a field is compared with it."""
    if node["class"] == "COMPARISON":
        others = [node["right"]]
    elif node["type"] in ("COMPARE_IN", "COMPARE_NOT_IN"):
        others = node["children"][1:]
    elif node["class"] == "FUNCTION" and node["function_name"] in _COMPARED:
        others = [argument["expression"] for argument in node["arguments"][1:]]
    else:
        return None
    for other in others:
        if not _is_field(other) or len(other["column_names"]) > 1 or other["query_location"] > len(source):
            continue
        found = _QUOTED.match(source, other["query_location"])
        if found is not None and found[1].decode().lower() not in words():
            name = found[1].decode()
            return (
                f"\"{name}\" in double quotes is the field {name}, and texts have single quotes: write '{name}' for the text, or "
                f"{name} without quotes for the field"
            )
    return None


def quoted_words(source: bytes, read: Callable[[bytes], int | None], position: int | None) -> list[str]:
    """The words of SQL that stand where fields are meant: in double quotes, the engine reads the expression.

    read: where the engine stops, None where it reads all. position: where it stops at first.
    """
    found: list[str] = []
    while position is not None and len(found) < _MOST_WORDS:
        word = _word_at(source, position)
        if word is None or word[0].decode().lower() not in words():
            return []
        found.append(word[0].decode())
        source = source[: word.start()] + b'"' + word[0] + b'"' + source[word.end() :]
        stopped = read(source)
        if stopped is not None and stopped <= position + 2:
            return []
        position = stopped
    return found if position is None else []


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
    """The words that the engine reads as SQL in some places, in lower case."""
    rows: list[tuple[str]] = connect().execute("SELECT keyword_name FROM duckdb_keywords()").fetchall()
    return frozenset(name.lower() for (name,) in rows)


def _is_field(node: Mapping[str, Any]) -> bool:
    return bool(node["class"] == "COLUMN_REF")
