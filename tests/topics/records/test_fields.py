"""Fields at paths, whatever they are called: JSON writes some names with an escape."""

import json
import re
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from susurrus.topics.records.fields import Fields, Path, escaped, parse_path, walk, written
from susurrus.topics.records.payloads import JsonReader
from susurrus.topics.records.reason import Reason

ODD = ('a"b', "a\\b", "a\\\\b", "a\nb", "\x00", '"', "\\", "\\.", "a.b", "é\\", "plain", "a")
"""Names, of which JSON must escape some."""
TREES = st.recursive(
    st.none() | st.integers(-9, 9) | st.text("ab", max_size=2),
    lambda inner: st.dictionaries(st.sampled_from(ODD), inner, max_size=4) | st.lists(inner, max_size=2),
    max_leaves=12,
)


@given(st.lists(st.sampled_from(ODD), min_size=1, max_size=3))
def test_any_name_can_be_written_in_a_path(names: list[str]) -> None:
    assert parse_path(".".join(map(escaped, names))) == tuple(names)


@pytest.mark.parametrize(
    ("text", "path"),
    [
        (r"a\.b", ("a.b",)),
        (r"a\\.b", ("a\\", "b")),
        (r"a\b.c\\d", ("a\\b", "c\\d")),  # before anything else it is itself
        ("a\\", ("a\\",)),
        (r'a"b.c', ('a"b', "c")),
    ],
)
def test_a_backslash_in_a_path(text: str, path: Path) -> None:
    assert parse_path(text) == path


@pytest.mark.parametrize("text", ["", ".", "a.", ".a", "a..b", r"a\..", r"a\\."])
def test_an_empty_name_is_refused(text: str) -> None:
    if text == r"a\\.":
        assert parse_path(r"a\\") == ("a\\",)
    with pytest.raises(ValueError, match="has an empty name"):
        parse_path(text)


def plainly(payload: bytes, paths: list[Path]) -> list[Any] | None:
    """The fields by the standard library; None where a parent is no object."""
    record = json.loads(payload)
    try:
        return [walk(record, path) for path in paths] if isinstance(record, dict) else None
    except TypeError:
        return None


@given(
    st.lists(TREES, min_size=1, max_size=6),
    st.lists(st.lists(st.sampled_from(ODD), min_size=1, max_size=3).map(tuple), min_size=1, max_size=4, unique=True),
    st.booleans(),
)
def test_fields_of_any_name_are_those_of_the_standard_library(trees: list[Any], paths: list[Path], ascii: bool) -> None:
    """Records with the same names inside and beside each other; what does not decode does not touch its neighbours."""
    payloads = [json.dumps(tree, ensure_ascii=ascii).encode() for tree in trees]
    try:
        [chunk] = JsonReader(paths).read([*payloads, b"{"])
    except ValueError as problem:
        assert "leads through another field" in str(problem)  # noqa: PT017
        return
    wanted = [plainly(payload, paths) for payload in payloads]
    assert set(chunk.refused) == {row for row, fields in enumerate(wanted) if fields is None} | {len(trees)}
    assert [list(row) for row in zip(*chunk.columns, strict=True)] == [
        fields for fields in wanted if fields is not None
    ]


@pytest.mark.parametrize(
    ("payload", "found"),
    [
        (rb'{"a\"b": 1, "a\"b": 2}', 2),  # the last of two
        (rb'{"a\u0022b": 3}', 3),
        (rb'{"a\"b": null}', None),
        (rb'{"a\\\"b": 1}', msgspec.UNSET),
        (rb'{"other": 1e999, "a\"b": 4}', 4),  # a number that nobody wants
        (rb'{"a\"b": 1e999}', Reason.NOT_FINITE),
        (rb'{"a\"b": 99999999999999999999}', 99999999999999999999),
        (rb'{"a\"b": "\ud800"}', Reason.INVALID_UTF8),
        (b'{"a\\"b": "\xff"}', Reason.INVALID_UTF8),
        (rb'{"a\"b": 1', Reason.NOT_JSON),
        (rb'{"a\"b": 1} 2', Reason.NOT_JSON),
        (b"null", Reason.WRONG_TYPE),
        (b"[1]", Reason.WRONG_TYPE),
        (None, Reason.TOMBSTONE),
    ],
)
def test_one_record(payload: bytes | None, found: Any) -> None:
    """A name with a quotation mark is read as any other is."""
    [chunk] = JsonReader([('a"b',)]).read([payload])
    assert chunk.columns == ([[]] if isinstance(found, Reason) else [[found]])
    assert chunk.refused == ({0: found} if isinstance(found, Reason) else {})
    if payload is not None:
        [same] = JsonReader([("ab",)]).read([payload.replace(rb"a\"b", b"ab").replace(rb"a\u0022b", b"ab")])
        assert same == chunk or b"\\\\" in payload


@pytest.mark.parametrize(
    ("text", "path"),
    [
        ("$key", ("", "key")),
        ("$key.customer.id", ("", "key", "customer", "id")),
        (r"$headers.user-id", ("", "headers", "user-id")),
        (r"$headers.a\.b", ("", "headers", "a.b")),
        (r"\$key", ("$key",)),
        (r"\\$key", (r"\$key",)),
        ("properties.$browser", ("properties", "$browser")),
    ],
)
def test_what_is_beside_the_value_has_a_path_that_no_field_can_have(text: str, path: Path) -> None:
    assert parse_path(text) == path
    assert written(path) == text


def test_an_unknown_name_with_a_dollar_sign_is_refused_with_what_to_write() -> None:
    with pytest.raises(ValueError, match=re.escape(r"\$user_id")):
        parse_path("$user_id")


def test_the_empty_path_is_the_whole_value() -> None:
    [chunk] = JsonReader([()]).read([b'{"a": 1}', b"[1, 2]", b'"text"', b"null", b"{", None])
    assert chunk.columns == [[{"a": 1}, [1, 2], "text", None]]
    assert chunk.refused == {4: Reason.NOT_JSON, 5: Reason.TOMBSTONE}
    with pytest.raises(ValueError, match="whole value"):
        Fields([(), ("a",)])
