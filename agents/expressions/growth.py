"""What one record's texts can grow to in an expression: decided by public numbers, before a record is read, not by the machine.

A text of a field that an expression names has at most ``MAX_TEXT_BYTES`` bytes; a longer one makes the expression fail for its
record (kinds.py). From that follows how large each part of an expression can become. All parts together stay within ``MAX_BYTES``;
an expression that could need more is refused where the configuration is read. A batch is evaluated in pieces that stay within it,
too. So whether a record is good does not depend on how much memory there is, nor on what stands beside it.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from susurrus.agents.expressions.catalogue import ALWAYS_LISTS, LISTS, textual
from susurrus.agents.expressions.lookup import MAX_VALUE_BYTES, is_lookup
from susurrus.topics.records.fields import Path

MAX_TEXT_BYTES: Final = 32_768
"""The longest text of one field in bytes of UTF-8, and the most bytes of one with bytes."""
MAX_LIST_TEXT_BYTES: Final = 1_048_576
"""The same for an expression that results in a list: what is taken apart is longer than what is counted."""
MAX_BYTES: Final = 1 << 28
"""The most memory of all parts of one expression, for the records that one query evaluates. The engine's own limit does not count
all texts."""
MAX_RESULT: Final = 65_536
"""Characters of a text that an expression results in; no key may be longer."""

_SMALL: Final = 128
"""A number, an instant, an interval, a hash: as a value and as a text."""
_FACTORS: Final = {
    "upper": 3, "ucase": 3, "lower": 3, "lcase": 3, "nfc_normalize": 3, "strip_accents": 3, "url_encode": 3, "hex": 2, "to_hex": 2,
    "bin": 8, "to_binary": 8, "regexp_escape": 4, "translate": 4, "overlay": 2, "strftime": 16,
    "base64": 2, "to_base64": 2, "encode": 4, "unhex": 2, "from_hex": 2, "from_base64": 3,
}  # fmt: skip
"""How many bytes of the result one byte of the arguments can become, where it is not one. The size of bytes is that of their text,
such as ``\\xFF``, which SQL makes of them where a text is wanted."""
_BYTE_AS_TEXT: Final = 4
_JSON_RESULT, _JSON_TREE = 8, 24
"""1e20 becomes 100000000000000000000.0; a tree of values takes 16 bytes and more for each of them."""
_ITEM: Final = 16
"""A list takes so much for each of its items, which may be empty."""
_LIST_AS_TEXT: Final = 8
_SINGLE: Final = frozenset(("CASE", "OPERATOR_COALESCE", "OPERATOR_TRY", "ARRAY_EXTRACT"))
"""Operators that choose one of their parts."""
_PATTERNS: Final = frozenset(
    (
        "regexp_extract", "regexp_extract_all", "regexp_full_match", "regexp_matches", "regexp_replace", "regexp_split_to_array",
        "replace", "str_split_regex", "string_split_regex",
    )
)  # fmt: skip
"""Functions whose arguments behind the first must be written out, because work or result also grows with these."""
_JSON: Final = "json_"


@dataclass(frozen=True, slots=True)
class Size:
    """Bounds in bytes. result: of the value. total: of it and of everything it is made of. listed: it may be a list of texts."""

    result: int
    total: int
    listed: bool = False


def size_of(node: Mapping[str, Any], text: int = MAX_TEXT_BYTES, blobs: Collection[Path] = ()) -> Size:
    """The size of a part of the engine's tree where no field has a text of more than so many bytes. blobs: the fields that have
    bytes, as many."""
    kind = node["class"]
    if kind == "COLUMN_REF":
        size = max(text * (_BYTE_AS_TEXT if tuple(node["column_names"]) in blobs else 1), _SMALL)
        return Size(size, size)
    if kind == "CONSTANT":
        length = len(_literal(node).encode()) + _SMALL
        return Size(length, length)
    parts = [size_of(child, text, blobs) for child in _children(node)]
    below = sum(part.total for part in parts)
    if kind == "CAST":
        name = str(node["type_expr"].get("type_name", "")).lower()
        result = parts[0].result * (_LIST_AS_TEXT if parts[0].listed else 1) + _SMALL if name in _TEXTS else _SMALL
        return Size(result, below + result)
    if kind in _SINGLE or node["type"] in _SINGLE:
        result = max((part.result for part in parts), default=_SMALL)
        return Size(result, below + result, any(part.listed for part in parts) and node["type"] != "ARRAY_EXTRACT")
    if is_lookup(node):
        return Size(MAX_VALUE_BYTES, below + MAX_VALUE_BYTES)
    if kind != "FUNCTION" or node["function_name"].lower() not in textual():
        return Size(_SMALL, below + _SMALL + _worked(node, parts))
    result = _function(node, parts)
    listed = _lists(node) or any(part.listed for part in parts)
    return Size(result, below + result * (1 + _ITEM * listed) + _worked(node, parts), listed)


_TEXTS: Final = frozenset(("varchar", "text", "string", "char", "bpchar", "nvarchar"))


def problem_of(node: Mapping[str, Any]) -> str | None:
    """What is wrong with the arguments of a function, whose work or result would not be bounded by its texts' lengths alone."""
    name, arguments = str(node["function_name"]).lower(), _children(node)
    if name == "decode" and len(arguments) > 1:
        return "decode takes bytes in UTF-8 and no name of another encoding; leave its second argument out"
    if name not in _PATTERNS and not name.startswith(_JSON) and name != "->>":
        return None
    for number, argument in enumerate(arguments[1:], 2):
        if argument["class"] != "CONSTANT" and not _negative(argument):
            return f"argument {number} of {name} must be written out, in single quotes if it is a text, and come from no field"
    if name == "replace" and len(arguments) == 3 and not _literal(arguments[1]):
        return "replace has no text to look for; write one"
    if (name.startswith(_JSON) or name == "->>") and any(
        mark in _literal(argument) for argument in arguments[1:] for mark in ("**", "..")
    ):
        return f"{name} would return all levels of a text, each with those inside it; write a path without ** and .."
    return None


