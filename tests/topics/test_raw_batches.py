"""The compiled decoder of record batches is the decoder in Python, on whatever a record may hold."""

import itertools
from dataclasses import fields, replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from susurrus.topics.compiled import compiled
from susurrus.topics.records.payloads import JsonReader
from susurrus.topics.records.raw import BucketField, ComputedField, RawColumns, RawDecoder, RawSchema, ValueField
from susurrus.topics.records.reason import Reason
from susurrus.topics.wire.partitioner import placements
from tests.record_batches import record_batch, section_of
from tests.topics.odd_json import NUMBERS, OTHERS, TEXTS, TIMES, WHOLES, Odd

if compiled is not None:
    from susurrus.topics.raw_batches import RawBatchDecoder
    from susurrus.topics.wire.batch_reader import MalformedBatch

pytestmark = pytest.mark.skipif(compiled is None, reason="the extension is not built")

VALUES = (ValueField("v", 100.0, 0.5), ValueField("w", 1000, 1, lower=-3, upper=10))
SCHEMAS = {
    "plain": RawSchema(user=("u",), key=("k",)),
    "whole": RawSchema(user=("u",), key=(), values=(ValueField("v", 5, 0.5),), time="t"),
    "full": RawSchema(
        user=("who.id",), key=("k", "z"), values=VALUES, time="t", time_unit="s", null_user="value", null_key="value"
    ),
    "short": RawSchema(user=("u",), key=("k", "who.id", "z"), time="t", time_unit="iso", max_key_bytes=40),
    "nested": RawSchema(
        user=("who.id",), key=("who.x",), values=VALUES[:1], time="t", time_unit="ms", null_key="value"
    ),
    "micro": RawSchema(user=("u",), key=("u",), values=(ValueField("u", 5, 0.1), *VALUES), time="u", time_unit="us"),
    "nano": RawSchema(user=("ü",), key=("a\\.b", "U"), time="t", time_unit="ns", max_key_bytes=5),
    "empty": RawSchema(user=("u",), key=("u", "k"), empty_user="value"),
    "buckets": RawSchema(
        user=("u",),
        key=("k",),
        values=(BucketField("v", (-1.0, -0.0, 0.1, 0.3, 7.0, 1e300)), *VALUES, BucketField("w", (0.0, 0.5, 1.0))),
    ),
    "tiny": RawSchema(user=("k",), key=("z",), values=(ValueField("v", 1e-3, 1e-9),), time="t", time_unit="s"),
}


def in_python(schema, payloads):
    decoder = RawDecoder(schema)
    return decoder.decode(JsonReader(decoder.paths).read(payloads))


def difference(found: RawColumns, wanted: RawColumns) -> str:
    """The first field that differs, in words; empty if none does."""
    for field in fields(RawColumns):
        if field.name == "placements":
            continue  # the decoder in Python has none
        ours, theirs = getattr(found, field.name), getattr(wanted, field.name)
        if isinstance(theirs, np.ndarray):
            if ours.dtype != theirs.dtype or ours.shape != theirs.shape:
                return f"{field.name}: {ours.dtype}{ours.shape} and {theirs.dtype}{theirs.shape}"
            if ours.tobytes() != theirs.tobytes():
                row = np.flatnonzero((ours != theirs).reshape(len(ours), -1).any(axis=1))[0]
                return f"{field.name} of row {row}: {ours[row]} and {theirs[row]}"
        elif ours != theirs:
            return f"{field.name} differ"
    return ""


def compare(schema, payloads, *, batches=3):
    """Both decoders, the compiled one from several record batches. What was left to Python, and how much there was."""
    cuts = np.linspace(0, len(payloads), batches + 1).astype(int).tolist()
    sections = [section_of(record_batch(payloads[a:b], first=a)) for a, b in itertools.pairwise(cuts) if b > a]
    records, columns = RawBatchDecoder(schema).decode(sections, 0)
    assert difference(columns, in_python(schema, payloads)) == ""
    assert columns.placements.dtype == np.uint32
    assert columns.placements.tolist() == placements(columns.users).tolist()
    assert records.offset.tolist() == list(range(len(payloads)))
    assert records.timestamp.tolist() == [1_000 + row for row in range(len(payloads))]
    assert records.values(np.arange(len(payloads))) == payloads
    return records, columns


