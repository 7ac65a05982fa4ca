"""Rows that are written column by column have the bytes that the serialisers of the libraries write of the same rows as JSON."""

import contextlib
import json
import math
from collections.abc import Iterator, Sequence
from types import SimpleNamespace
from typing import Any
from unittest import mock

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from susurrus.agents.formats.outputs import OUTPUT_FORMATS
from susurrus.agents.formats.outputs.format import Writer
from susurrus.topics import compiled, histogram, private_stream, rolling
from susurrus.topics.histogram import ColumnRows, TriggerHeader
from susurrus.topics.private_stream import StreamColumns, StreamHeader
from susurrus.topics.rolling import RollingHeader
from susurrus.topics.wire import public_rows, row_writer
from susurrus.topics.wire.json_rows import rows as json_rows
from susurrus.topics.wire.public_rows import PublicRows
from susurrus.topics.wire.row_schema import RowSchema
from tests.samples import many_odd
from tests.topics.odd_keys import key_parts, keys_of, random_parts

pytest.importorskip("fastavro")
pytest.importorskip("authlib")

REGISTERED = [name for name, form in OUTPUT_FORMATS.items() if form.registered]
PATHS = ["compiled", "python"] if compiled.compiled is not None else ["python"]
DAY = 86_400_000
INT64 = st.integers(-(2**63), 2**63 - 1) | st.sampled_from([0, 1, -1, 2**53 + 1, -(2**53) - 1])
DOUBLES = st.floats(allow_nan=False, allow_infinity=False) | st.sampled_from([0.0, -0.0, 5e-324, 1e308])


class Registry:
    """Stands for the client of a registry that knows every schema by one id."""

    def __enter__(self) -> "Registry":
        return self

    def __exit__(self, *exception: object) -> None:
        """Nothing to close."""

    def lookup_schema(self, subject: str, schema: Any, **_: Any) -> Any:
        """As the client has it."""
        return SimpleNamespace(schema_id=70_000, guid=None, subject=subject, version=1, schema=schema)


def writer(form: str, schema: RowSchema) -> Writer:
    registry: Any = SimpleNamespace(client=lambda name: Registry())
    return OUTPUT_FORMATS[form](registry).writer("web-log.histogram", schema, "susurrus.web_log")


@contextlib.contextmanager
def on(path: str) -> Iterator[None]:
    """With the compiled code, or without."""
    with mock.patch.object(row_writer, "compiled", compiled.compiled if path == "compiled" else None):
        yield


def check(schema: RowSchema, rows: PublicRows) -> None:
    """In each format, on each path: the serialiser's bytes."""
    assert rows.members is not None
    texts = json_rows(len(rows), rows.members)
    assert list(rows.json) == texts
    for form in REGISTERED:
        found = writer(form, schema)
        wanted = found.encode(PublicRows.of_json(texts))
        for path in PATHS:
            with on(path):
                assert found.encode(rows) == wanted, (form, path)


def numbers(n: int) -> st.SearchStrategy[Any]:
    return st.lists(INT64, min_size=n, max_size=n).map(lambda found: np.array(found, np.int64)) | doubles(n)


def doubles(n: int) -> st.SearchStrategy[Any]:
    return st.lists(DOUBLES, min_size=n, max_size=n).map(lambda found: np.array(found, np.float64))


def some(n: int) -> st.SearchStrategy[Any]:
    return st.lists(st.booleans(), min_size=n, max_size=n).map(lambda found: np.array(found, np.bool_))


@st.composite
def columns_of(draw: Any, n: int) -> list[ColumnRows]:
    """Columns of every kind: "q…" have an interval."""
    found = []
    for name in draw(st.sampled_from([["v"], ["v", "b-y"], ["v", "q1", "w"], ["q1"]])):
        pair = st.tuples(numbers(n), doubles(n) | DOUBLES)
        more: dict[str, Any] = {}
        if name.startswith("q"):
            more["interval"] = draw(st.tuples(doubles(n), doubles(n)))
        else:
            more["direct"] = draw(st.none() | pair)
            more["smoothed"] = draw(st.none() | pair)
            more["smoothed_rows"] = None if more["smoothed"] is None else draw(st.none() | some(n))
        found.append(ColumnRows(name=name, estimate=draw(numbers(n)), std_error=draw(doubles(n) | DOUBLES), **more))
    return found


