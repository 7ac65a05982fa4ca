"""A name stands for one thing: no two public classes of the package share one, and an array's type has one alias."""

import ast
import re
from collections import defaultdict
from pathlib import Path

ROOT = Path(__file__).parents[1]
FILES = [path for folder in ("agents", "mechanisms", "topics") for path in sorted((ROOT / folder).rglob("*.py"))]


def test_no_two_public_classes_share_a_name() -> None:
    places: defaultdict[str, list[str]] = defaultdict(list)
    for path in FILES:
        for node in ast.parse(path.read_text(encoding="utf-8")).body:
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                places[node.name].append(str(path.relative_to(ROOT)))
    assert len(places) > 500
    assert {name: where for name, where in places.items() if len(where) > 1} == {}


def test_the_type_of_an_array_has_one_alias() -> None:
    """Mechanisms and topics import nothing of each other, so topics has the two that it needs beside its packing."""
    alias = re.compile(r"(?m)^(\w+) = npt\.NDArray\[np\.(?:bool_|float64|int64|int32)\]$")
    found = {str(path.relative_to(ROOT)): alias.findall(path.read_text(encoding="utf-8")) for path in FILES}
    assert {path: names for path, names in found.items() if names} == {
        "mechanisms/arrays.py": ["Bools", "Floats", "Int32s", "Int64s"],
        "topics/wire/packing.py": ["Int64s", "Int32s"],
    }