@pytest.mark.parametrize("empty_user", ["dead-letter", "value"])
def test_an_empty_user_is_what_it_is_in_python_also_where_it_comes_first_or_alone(empty_user: str) -> None:
    schema = RawSchema(user=("u",), key=("k",), empty_user=empty_user)
    empty, other = b'{"u":"","k":"a"}', b'{"u":"ann","k":"b"}'
    lists = [
        [empty],
        [empty, other],
        [other, empty, other],
        [empty] * 5,
        [other, b'{"u":"","k":""}', empty, b'{"u":"a","k":""}'],
    ]
    for payloads in lists:
        records, columns = compare(schema, payloads, batches=2)
        wanted = Reason.OK if empty_user == "value" else Reason.EMPTY_USER
        assert set(columns.reason[[b'"u":""' in payload for payload in payloads]].tolist()) == {wanted}
        # Only what may not be decided there is left to Python.
        assert len(records.left) == (0 if empty_user == "value" else sum(b'"u":""' in payload for payload in payloads))


def test_a_value_at_a_border_is_in_the_same_bucket_as_in_python() -> None:
    borders = (-1.0, 0.0, 0.1, 0.3, 7.0, 2.0**53)
    schema = RawSchema(user=("u",), key=("k",), values=(BucketField("v", borders),))
    texts = [
        text
        for border in borders
        for value in (np.nextafter(border, -np.inf), border, np.nextafter(border, np.inf))
        for text in (repr(float(value)), f"{value:.30f}", f"{value:.17e}")
    ]
    texts += [
        "-0",
        "-0.0",
        "0e9",
        "0.10000000000000000555",
        "9007199254740993",
        "18446744073709551615",
        "-9223372036854775808",
    ]
    _, columns = compare(schema, [b'{"u":1,"k":1,"v":%s}' % text.encode() for text in texts])
    assert columns.values[:, 0].tolist() == [sum(border < float(text) for border in borders[1:-1]) for text in texts]


@pytest.mark.parametrize("name", SCHEMAS)
def test_a_hundred_thousand_odd_records_are_what_they_are_in_python(name: str) -> None:
    """100,000 in all, in batches of all sizes: a code depends on what came before it."""
    odd, left, rows, good = Odd(sorted(SCHEMAS).index(name)), 0, 0, 0
    for number in (1, 2, 7, 100, 1_000, 5_000, 8_300):
        records, columns = compare(SCHEMAS[name], odd.payloads(number))
        left += records.left.size
        rows += number
        good += int((columns.reason == Reason.OK).sum())
    assert rows * len(SCHEMAS) >= 100_000
    assert left < rows or name == "nano"
    assert good > left / 20 or name in ("nano", "micro"), "hardly anything was good: the comparison says little"


def every_kind() -> list[bytes | None]:
    """Each odd scalar at each place of an otherwise plain record, and every odd payload."""
    plain = {"u": '"ann"', "k": '"/"', "z": "1", "v": "2", "w": "3", "t": "4", "who": '{"id":"bob","x":1}'}
    payloads: list[bytes | None] = list(WHOLES)
    for scalar in [*TEXTS, *NUMBERS, *TIMES, *OTHERS]:
        for name in [*plain, "other", "who.id", "twice"]:
            texts = dict(plain)
            if name == "who.id":
                texts["who"] = f'{{"x":1,"id":{scalar}}}'
            elif name == "twice":
                payloads.append(
                    f'{{"u":{scalar},"k":{scalar},"u":"ann","k":"b","z":1,"t":4}}'.encode("utf-8", "surrogatepass")
                )
            else:
                texts[name] = scalar
            text = "{" + ",".join(f'"{n}":{t}' for n, t in texts.items()) + "}"
            payloads.append(text.encode("utf-8", "surrogatepass"))
    return payloads


