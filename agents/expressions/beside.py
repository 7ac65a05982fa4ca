"""What a record has beside its value, in expressions: `$key.id`, `$headers."user-id"`, `$topic`.

SQL reads `$name` as a parameter, which an expression has none of, and what follows as a part of it. Both together become a field of
the engine's tree, with the path that the settings have for it (topics/records/fields.py), and are written as one again.

A header is a text. `encode($headers.x)` is its bytes, whatever they are, so this is a field of its own, and so is the header where
a function of bytes is given it: `hex($headers.x)`.
"""

from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final

from susurrus.topics.records.fields import BESIDE, BESIDE_NAMES, Path

_Node = dict[str, Any]

HEADER_BYTES: Final = "header_bytes"
"""The second name of the path of a header's bytes: ("", "header_bytes", "x")."""
_HEADERS: Final = "headers"
_ENCODE: Final = "encode"
_OF_BYTES: Final = frozenset(
    ("base64", _ENCODE, "hex", "md5", "md5_number", "octet_length", "sha1", "sha256", "to_base64", "to_hex")
)
"""Functions of bytes. Of a text in UTF-8 they say the same as of its bytes, or do not take it."""
_BELOW: Final = ("key", _HEADERS, "envelope")
"""What has fields below it."""


def fold(selected: list[_Node]) -> None:
    """Make what is beside the value a field, in place."""
    for place, key in _places(selected):
        node = place[key]
        if (field := _chain(node)) is not None:
            place[key] = field
        elif node["class"] == "FUNCTION" and len(node["arguments"]) == 1:
            argument = node["arguments"][0]
            header = _chain(argument["expression"])
            name = node["function_name"].lower()
            if header is None or header["column_names"][1] != _HEADERS or name not in _OF_BYTES:
                continue
            header["column_names"][1] = HEADER_BYTES
            if name == _ENCODE:
                place[key] = header
            else:
                argument["expression"] = header


def unfold(selected: list[_Node], encode: Callable[[], _Node], quoted: Callable[[str], str]) -> None:
    """The reverse. encode: makes the node of ``encode`` of something. quoted: a name as SQL writes it."""
    for place, key in _places(selected):
        node = place[key]
        if not is_beside(node):
            continue
        second, *rest = node["column_names"][1:]
        names = [_HEADERS if second == HEADER_BYTES else second, *map(quoted, rest)]
        parameter = {
            "class": "PARAMETER",
            "type": "VALUE_PARAMETER",
            "alias": node["alias"],
            "query_location": node["query_location"],
            "query_location_length": 0,
            "identifier": ".".join(names),  # is written as it is
        }
        place[key] = parameter
        if second == HEADER_BYTES:
            place[key] = encode()
            place[key]["arguments"][0]["expression"] = parameter


def _places(selected: list[_Node]) -> Iterator[tuple[Any, Any]]:
    """Where the nodes of a tree are, outermost first: what is put there is not looked into. Not by recursion, whose limit depends
    on the callers."""
    waiting: list[tuple[Any, Any]] = [(selected, index) for index in range(len(selected))]
    while waiting:
        place, key = waiting.pop()
        before = place[key]
        if isinstance(before, dict) and "class" in before:
            yield place, key
        if place[key] is before and isinstance(before, dict):
            waiting += [(before, name) for name, item in before.items() if isinstance(item, dict | list)]
        elif isinstance(before, list):
            waiting += [(before, index) for index, item in enumerate(before) if isinstance(item, dict | list)]


def is_beside(node: Mapping[str, Any]) -> bool:
    """Whether a node is a field beside the value."""
    return bool(node.get("class") == "COLUMN_REF" and node["column_names"][0] == BESIDE)


def problem_of_path(path: Path) -> str | None:
    """Why a path beside the value leads to nothing that a record has."""
    second, rest = path[1], path[2:]
    if not all(rest):
        return "a name after $ is empty; write it"
    if second in (_HEADERS, HEADER_BYTES) and len(rest) != 1:
        return 'name one header, as $headers."user-id"; a name with dots stands in double quotes as a whole'
    if second == "envelope" and not rest:
        return "name a field of it, as $envelope.op"
    if second == "value" and rest:
        return "$value is the whole value; write its fields without $value"
    if second not in (*_BELOW, HEADER_BYTES) and rest:
        return f"${second} has no fields; write ${second} alone"
    return None


def _chain(node: _Node) -> _Node | None:
    """The field that a parameter and the names behind it are; None where this is none."""
    names: list[str] = []
    while node.get("class") == "OPERATOR" and node["type"] in ("STRUCT_EXTRACT", "ARRAY_EXTRACT"):
        node, name = node["children"]
        if name["class"] != "CONSTANT" or name["literal"]["kind"] != "STRING":
            return None
        names.append(str(name["literal"]["text"]))
    if node.get("class") != "PARAMETER" or node["identifier"] not in BESIDE_NAMES:
        return None
    return {
        "class": "COLUMN_REF",
        "type": "COLUMN_REF",
        "alias": "",
        "query_location": node["query_location"],
        "query_location_length": node["query_location_length"],
        "column_names": [BESIDE, node["identifier"], *reversed(names)],
    }
