"""Chunks filtered and computed: which records go on, with which scalars, and why the others do not."""

import json

import pytest

from susurrus.agents.expressions.computation import Computation
from susurrus.topics.records.payloads import JsonReader, chunk_of_objects
from susurrus.topics.records.raw import ComputedField, RawColumns, RawDecoder, RawSchema, Reason, ValueField

LINES = [
    b'{"u":"a","url":"/x?1","n":1,"s":200}',
    b'{"u":"a","url":"/x?2","n":2,"s":404}',  # filtered
    b"not json",
    None,
    b'{"url":"/y","n":3,"s":500}',  # filtered, and no user
    b'{"url":"/y","n":3,"s":200}',  # no user
    b'{"u":"b","url":7,"n":4,"s":200}',  # split_part of a number fails
    b'{"u":"b","url":7,"n":4,"s":1}',  # ... which does not matter here
    b'{"u":"b","url":"/x","n":5,"s":"up"}',  # the condition fails
    b'{"u":"b","url":"/x","n":6}',  # null is not true
    b'{"u":"c","n":1000,"s":200}',  # a null key, and a large value
]
SCHEMA = RawSchema(
    user=("u",),
    key=(ComputedField("split_part(url, '?', 1)"),),
    values=(ValueField(ComputedField("n * 2"), bound=100, grid=1, lower=3),),
    null_key="value",
)


def decode(schema: RawSchema, where: str | None, lines: list[bytes | None]) -> RawColumns:
    computation = Computation(schema.scalars, where)
    return RawDecoder(schema).decode(computation.applied(JsonReader(computation.paths).read(lines)))


def test_every_record_has_its_fate() -> None:
    found = decode(SCHEMA, "s = 200", LINES)
    assert [Reason(reason).name for reason in found.reason] == [
        "OK", "FILTERED", "NOT_JSON", "TOMBSTONE", "FILTERED", "MISSING_USER", "EXPRESSION_FAILED", "FILTERED",
        "EXPRESSION_FAILED", "FILTERED", "OK",
    ]  # fmt: skip
    good = [(found.users[u], found.keys[k]) for u, k in zip(found.user, found.key, strict=True) if u >= 0]
    assert good == [(b'"a"', b'"/x"'), (b'"c"', b"null")]
    assert found.values[found.reason == 0].tolist() == [[3], [100]]  # clamped from below, and from above


def test_filtered_records_leave_nothing() -> None:
    """As if only the others had been written."""
    found = decode(SCHEMA, "s = 200", LINES)
    kept = [line for line, reason in zip(LINES, found.reason, strict=True) if reason != Reason.FILTERED]
    again = decode(SCHEMA, "s = 200", kept)
    assert (again.users, again.keys) == (found.users, found.keys)
    rest = found.reason != Reason.FILTERED
    for name in ("reason", "user", "key", "values"):
        assert getattr(again, name).tolist() == getattr(found, name)[rest].tolist()


UNREADABLE: dict[bytes | None, Reason] = {
    None: Reason.TOMBSTONE, b"": Reason.EMPTY, b" ": Reason.EMPTY, b"null": Reason.WRONG_TYPE, b"[]": Reason.WRONG_TYPE,
    b"{": Reason.NOT_JSON, b"\xff": Reason.INVALID_UTF8, b"[" * 5_000: Reason.TOO_DEEP,
}  # fmt: skip


@pytest.mark.parametrize(
    "where", [None, "true", "false", "s IS NULL", "u IS NULL", "s = 200", "CAST(u AS INTEGER) = 1"]
)
@pytest.mark.parametrize("form", ["json", "objects"])
def test_a_tombstone_and_what_cannot_be_read_are_what_they_are_whatever_the_condition_says(
    form: str, where: str | None
) -> None:
    """There are no fields to compare: a condition that absent fields meet, fail or make fail must not decide about it."""
    good, other = b'{"u":"1","url":"/x","s":200}', b'{"u":"1","url":"/x","s":404}'
    computation = Computation(SCHEMA_OF_TEXTS.scalars, where)
    fates = []
    for neighbours in ((), (good,), (other, good)):
        lines = [*neighbours, *(UNREADABLE if form == "json" else [None]), *neighbours]
        if form == "json":
            chunks = JsonReader(computation.paths).read(lines)
        else:
            objects = [None if line is None else json.loads(line) for line in lines]
            chunks = iter([chunk_of_objects(objects, computation.paths)])
        found = RawDecoder(SCHEMA_OF_TEXTS).decode(computation.applied(chunks)).reason
        at = len(neighbours)
        fates.append([Reason(reason) for reason in found[at : len(lines) - at]])
    assert fates == [list(UNREADABLE.values()) if form == "json" else [Reason.TOMBSTONE]] * 3


SCHEMA_OF_TEXTS = RawSchema(user=("u",), key=("url",))


def test_without_expressions_nothing_changes() -> None:
    schema = RawSchema(user=("u",), key=("url",), values=(ValueField("n", 10, 1),))
    computation = Computation(schema.scalars, None)
    assert computation.paths == RawDecoder(schema).paths
    chunks = list(JsonReader(computation.paths).read(LINES))
    assert all(one is other for one, other in zip(computation.applied(chunks), chunks, strict=True))


def test_a_field_may_be_plain_and_computed_from() -> None:
    schema = RawSchema(user=("u",), key=("url", ComputedField("upper(u)")), values=())
    found = decode(schema, "n < 3 AND u IS NOT NULL", LINES)
    assert found.keys == [b'["/x?1","A"]', b'["/x?2","A"]']


def test_a_path_through_another_field_is_refused() -> None:
    with pytest.raises(ValueError, match="leads through another field"):
        Computation(RawSchema(user=("u",), key=("geo",)).scalars, "geo.country = 'x'")


def test_all_may_be_filtered() -> None:
    found = decode(SCHEMA, "false", LINES)
    assert set(found.reason.tolist()) == {Reason.FILTERED, Reason.NOT_JSON, Reason.TOMBSTONE}
    assert (found.users, found.keys) == ([], [])
