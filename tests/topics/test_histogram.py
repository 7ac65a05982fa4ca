"""Released rows: JSON that any reader takes, numbers that read back the same, the same bytes every time."""

import dataclasses
import json

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from susurrus.topics.histogram import ColumnRows, TriggerHeader, decode_row, decode_rows, encode_rows
from susurrus.topics.wire.packing import MalformedRecord

RELEASE = TriggerHeader(
    window_start=1_767_225_600_000,
    window_end=1_767_312_000_000,
    trigger=3,
    of_triggers=96,
    strategy="toeplitz",
    epoch="6f0c",
)
KEYS = st.lists(
    st.recursive(st.none() | st.booleans() | st.integers(-(2**63), 2**63) | st.text(), st.lists, max_leaves=4)
    .map(lambda key: json.dumps(key, separators=(",", ":")).encode()),
    max_size=6,
)  # fmt: skip
FINITE = st.floats(allow_nan=False, allow_infinity=False)


@st.composite
def releases(draw):
    keys = draw(KEYS)
    names = draw(st.lists(st.text(max_size=8), unique=True, max_size=3))
    n = len(keys)

    def numbers(kind, strategy):
        return np.array(draw(st.lists(strategy, min_size=n, max_size=n)), kind)

    columns = []
    for name in names:
        whole = draw(st.booleans())
        estimate = numbers(np.int64, st.integers(-(2**63), 2**63 - 1)) if whole else numbers(np.float64, FINITE)
        constant = draw(st.booleans())
        columns.append(
            ColumnRows(
                name=name, estimate=estimate, std_error=draw(FINITE) if constant else numbers(np.float64, FINITE)
            )
        )
    return keys, columns


@given(releases())
def test_rows_are_json_with_exactly_these_numbers(release):
    keys, columns = release
    row_keys, values = encode_rows(RELEASE, keys, columns)
    assert len(row_keys) == len(values) == len(keys)
    for i, (key, row_key, value) in enumerate(zip(keys, row_keys, values, strict=True)):
        want = {
            c.name: {
                "estimate": c.estimate[i].item(),
                "std_error": c.std_error if isinstance(c.std_error, float) else c.std_error[i].item(),
            }
            for c in columns
        }
        assert json.loads(row_key) == {"window": "2026-01-01T00:00:00Z", "key": json.loads(key)}
        assert json.loads(value) == {
            "window_start": "2026-01-01T00:00:00Z",
            "window_end": "2026-01-02T00:00:00Z",
            "trigger": 3,
            "of_triggers": 96,
            "key": json.loads(key),
            "values": want,
            "strategy": "toeplitz",
            "epoch": "6f0c",
            "schema": 1,
        }
        row = decode_row(value)
        assert (row.window, row.trigger, row.key) == (RELEASE.window_start, 3, json.loads(key))
        assert {n: (m.estimate, m.std_error) for n, m in row.values.items()} == {
            n: (m["estimate"], m["std_error"]) for n, m in want.items()
        }


def test_the_bytes_of_a_row_are_pinned():
    visits = ColumnRows(name="visits", estimate=np.array([118, -2]), std_error=9.25)
    mean = ColumnRows(name="mean", estimate=np.array([0.1, 1e22]), std_error=np.array([1.0, 5e-324]))
    keys, values = encode_rows(RELEASE, [b'"/a"', b"[1,null]"], [visits, mean])
    assert keys == [
        b'{"window":"2026-01-01T00:00:00Z","key":"/a"}',
        b'{"window":"2026-01-01T00:00:00Z","key":[1,null]}',
    ]
    start = b'{"window_start":"2026-01-01T00:00:00Z","window_end":"2026-01-02T00:00:00Z",'
    start += b'"trigger":3,"of_triggers":96,"key":'
    end = b',"strategy":"toeplitz","epoch":"6f0c","schema":1}'
    assert values == [
        start
        + b'"/a","values":{"visits":{"estimate":118,"std_error":9.25},"mean":{"estimate":0.1,"std_error":1.0}}'
        + end,
        start
        + b'[1,null],"values":{"visits":{"estimate":-2,"std_error":9.25},"mean":{"estimate":1e22,"std_error":5e-324}}'
        + end,
    ]