@pytest.mark.parametrize("unit", ["s", "ms", "us", "ns", "d", "iso"])
@pytest.mark.parametrize("name", SCHEMAS)
def test_every_odd_scalar_at_every_place(name: str, unit: str) -> None:
    schema = SCHEMAS[name]
    compare(replace(schema, time=schema.time and "t", time_unit=unit), every_kind(), batches=1)


@pytest.mark.parametrize("time_format", ["rfc3339", "iso8601", "clf", "log4j", "%Y-%m-%dT%H:%M:%S%z"])
@pytest.mark.parametrize("name", ["full", "short"])
def test_every_odd_scalar_in_every_format(name: str, time_format: str) -> None:
    """The scanner takes only what a format reads as RFC 3339 does."""
    schema = replace(SCHEMAS[name], time="t", time_unit="iso", time_format=time_format, time_zone="Asia/Kathmandu")
    records, _ = compare(schema, every_kind(), batches=1)
    taken = len(records) - records.left.size
    assert (taken > 0) == (time_format in ("rfc3339", "iso8601"))


def test_names_that_json_writes_with_an_escape() -> None:
    """The scanner leaves all records: a field has such a name, or is missing."""
    schema = RawSchema(user=('u"',), key=(r"who.i\\d", "k"), null_key="value")
    plain = [payload for payload in every_kind() if payload is not None]
    named = [payload.replace(b'"u"', b'"u\\""').replace(b'"id"', b'"i\\\\d"') for payload in plain]
    records, columns = compare(schema, [*named, *plain])
    assert int((columns.reason == Reason.OK).sum()) > len(plain) / 2
    assert records.left.size == len(named) + len(plain)


def test_a_record_of_plain_fields_is_taken_and_others_are_left() -> None:
    """Else all of this file could pass because nothing is ever taken."""
    taken = [
        b'{"u":"ann","k":"/","z":-17,"v":1,"w":2.5,"t":3,"who":{"id":9223372036854775807}}',
        b' { "who" : { "id" : "\xc3\xbc", "id": true } , "k" : null, "z":"", "v":0.1,"w":-9,'
        b'"t":253402300799, "x":["\\n",{"a":1e5}]}\n',
    ]
    left = [
        taken[0].replace(a, b) for a, b in ((b"ann", b"\\u0061"), (b"1,", b"1e0,"), (b"/", b"\xff"), (b"3,", b"true,"))
    ]
    records, columns = compare(SCHEMAS["full"], [*taken, *left, None])
    assert records.left.tolist() == [3, 4, 5, 6]  # an escape in a field that nobody asks for is no matter
    assert columns.keys[:2] == [b'["/",-17]', b'[null,""]']


def test_a_wrong_row_would_be_found() -> None:
    payloads = Odd(99).payloads(500)
    wanted = in_python(SCHEMAS["full"], payloads)
    _, found = compare(SCHEMAS["full"], payloads)
    good = np.flatnonzero(wanted.reason == 0)
    for name in ("user", "key", "values", "event_time", "reason"):
        wrong = getattr(found, name).copy()
        wrong[good[-1]] += 1
        assert difference(replace(found, **{name: wrong}), wanted).startswith(f"{name} of row {good[-1]}")
    assert difference(replace(found, users=found.users[::-1]), wanted) == "users differ"
    assert "int64" in difference(replace(found, user=found.user.astype(np.int64)), wanted)