@st.composite
def histograms(draw: Any) -> tuple[RowSchema, PublicRows]:
    n, arity, dated = draw(st.integers(0, 6)), draw(st.integers(1, 3)), draw(st.booleans())
    columns = draw(columns_of(n))
    levels = draw(st.none() | st.lists(st.sampled_from([b'"country"', b'""', b'"\\u0001"']), min_size=n, max_size=n))
    header = TriggerHeader(
        window_start=draw(st.sampled_from([0, -1, 999, -DAY, 1_767_225_600_000])),
        window_end=draw(st.sampled_from([1, DAY, 253_402_300_799_999])),
        trigger=draw(st.sampled_from([1, 63, 64, 2**31])),
        of_triggers=draw(st.sampled_from([1, 96, 8192])),
        strategy=draw(st.sampled_from(["closing", "", "schließend"])),
        epoch=draw(st.sampled_from(["6f0c", "", "e" * 200])),
        window_date="2026-10-25" if dated else None,
    )
    keys = keys_of(draw(st.lists(key_parts(arity), min_size=n, max_size=n)))
    _, rows = histogram.public_rows(header, keys, columns, levels)
    names = [column.name for column in columns]
    schema = histogram.schema(
        ["url", "x.y", "7"][:arity],
        names,
        [name for name in names if name.startswith("q")],
        dated=dated,
        levels=levels is not None or draw(st.booleans()),
    )
    return schema, rows


@given(histograms())
def test_rows_of_histograms(found: tuple[RowSchema, PublicRows]) -> None:
    check(*found)


@st.composite
def rolling_views(draw: Any) -> tuple[RowSchema, PublicRows]:
    n = draw(st.integers(1, 5))
    columns = draw(columns_of(n))
    times = st.lists(st.sampled_from([0, DAY, DAY + 1]), min_size=n, max_size=n).map(lambda t: np.array(t, np.int64))
    header = RollingHeader(
        period_start=0, period_end=DAY, window_start=-DAY, window_end=2 * DAY, trigger=24, of_triggers=96,
        strategy="closing", epoch="6f0c",
    )  # fmt: skip
    keys = keys_of(draw(st.lists(key_parts(2), min_size=n, max_size=n)))
    _, rows = rolling.public_rows(header, keys, columns, draw(times), draw(times))
    names = [column.name for column in columns]
    return rolling.schema(["a", "b"], names, [name for name in names if name.startswith("q")]), rows


@given(rolling_views())
def test_rows_of_rolling_views(found: tuple[RowSchema, PublicRows]) -> None:
    check(*found)


@st.composite
def streams(draw: Any) -> PublicRows:
    n = draw(st.integers(0, 6))

    def ints(least: int = -(2**63)) -> Any:
        return np.array(draw(st.lists(st.integers(least, 2**63 - 1), min_size=n, max_size=n)), np.int64)

    def pair() -> tuple[Any, Any]:
        rows = draw(some(n))
        return tuple(np.where(rows, draw(doubles(n)), np.nan) for _ in "ab")  # type: ignore[return-value]

    filtered, clipped, truncated = pair(), pair(), pair()
    released = StreamColumns(
        streams=keys_of(draw(st.lists(key_parts(1), min_size=n, max_size=n))),
        first=ints(), last=ints(), value=draw(numbers(n)), value_error=draw(doubles(n)), sum=draw(numbers(n)),
        sum_error=draw(doubles(n)), filtered_sum=filtered[0], filtered_sum_error=filtered[1], fit=pair()[0],
        jump_first=ints(-1), jump_last=ints(-1), theta=draw(numbers(n)), lower=draw(numbers(n)), clipped=clipped[0],
        clipped_error=clipped[1], truncated=truncated[0], truncated_error=truncated[1], layout=ints(0),
    )  # fmt: skip
    header = StreamHeader(method="tops", epsilon=draw(DOUBLES), epoch="6f0c")
    return private_stream.public_rows(header, released)[1]


@given(streams())
def test_rows_of_streams(rows: PublicRows) -> None:
    check(private_stream.SCHEMA, rows)


def many(n: int) -> tuple[RowSchema, PublicRows]:
    """Rows of odd keys and numbers."""
    generator = np.random.default_rng(36)
    keys = keys_of([random_parts(generator, 2) for _ in range(n)])
    estimates = generator.integers(-(2**63), 2**63, n) >> generator.integers(0, 64, n)
    errors = generator.integers(0, 2**64, n, np.uint64).view(np.float64)
    errors = np.where(np.isfinite(errors), errors, -0.0)
    numbers = np.where(generator.random(n) < 0.2, 0.0, errors)
    column = ColumnRows(
        name="visits",
        estimate=estimates,
        std_error=numbers,
        direct=(numbers, errors),
        smoothed=(errors, numbers),
        smoothed_rows=generator.random(n) < 0.5,
    )
    header = TriggerHeader(
        window_start=0, window_end=DAY, trigger=1, of_triggers=1, strategy="closing", epoch="6f0c"
    )  # fmt: skip
    return histogram.schema(["a", "b"], ["visits"]), histogram.public_rows(header, keys, [column])[1]