def test_the_bytes_of_a_direct_pair_are_pinned_and_read_back():
    pair = (np.array([131, 7]), np.array([21.5, 21.5]))
    visits = ColumnRows(name="visits", estimate=np.array([118, 9]), std_error=np.array([9.25, 8.0]), direct=pair)
    _, values = encode_rows(RELEASE, [b'"/a"', b'"/b"'], [visits])
    assert (
        b'"values":{"visits":{"estimate":118,"std_error":9.25,"direct":{"estimate":131,"std_error":21.5}}},"strategy"'
        in values[0]
    )
    rows = [decode_row(value).values["visits"] for value in values]
    assert [(row.estimate, row.std_error, row.direct.estimate, row.direct.std_error) for row in rows] == [
        (118, 9.25, 131, 21.5),
        (9, 8.0, 7, 21.5),
    ]
    assert decode_row(ROW).values["visits"].direct is None


@given(releases(), st.booleans())
def test_rows_are_read_back_as_the_columns_they_were_written_from(release, direct):
    keys, columns = release
    if direct:
        columns = [dataclasses.replace(c, direct=(c.estimate, np.abs(c.estimate.astype(float)))) for c in columns]
    _, values = encode_rows(RELEASE, keys, columns)
    later = dataclasses.replace(RELEASE, trigger=4)
    found = list(decode_rows(values + encode_rows(later, keys, columns)[1]))
    assert [part.release for part in found] == ([RELEASE, later] if keys else [])
    for part in found:
        assert part.keys == keys
        assert [c.name for c in part.columns] == [c.name for c in columns]
        for got, wanted in zip(part.columns, columns, strict=True):
            assert got.estimate.dtype == wanted.estimate.dtype
            assert got.estimate.tolist() == wanted.estimate.tolist()
            assert got.std_error.tolist() == np.broadcast_to(wanted.std_error, len(keys)).tolist()
            assert (got.direct is None) == (wanted.direct is None)
            if wanted.direct is not None:
                assert [of.tolist() for of in got.direct] == [of.tolist() for of in wanted.direct]


def test_rows_that_do_not_fit_together_are_malformed():
    _, [first, second] = encode_rows(
        RELEASE, [b"1", b"2"], [ColumnRows(name="x", estimate=np.array([1, 2]), std_error=1.0)]
    )
    for wrong, message in (
        (second.replace(b'"x"', b'"y"'), "differ in their columns"),
        (second.replace(b'"schema":1', b'"schema":2'), "upgrade the reader"),
        (second.replace(b'"estimate":2', b'"estimate":18446744073709551616'), "histogram row"),
        (second.replace(b"2026-01-01T00:00:00Z", b"yesterday"), "RFC 3339"),
        (second[:-1], "truncated"),
    ):
        assert wrong != second
        with pytest.raises(MalformedRecord, match=message):
            list(decode_rows([first, wrong]))


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_what_is_not_finite_is_never_published(bad):
    for column in (
        ColumnRows(name="x", estimate=np.array([bad]), std_error=1.0),
        ColumnRows(name="x", estimate=np.array([1]), std_error=bad),
        ColumnRows(name="x", estimate=np.array([1]), std_error=np.array([bad])),
        ColumnRows(name="x", estimate=np.array([1]), std_error=1.0, direct=(np.array([bad]), 1.0)),
        ColumnRows(name="x", estimate=np.array([1]), std_error=1.0, direct=(np.array([1]), np.array([bad]))),
    ):
        with pytest.raises(ValueError, match="finite"):
            encode_rows(RELEASE, [b"1"], [column])


def test_columns_of_another_length_are_refused():
    with pytest.raises(ValueError, match="shape"):
        encode_rows(RELEASE, [b"1"], [ColumnRows(name="x", estimate=np.array([1, 2]), std_error=1.0)])


def test_percent_signs_are_only_text():
    release = dataclasses.replace(RELEASE, strategy="50%b", epoch="%%d")
    column = ColumnRows(name="%s share", estimate=np.array([1]), std_error=1.0)
    keys, values = encode_rows(release, [b'"100%25"'], [column])
    assert json.loads(keys[0])["key"] == "100%25"
    row = decode_row(values[0])
    assert (row.key, row.strategy, row.epoch, list(row.values)) == ("100%25", "50%b", "%%d", ["%s share"])


ROW = encode_rows(RELEASE, [b'"/a"'], [ColumnRows(name="visits", estimate=np.array([1]), std_error=1.0)])[1][0]


def test_every_truncation_of_a_row_is_malformed():
    for end in range(len(ROW)):
        with pytest.raises(MalformedRecord):
            decode_row(ROW[:end])


@pytest.mark.parametrize(
    ("old", "new"),
    [
        (b'"schema":1', b'"schema":2'),
        (b"2026-01-01T", b"2026-13-01T"),
        (b'"trigger":3', b'"trigger":"3"'),
        (b'"estimate":1', b'"estimate":null'),
        (b'"/a"', b"[" * 5000),
        (b'"/a"', b'"\xff"'),
    ],
)
def test_a_wrong_row_is_malformed(old, new):
    assert old in ROW
    with pytest.raises(MalformedRecord):
        decode_row(ROW.replace(old, new))