@settings(max_examples=300)
@given(
    st.lists(
        st.one_of(
            st.binary(max_size=40),
            st.tuples(st.text(max_size=12), st.integers(), st.floats()).map(
                lambda x: f'{{"u":"{x[0]}","k":{x[1]},"v":{x[2]!r}}}'.encode("utf-8", "surrogatepass")
            ),
        ),
        max_size=12,
    )
)
def test_whatever_bytes(payloads: list[bytes]) -> None:
    compare(RawSchema(user=("u",), key=("k",), values=(ValueField("v", 50.0, 0.1),)), payloads, batches=2)


@pytest.mark.parametrize("digits", range(1, 20))
def test_decimals_are_the_nearest_float(digits: int) -> None:
    """A grid so fine that the last bit of the quotient shows."""
    draw = np.random.default_rng(digits)
    texts = [f"{draw.choice(['', '-'])}{n}" for n in draw.integers(0, min(10**digits, 2**63 - 1), 3_000).tolist()]
    texts = [
        f"{t[:at] if t[:at] not in ('', '-') else t[:at] + '0'}.{t[at:]}"
        for t in texts
        for at in [int(draw.integers(1, 19)) % len(t)]
    ]
    payloads = [b'{"u":1,"k":1,"v":%s}' % text.encode() for text in texts]
    compare(RawSchema(user=("u",), key=("k",), values=(ValueField("v", 1e3, 2.3e-13),)), payloads)


@pytest.mark.parametrize("append_time", [False, True])
def test_cut_at_every_offset(append_time: bool) -> None:
    odd = Odd(5)
    payloads, keys, offsets = odd.payloads(40), odd.keys(40), [*range(10), *range(15, 30), *range(60, 75)]
    headers = [("ü", b"1"), ("none", None)]
    parts = [(0, 10), (10, 11), (11, 40)]
    sections = [
        section_of(
            record_batch(
                payloads[a:b],
                first=100 + offsets[a],
                offsets=[o - offsets[a] for o in offsets[a:b]],
                keys=keys[a:b],
                append_time=append_time,
                headers=headers,
            )
        )
        for a, b in parts
    ]
    decoder = RawBatchDecoder(SCHEMAS["full"])
    stamps = [1_100 + o for o in offsets]
    if append_time:
        stamps = [1_100 + offsets[b - 1] for a, b in parts for _ in range(a, b)]
    every = [
        (100 + o, stamp, int(append_time), key, value)
        for o, stamp, key, value in zip(offsets, stamps, keys, payloads, strict=True)
    ]
    for start in range(99, 177):
        for below in {None, start, start + 7, 176}:
            records, columns = decoder.decode(sections, start, below)
            wanted = [record for record in every if record[0] >= start and (below is None or record[0] < below)]
            assert [record[:5] for record in records] == wanted
            assert difference(columns, in_python(SCHEMAS["full"], [record[4] for record in wanted])) == ""
            assert records.beyond == sum(below is not None and record[0] >= below for record in every)


def test_a_malformed_batch_is_refused_wherever_it_is_cut_or_changed() -> None:
    """What the scanner takes of a damaged batch, a batch of other bytes, must be what those bytes say."""
    batch = record_batch([b'{"u":1,"k":"a"}', None, b'{"u":2,"k":"b"}'], headers=[("h", b"v")])
    decoder, whole = RawBatchDecoder(SCHEMAS["plain"]), section_of(batch)
    for last in range(whole.first, whole.last):
        with pytest.raises(MalformedBatch):
            decoder.decode([whole._replace(last=last)], 0)
    for count in (0, 1, 2, 4, 2**31 - 1):
        with pytest.raises(MalformedBatch):
            decoder.decode([whole._replace(number=count)], 0)
    for changes in (
        {"last": 2**40},
        {"first": whole.last + 1},
        {"base_offset": 2**63 - 1},
        {"span": 2},
    ):
        with pytest.raises(MalformedBatch):
            decoder.decode([whole._replace(**changes)], 0)


def test_a_computed_scalar_is_not_for_this_decoder() -> None:
    with pytest.raises(ValueError, match="computed"):
        RawBatchDecoder(RawSchema(user=("u",), key=(ComputedField("upper(k)"),)))