@pytest.mark.parametrize("n", [4_000, pytest.param(many_odd(20_000), marks=pytest.mark.fuzz)])
def test_many_odd_rows(n: int) -> None:
    check(*many(n))


@pytest.mark.parametrize("form", REGISTERED)
@pytest.mark.parametrize("path", PATHS)
def test_columns_never_reach_the_serialiser(monkeypatch: pytest.MonkeyPatch, form: str, path: str) -> None:
    """Else the tests above would compare the serialiser with itself."""
    schema, rows = many(50)

    def refuse(*_: object) -> Any:
        raise AssertionError("a row was serialised by itself")

    monkeypatch.setattr(OUTPUT_FORMATS[form], "serializer", lambda *_: refuse)
    with on(path):
        assert len(writer(form, schema).encode(rows)) == 50
    with pytest.raises(AssertionError, match="by itself"):
        writer(form, schema).encode(PublicRows.of_json(rows.json))


@pytest.mark.parametrize("chunk", [1, 3, 7])
def test_rows_are_the_same_however_many_are_written_at_a_time(monkeypatch: pytest.MonkeyPatch, chunk: int) -> None:
    schema, rows = many(20)
    assert rows.members is not None
    whole = {form: writer(form, schema).encode(rows) for form in REGISTERED}
    monkeypatch.setattr(public_rows, "CHUNK", chunk)
    again = PublicRows(20, rows.members)
    assert list(again.json) == list(rows.json)
    assert {form: writer(form, schema).encode(again) for form in REGISTERED} == whole


@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize("form", REGISTERED)
@pytest.mark.parametrize("key", [b'["a"]', b'["a","b","c"]', b'"a"', b'["a",["b"]]', b'["a",18446744073709551616000]'])
def test_a_key_that_does_not_fit_the_schema_is_refused(path: str, form: str, key: bytes) -> None:
    """As the serialisers do."""
    header = TriggerHeader(window_start=0, window_end=1, trigger=1, of_triggers=1, strategy="s", epoch="e")
    column = ColumnRows(name="v", estimate=np.array([1, 2]), std_error=1.0)
    _, rows = histogram.public_rows(header, [b'["a","b"]', key], [column])
    found = writer(form, histogram.schema(["a", "b"], ["v"]))
    with on(path), pytest.raises(ValueError, match=r"."):
        found.encode(rows)
    with pytest.raises((ValueError, TypeError, KeyError)):
        found.encode(PublicRows.of_json(rows.json))


@pytest.mark.parametrize("number", [math.nan, math.inf, -math.inf])
def test_what_is_not_finite_never_becomes_a_row(number: float) -> None:
    header = TriggerHeader(window_start=0, window_end=1, trigger=1, of_triggers=1, strategy="s", epoch="e")
    column = ColumnRows(name="v", estimate=np.array([1.0, number]), std_error=1.0)
    with pytest.raises(ValueError, match=r"values\.v\.estimate is not finite"):
        histogram.public_rows(header, [b'"a"', b'"b"'], [column])


def test_members_that_the_schema_does_not_know_are_left_out() -> None:
    """As with the serialisers: an older schema may be registered."""
    header = TriggerHeader(
        window_start=0, window_end=1, trigger=1, of_triggers=1, strategy="s", epoch="e", window_date="1970-01-01"
    )
    columns = [ColumnRows(name=name, estimate=np.array([1, 2]), std_error=1.0) for name in "vw"]
    _, rows = histogram.public_rows(header, [b'"a"', b'"b"'], columns, [b'"x"', b'"y"'])
    assert json.loads(rows.json[0])["level"] == "x"
    check(histogram.schema(["a"], ["v"]), rows)


@pytest.mark.parametrize("form", REGISTERED)
def test_a_member_that_is_missing_is_refused(form: str) -> None:
    header = TriggerHeader(window_start=0, window_end=1, trigger=1, of_triggers=1, strategy="s", epoch="e")
    column = ColumnRows(name="v", estimate=np.array([1]), std_error=1.0)
    _, rows = histogram.public_rows(header, [b'"a"'], [column])
    with pytest.raises(KeyError, match="w"):
        writer(form, histogram.schema(["a"], ["v", "w"])).encode(rows)


def test_rows_of_no_columns_are_none() -> None:
    texts: Sequence[bytes] = [b"{}"]
    rows = PublicRows.of_json(texts)
    assert (len(rows), rows.json, rows.members, list(rows.chunks())) == (1, texts, None, [])