def test_a_row_may_gain_fields():
    assert decode_row(ROW.replace(b'"schema"', b'"later":[1],"schema"')) == decode_row(ROW)


def test_the_time_range_is_checked():
    with pytest.raises(ValueError, match="years"):
        encode_rows(dataclasses.replace(RELEASE, window_end=10**18), [], [])


def test_the_bytes_of_smoothed_rows_are_pinned_and_only_some_rows_have_them():
    visits = ColumnRows(
        name="visits",
        estimate=np.array([118, 9, 40]),
        std_error=9.25,
        direct=(np.array([131, 7, 38]), 21.5),
        smoothed=(np.array([124, 0, 41]), np.array([6.5, np.nan, 7.0])),
        smoothed_rows=np.array([True, False, True]),
    )
    other = ColumnRows(name="bytes", estimate=np.array([1.5, 2.5, 3.5]), std_error=1.0)
    keys = [b'"/a"', b'"/b"', b'"/c"']
    _, values = encode_rows(RELEASE, keys, [visits, other])
    start = b'"values":{"visits":{"estimate":%d,"std_error":9.25,"direct":{"estimate":%d,"std_error":21.5}'
    end = b'},"bytes":{"estimate":%b,"std_error":1.0}},"strategy"'
    smoothed = b',"smoothed":{"estimate":%d,"std_error":%b}'
    for value, wanted in zip(
        values,
        (
            start % (118, 131) + smoothed % (124, b"6.5") + end % b"1.5",
            start % (9, 7) + end % b"2.5",
            start % (40, 38) + smoothed % (41, b"7.0") + end % b"3.5",
        ),
        strict=True,
    ):
        assert wanted in value
    [read] = decode_rows(values)
    column = read.columns[0]
    assert column.smoothed_rows.tolist() == [True, False, True]
    assert column.shown.tolist() == visits.shown.tolist() == [124, 9, 41]
    assert column.smoothed[1].tolist() == [6.5, 9.25, 7.0], "the error of what is shown, and no NaN"
    assert (read.columns[1].smoothed, read.columns[1].smoothed_rows) == (None, None)
    rows = [decode_row(value).values["visits"].smoothed for value in values]
    assert [of and (of.estimate, of.std_error) for of in rows] == [(124, 6.5), None, (41, 7.0)]


@given(releases(), st.data())
def test_smoothed_rows_are_read_back_where_they_were_written(release, data):
    keys, columns = release
    some = np.array(data.draw(st.lists(st.booleans(), min_size=len(keys), max_size=len(keys))), np.bool_)
    written = [dataclasses.replace(c, smoothed=(c.estimate // 2, 3.5), smoothed_rows=some) for c in columns]
    _, values = encode_rows(RELEASE, keys, written)
    for value, has in zip(values, some.tolist(), strict=True):
        assert all(("smoothed" in of) == has for of in json.loads(value)["values"].values())
    for part in decode_rows(values):
        for got, wanted in zip(part.columns, written, strict=True):
            assert (got.smoothed is not None) == some.any()
            assert got.shown.tolist() == wanted.shown.tolist()
            assert got.estimate.tolist() == wanted.estimate.tolist()
    # A mask of all rows, and none, are the same bytes.
    all_rows = [dataclasses.replace(c, smoothed_rows=np.ones(len(keys), np.bool_)) for c in written]
    no_mask = [dataclasses.replace(c, smoothed_rows=None) for c in written]
    assert encode_rows(RELEASE, keys, all_rows) == encode_rows(RELEASE, keys, no_mask)


def test_a_mask_of_another_length_and_a_number_that_is_not_finite_are_refused():
    column = ColumnRows(name="x", estimate=np.array([1, 2]), std_error=1.0, smoothed=(np.array([1, 2]), 1.0))
    with pytest.raises(ValueError, match="smoothed has rows of shape"):
        encode_rows(RELEASE, [b"1", b"2"], [dataclasses.replace(column, smoothed_rows=np.array([True]))])
    wrong = dataclasses.replace(
        column, smoothed=(np.array([1, 2]), np.array([np.nan, 1.0])), smoothed_rows=np.array([True, False])
    )
    with pytest.raises(ValueError, match=r"smoothed\.std_error is not finite"):
        encode_rows(RELEASE, [b"1", b"2"], [wrong])