def _lists(node: Mapping[str, Any]) -> bool:
    """Whether the result of a function may be a list, by its own: of JSON's, where the path has a star."""
    name = node["function_name"].lower()
    starred = any("*" in _literal(argument) for argument in _children(node)[1:])
    return name in ALWAYS_LISTS or (name in LISTS and starred)


def _function(node: Mapping[str, Any], parts: Sequence[Size]) -> int:
    """The size of a text, or of all texts of a list."""
    name, arguments = str(node["function_name"]).lower(), _children(node)
    whole = sum(part.result for part in parts)
    if name.startswith(_JSON) or name == "->>":
        return parts[0].result * _JSON_RESULT + _SMALL
    if name == "replace" and len(arguments) == 3:
        old, new = (len(_literal(argument).encode()) for argument in arguments[1:])
        return parts[0].result * max(1, -(-new // max(old, 1))) + _SMALL
    if name == "regexp_replace" and len(arguments) > 2:
        # Each of at most n + 1 matches becomes the replacement; the groups that it names are parts of the matches.
        replacement = _literal(arguments[2])
        return (parts[0].result + 1) * (1 + len(replacement.encode()) + replacement.count("\\")) + _SMALL
    if name == "concat_ws":
        return whole + len(parts) * parts[0].result
    return whole * _FACTORS.get(name, 1) + _SMALL


def _worked(node: Mapping[str, Any], parts: Sequence[Size]) -> int:
    name = str(node.get("function_name", "")).lower()
    return parts[0].result * _JSON_TREE if parts and (name.startswith(_JSON) or name == "->>") else 0


def _children(node: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """The parts that an expression is made of."""
    kind = node["class"]
    if kind == "FUNCTION":
        return [argument["expression"] for argument in node["arguments"]]
    if kind == "CASE":
        checks = [check[name] for check in node["case_checks"] for name in ("when_expr", "then_expr")]
        return [*checks, node["else_expr"]]
    named = [node[name] for name in ("child", "left", "right", "input", "lower", "upper") if name in node]
    return [*named, *node.get("children", ())]


def _literal(node: Mapping[str, Any]) -> str:
    return str(node["literal"].get("text", "")) if node["class"] == "CONSTANT" else ""


def _negative(node: Mapping[str, Any]) -> bool:
    return (
        node["class"] == "FUNCTION"
        and node["function_name"] == "-"
        and all(x["class"] == "CONSTANT" for x in _children(node))
    )
