"""The raw decoder: what is accepted and as what, why the rest is refused, and that no record touches another."""

import json
import math
import re
from datetime import UTC, datetime
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import assume, example, given
from hypothesis import strategies as st

from susurrus.topics.records.payloads import JsonReader, chunk_of_objects
from susurrus.topics.records.raw import RawDecoder, RawSchema, Reason, ValueField
from susurrus.topics.records.refusal import MAX_DEPTH
from susurrus.topics.records.times import event_times
from susurrus.topics.wire.timestamps import EARLIEST, LATEST

SIMPLE = RawDecoder(RawSchema(user=("u",), key=("k",)))
ANY_TEXT = RawDecoder(RawSchema(user=("u",), key=("k",), empty_user="value"))
FULL = RawDecoder(
    RawSchema(
        user=("who.id",),
        key=("k", "z"),
        values=(ValueField("v", 10.0, 0.5), ValueField("w", 1000, 1)),
        time="t",
        time_unit="s",
        null_user="value",
        null_key="value",
    )
)
GOOD = b'{"u":"ann","k":"/"}'
PER_MILLISECOND = {"s": Fraction(1, 1000), "ms": Fraction(1), "us": Fraction(1000), "ns": Fraction(1_000_000)}


def from_json(decoder, payloads):
    return decoder.decode(JsonReader(decoder.paths).read(payloads))


def from_objects(decoder, objects):
    return decoder.decode([chunk_of_objects(objects, decoder.paths)])


def rows(columns):
    """The batch as one tuple per record, independent of how codes were given."""
    return [
        (
            Reason(reason),
            None if reason else columns.users[user],
            None if reason else columns.keys[key],
            tuple(values),
            None if columns.event_time is None else int(columns.event_time[row]),
        )
        for row, (reason, user, key, values) in enumerate(
            zip(*(c.tolist() for c in (columns.reason, columns.user, columns.key, columns.values)), strict=True)
        )
    ]


def one(payload, decoder=SIMPLE):
    return rows(from_json(decoder, [payload]))[0]


def full(**changes):
    """A good record for FULL with some fields changed; ... removes a field."""
    fields = {"who": {"id": "ann"}, "k": "a", "z": 1, "v": 1, "w": 2, "t": 3} | changes
    return json.dumps({name: value for name, value in fields.items() if value is not ...}).encode()


class TestReasons:
    @pytest.mark.parametrize(
        ("payload", "reason"),
        [
            (None, Reason.TOMBSTONE),
            (b"", Reason.EMPTY),
            (b" \r\n\t", Reason.EMPTY),
            (b"\x0c", Reason.NOT_JSON),
            (b"{", Reason.NOT_JSON),
            (b"hello", Reason.NOT_JSON),
            (b"{'u':1,'k':2}", Reason.NOT_JSON),
            (GOOD + GOOD, Reason.NOT_JSON),
            (GOOD + b"\n" + GOOD, Reason.NOT_JSON),
            (GOOD + b"x", Reason.NOT_JSON),
            (GOOD + b"\0", Reason.NOT_JSON),
            (b"\xef\xbb\xbf\xef\xbb\xbf" + GOOD, Reason.NOT_JSON),  # one byte order mark is passed over
            (GOOD.decode().encode("utf-16"), Reason.UTF16),
            (b'{"u":"a\nb","k":1}', Reason.NOT_JSON),
            (b'{"u":01,"k":1}', Reason.NOT_JSON),
            (b'{"u":1,"k":1,}', Reason.NOT_JSON),
            (b'{"u":"\xff","k":1}', Reason.INVALID_UTF8),
            (b'{"u":"\xed\xa0\x80","k":1}', Reason.INVALID_UTF8),
            (b'{"u":"\\ud800","k":1}', Reason.INVALID_UTF8),
            (b'{"u":1,"k":1,"other":"\\udc00"}', Reason.INVALID_UTF8),
            (b"5", Reason.WRONG_TYPE),
            (b"null", Reason.WRONG_TYPE),
            (b'"u"', Reason.WRONG_TYPE),
            (b'[{"u":1,"k":1}]', Reason.WRONG_TYPE),
            (b'{"u":{},"k":1}', Reason.NOT_A_SCALAR),
            (b'{"u":1,"k":[1]}', Reason.NOT_A_SCALAR),
            (b"{}", Reason.MISSING_USER),
            (b'{"k":1}', Reason.MISSING_USER),
            (b'{"u":null,"k":1}', Reason.MISSING_USER),
            (b'{"u":1}', Reason.MISSING_KEY),
            (b'{"u":1,"k":null}', Reason.MISSING_KEY),
            (b'{"u":NaN,"k":1}', Reason.NOT_FINITE),
            (b'{"u":1,"k":1,"other":-Infinity}', Reason.NOT_FINITE),
            (b'{"u":1e400,"k":1}', Reason.NOT_FINITE),
            (b'{"u":1,"k":-1e999}', Reason.NOT_FINITE),
            (b'{"u":18446744073709551616,"k":1}', Reason.INTEGER_TOO_LARGE),
            (b'{"u":-9223372036854775809,"k":1}', Reason.INTEGER_TOO_LARGE),
            (b'{"u":1e20,"k":1}', Reason.INEXACT_NUMBER),
            (b'{"u":1e300,"k":1}', Reason.INEXACT_NUMBER),
            (b'{"u":9007199254740993.0,"k":1}', Reason.INEXACT_NUMBER),  # as a float it is user ...992
            (b'{"u":1,"k":-9007199254740992.0}', Reason.INEXACT_NUMBER),
            (b'{"u":' + b"9" * 10_000 + b',"k":1}', Reason.INTEGER_TOO_LARGE),
            (b'{"u":1,"k":"' + b"x" * 4095 + b'"}', Reason.TOO_LARGE),
            (b'{"u":"' + b"x" * 1_000_000 + b'","k":1}', Reason.TOO_LARGE),
            (b'{"u":1,"k":"' + b"\\u0001" * 700 + b'"}', Reason.TOO_LARGE),
            (b"[" * 1_000_000, Reason.TOO_DEEP),
            (b'{"u":1,"k":' * 100_000, Reason.TOO_DEEP),
            (b'{"u":1,"k":1,"other":' + b"[" * MAX_DEPTH + b"]" * MAX_DEPTH + b"}", Reason.TOO_DEEP),
        ],
        ids=lambda x: x.name if isinstance(x, Reason) else repr(x[:30]) if x is not None else "null",
    )
    def test_bad_input_has_its_reason_and_leaves_its_neighbours_alone(self, payload, reason):
        columns = from_json(SIMPLE, [GOOD, payload, b'{"u":"bob","k":"/"}'])
        assert [Reason(r) for r in columns.reason] == [Reason.OK, reason, Reason.OK]
        assert columns.user.tolist() == [0, -1, 1]
        assert columns.key.tolist() == [0, -1, 0]
        assert (columns.users, columns.keys) == ([b'"ann"', b'"bob"'], [b'"/"'])

    @pytest.mark.parametrize(
        ("changes", "reason"),
        [
            ({"who": "ann"}, Reason.WRONG_TYPE),
            ({"who": [1]}, Reason.WRONG_TYPE),
            ({"who": {"id": []}}, Reason.NOT_A_SCALAR),
            ({"v": ...}, Reason.MISSING_VALUE),
            ({"w": None}, Reason.MISSING_VALUE),
            ({"v": "1"}, Reason.VALUE_NOT_A_NUMBER),
            ({"v": True}, Reason.VALUE_NOT_A_NUMBER),
            ({"v": {}}, Reason.NOT_A_SCALAR),
            ({"v": 2**64}, Reason.INTEGER_TOO_LARGE),
            ({"v": -(10**400)}, Reason.INTEGER_TOO_LARGE),
            ({"v": math.inf}, Reason.NOT_FINITE),
            ({"v": math.nan}, Reason.NOT_FINITE),
            ({"t": ...}, Reason.MISSING_TIME),
            ({"t": None}, Reason.MISSING_TIME),
            ({"t": True}, Reason.BAD_TIME),
            ({"t": "1970-01-01T00:00:00Z"}, Reason.TIME_NOT_A_NUMBER),
            ({"t": 253402300800}, Reason.BAD_TIME),
            ({"t": -62135596801}, Reason.BAD_TIME),
            ({"t": 2**63}, Reason.BAD_TIME),
            ({"t": 1e300}, Reason.BAD_TIME),
            ({"t": -1e18}, Reason.BAD_TIME),
            ({"k": "x" * 3000, "z": "y" * 3000}, Reason.TOO_LARGE),
        ],
        ids=repr,
    )
    def test_of_values_times_and_nested_fields(self, changes, reason):
        assert one(full(**changes), FULL)[0] is reason

    def test_the_first_reason_in_the_order_user_key_value_time_stands(self):
        user_first = RawDecoder(RawSchema(user=("who.id",), key=("k",), time="t"))
        assert one(full(who={}, k=[], t="x"), user_first)[0] is Reason.MISSING_USER
        assert one(full(k=[], v=None, t="x"), FULL)[0] is Reason.NOT_A_SCALAR
        assert one(full(v=None, t="x"), FULL)[0] is Reason.MISSING_VALUE

    def test_a_count_needs_no_value(self):
        assert one(b'{"u":1,"k":2,"v":"anything"}') == (Reason.OK, b"1", b"2", (), None)

    def test_limits_are_inclusive(self):
        assert one(b'{"u":1,"k":"' + b"x" * 4094 + b'"}')[0] is Reason.OK
        inner = MAX_DEPTH - 1
        assert one(b'{"u":1,"k":1,"other":' + b"[" * inner + b"]" * inner + b"}")[0] is Reason.OK
        assert one(b'{"u":18446744073709551615,"k":-9223372036854775808}')[0] is Reason.OK

    def test_brackets_inside_strings_do_not_nest(self):
        assert one(b'{"u":1,"k":1,"other":"' + b'[{\\"' * 1000 + b'"}')[0] is Reason.OK


class TestCanonical:
    @pytest.mark.parametrize(
        ("spellings", "canonical"),
        [
            (['"a"', r'"\u0061"', r'"\u0061"'], b'"a"'),
            (["1", "1.0", "1e0", "10E-1", "1.0000000000000000000001"], b"1"),
            (["0", "-0", "-0.0", "0e5", "1e-400"], b"0"),
            (["0.1", "1e-1", "0.10"], b"0.1"),
            (["1e5", "100000"], b"100000"),
            (['"/"', r'"\/"'], b'"/"'),
            ([r'"\u00e9"', '"é"'], '"é"'.encode()),
            ([r'"\ud83c\udf0a"', '"🌊"'], '"🌊"'.encode()),
            ([r'"\u0000"'], rb'"\u0000"'),
            ([r'"\u000a"', r'"\n"'], rb'"\n"'),
            (["true"], b"true"),
            (["false"], b"false"),
            (['"1"'], b'"1"'),
            (['""'], b'""'),
        ],
    )
    def test_spellings_of_one_scalar_share_their_bytes(self, spellings, canonical):
        columns = from_json(ANY_TEXT, [f'{{"u":{s},"k":{s}}}'.encode() for s in spellings])
        assert (columns.users, columns.keys) == ([canonical], [canonical])

    def test_scalars_that_differ_stay_apart(self):
        scalars = [b"1", b"true", b'"1"', b"0", b"false", b'"true"', b'""', b'"null"', b"1.5", b'"1.5"', b"-1"]
        columns = from_json(ANY_TEXT, [b'{"u":%b,"k":%b}' % (s, s) for s in scalars])
        assert columns.users == columns.keys == scalars

    def test_null_as_a_value_is_a_user_and_key_of_its_own(self):
        found = one(full(who={"id": None}, k=None), FULL)
        assert found[:3] == (Reason.OK, b"null", b"[null,1]")

    def test_the_empty_text_is_no_user_unless_it_may_be_one(self):
        """Also written as an escape can be; beside good records, which it leaves alone. A key may be empty."""
        payloads = [
            b'{"u":"ann","k":""}',
            b'{"u":"","k":"a"}',
            b'{"u":"\\u0020","k":"b"}',
            b'{"u":"","k":"c"}',
            b'{"u":0,"k":"a"}',
        ]
        columns = from_json(SIMPLE, payloads)
        assert columns.reason.tolist() == [Reason.OK, Reason.EMPTY_USER, Reason.OK, Reason.EMPTY_USER, Reason.OK]
        assert (columns.users, columns.keys) == ([b'"ann"', b'" "', b"0"], [b'""', b'"b"', b'"a"'])
        assert (columns.user.tolist(), columns.key.tolist()) == ([0, -1, 1, -1, 2], [0, -1, 1, -1, 2])
        columns = from_json(ANY_TEXT, payloads)
        assert not columns.reason.any()
        assert columns.users == [b'"ann"', b'""', b'" "', b"0"]
        assert columns.user.tolist() == [0, 1, 2, 1, 3]

    def test_an_empty_user_goes_before_what_else_is_wrong_with_the_record(self):
        tight = RawDecoder(RawSchema(user=("u",), key=("k",), max_key_bytes=1))
        assert one(b'{"u":"","k":null}')[0] is one(b'{"u":"","k":"longer"}', tight)[0] is Reason.EMPTY_USER
        assert one(b'{"u":"","k":1', tight)[0] is Reason.NOT_JSON

    @pytest.mark.parametrize("change", [{"who": None}, {"who": {}}, {"who": {"id": None}}, {"who": ...}], ids=repr)
    def test_an_absent_user_or_key_is_a_null_one(self, change):
        """Producers that leave nulls out write the same record in another way."""
        assert one(full(**change), FULL)[1:3] == one(full(who={"id": None}), FULL)[1:3]
        assert one(full(**change), FULL)[1] == b"null"
        absent, null = (one(full(z=z), FULL) for z in (..., None))
        assert absent == null
        assert absent[0] is Reason.OK

    def test_composite_keys_do_not_run_together(self):
        decoder = RawDecoder(RawSchema(user=("u",), key=("a", "b")))
        pairs = [("a,b", "c"), ("a", "b,c"), ('a","b', "c"), ("a", 'b","c'), ("", "abc"), ("abc", "")]
        columns = from_json(decoder, [json.dumps({"u": 1, "a": a, "b": b}).encode() for a, b in pairs])
        assert [tuple(json.loads(key)) for key in columns.keys] == pairs

    def test_the_last_of_duplicate_names_wins(self):
        assert one(b'{"u":1,"k":2,"u":3}')[1] == b"3"
        assert one(b'{"who":{"id":1},"k":1,"z":1,"v":1,"w":1,"t":1,"who":{}}', FULL)[1] == b"null"

    def test_white_space_and_line_feeds_around_tokens_are_json(self):
        assert one(b'\r\n {\n  "u" : "ann",\n  "k":\t"/"\n}\n') == one(GOOD)

    def test_names_with_dots_and_strange_names_are_reachable(self):
        decoder = RawDecoder(RawSchema(user=(r"a\.b.c",), key=("übel", "class")))
        assert one('{"a.b":{"c":1},"übel":2,"class":3}'.encode(), decoder)[1:3] == (b"1", b"[2,3]")

    def test_one_field_may_be_user_and_key(self):
        assert one(b'{"u":1}', RawDecoder(RawSchema(user=("u",), key=("u",))))[1:3] == (b"1", b"1")


class TestNumbers:
    @pytest.mark.parametrize(
        ("value", "steps"),
        [
            (0, 0),
            (1, 2),
            (0.24, 0),
            (0.25, 0),
            (0.26, 1),
            (0.75, 2),
            (-3.3, -7),
            (10, 20),
            (11, 20),
            (-1e308, -20),
            (2**63, 20),
        ],
    )
    def test_values_are_rounded_to_the_grid_and_clamped(self, value, steps):
        assert one(full(v=value), FULL)[3] == (steps, 2)
        mixed = from_json(FULL, [full(v=value), full(v=0.5), full(v=3)])
        assert mixed.values[:, 0].tolist() == [steps, 1, 6]

    @pytest.mark.parametrize(
        ("unit", "stamp", "milliseconds"),
        [
            ("s", 1_700_000_000, 1_700_000_000_000),
            ("s", 1_700_000_000.123, 1_700_000_000_123),
            ("s", 1_790_834_400.1237, 1_790_834_400_123),  # Kafka's stamp of that moment is cut, too
            ("s", 1_790_899_199.9996, 1_790_899_199_999),  # not the next day
            ("s", 1_790_834_400.0, 1_790_834_400_000),
            ("s", -1.5, -1500),
            ("s", -0.0001, -1),
            ("s", -1.001, -1001),
            ("s", -1.0011, -1002),
            ("s", 253402300799.9996, 253402300799999),
            ("ms", -0.5, -1),
            ("us", -0.5, -1),
            ("us", -1000.0, -1),
            ("ns", 1790834400.123e9, 1_790_834_400_123),
            ("ns", -1.0, -1),
            ("s", 253402300799, 253402300799000),
            ("ms", 1_700_000_000_123, 1_700_000_000_123),
            ("ms", 1.9, 1),
            ("us", 1_700_000_000_123_999, 1_700_000_000_123),
            ("us", -1, -1),
            ("us", 1999.5, 1),
            ("ns", 1_700_000_000_123_999_999, 1_700_000_000_123),
            ("ns", 1.7e18, 1_700_000_000_000),
            ("iso", "2023-11-14T22:13:20.123Z", 1_700_000_000_123),
            ("iso", "2023-11-14t23:13:20.1239+01:00", 1_700_000_000_123),
            ("iso", "1969-12-31 23:59:59.9999z", -1),
            ("iso", "2026-10-01T23:59:59.9996Z", 1_790_899_199_999),
            ("iso", "0001-01-01T00:00:00Z", -62_135_596_800_000),
        ],
    )
    def test_times(self, unit, stamp, milliseconds):
        decoder = RawDecoder(RawSchema(user=("u",), key=("k",), time="t", time_unit=unit))
        payload = json.dumps({"u": 1, "k": 1, "t": stamp}).encode()
        assert one(payload, decoder)[4] == milliseconds
        other = b'{"u":1,"k":1,"t":"x"}'  # a batch with several types goes value by value
        assert rows(from_json(decoder, [payload, other]))[0][4] == milliseconds

    @pytest.mark.parametrize(
        "stamp",
        ["2023-11-14", "20231114T221320Z", "2023-02-30T00:00:00Z", "2023-11-14T24:00:00Z", "",
         "2023-11-14T23:59:60Z", "2023-W46-2T00:00:00Z", "٢023-11-14T22:13:20Z", "0001-01-01T00:00:00+01:00", "now"],
    )  # fmt: skip
    def test_what_is_no_instant(self, stamp):
        decoder = RawDecoder(RawSchema(user=("u",), key=("k",), time="t", time_unit="iso"))
        assert one(json.dumps({"u": 1, "k": 1, "t": stamp}).encode(), decoder)[0] is Reason.BAD_TIME

    @given(st.integers(-(2**53), 2**53), st.sampled_from(["s", "ms", "us", "ns"]))
    def test_an_integer_and_the_same_number_as_float_are_one_time(self, stamp, unit):
        decoder = RawDecoder(RawSchema(user=("u",), key=("k",), time="t", time_unit=unit))
        found = [one(b'{"u":1,"k":1,"t":%b}' % t, decoder) for t in (b"%d" % stamp, b"%d.0" % stamp)]
        assert found[0] == found[1]

    @given(st.integers(EARLIEST, LATEST), st.sampled_from(["s", "ms", "us", "ns"]))
    def test_a_float_that_is_nearest_to_a_millisecond_is_that_one(self, milliseconds, unit):
        stamp = float(Fraction(milliseconds) * PER_MILLISECOND[unit])
        assume(abs(stamp) < 2.0**63)
        assert event_times([stamp], unit)[0].tolist() == [milliseconds]

    @given(st.floats(-(2.0**63), 2.0**63), st.sampled_from(["s", "ms", "us", "ns"]))
    @example(1_790_834_400.1237, "s")
    @example(1_790_834_400.123, "s")
    @example(1_790_834_400.1229999, "s")
    @example(-5e-324, "s")
    @example(5e-324, "ns")
    @example(1.790834400123e18, "ns")
    def test_a_float_is_the_last_millisecond_that_is_not_after_it(self, stamp, unit):
        """By exact fractions: the definition, which no rounding of a product can blur."""
        times, reasons = event_times([stamp], unit)
        wanted = math.floor(Fraction(stamp) / PER_MILLISECOND[unit])
        if float((wanted + 1) * PER_MILLISECOND[unit]) == stamp:  # the digits of the next one, which is no float
            wanted += 1
        inside = EARLIEST <= wanted <= LATEST
        assert (times.tolist(), reasons.tolist()) == (([wanted], [Reason.OK]) if inside else ([0], [Reason.BAD_TIME]))

    @given(
        st.lists(st.floats(allow_nan=True, allow_infinity=True), max_size=20), st.sampled_from(["s", "ms", "us", "ns"])
    )
    def test_a_float_is_the_same_time_alone_and_among_others(self, stamps, unit):
        together = event_times(stamps, unit)
        alone = [event_times([stamp], unit) for stamp in stamps]
        assert together[0].tolist() == [int(times[0]) for times, _ in alone]
        assert together[1].tolist() == [int(reasons[0]) for _, reasons in alone]

    def test_no_live_float_is_after_the_stamp_that_kafka_cuts(self):
        """What time.time() says, and the same instant in whole milliseconds, at 100,000 instants of a day."""
        nanoseconds = 1_790_834_400_000_000_000 + np.random.default_rng(7).integers(0, 86_400 * 10**9, 100_000)
        seconds = nanoseconds / 1e9
        later = event_times(seconds.tolist(), "s")[0] - nanoseconds // 10**6
        assert (later <= 0).mean() > 0.9995  # a float resolves 240 ns: it can be the next millisecond's own
        near = nanoseconds % 10**6 > 10**6 - 240
        assert (later[~near] == 0).all()


class TestSchema:
    @pytest.mark.parametrize(
        "schema",
        [
            RawSchema(user=("",), key=("k",)),
            RawSchema(user=(), key=("k",)),
            RawSchema(user=("u..x",), key=("k",)),
            RawSchema(user=("u",), key=("u.x",)),
            RawSchema(user=("u.x.y",), key=("u.x",)),
            RawSchema(user=("u",), key=("k",), values=(ValueField("v", 1, 2),)),
            RawSchema(user=("u",), key=("k",), values=(ValueField("v", 1, 0),)),
            RawSchema(user=("u",), key=("k",), values=(ValueField("v", math.inf, 1),)),
            RawSchema(user=("u",), key=("k",), values=(ValueField("v", math.nan, 1),)),
            RawSchema(user=("u",), key=("k",), values=(ValueField("v", 2.0**53, 1),)),
        ],
        ids=repr,
    )
    def test_what_cannot_be_right_is_refused(self, schema):
        with pytest.raises(ValueError, match=r"name|field|bound"):
            RawDecoder(schema)


# A record's text and what should become of it, by a slow and obvious second implementation over plain Python objects.
SCALARS = st.one_of(
    st.none(), st.booleans(), st.integers(-(2**64), 2**65), st.floats(allow_nan=False), st.text(max_size=5), st.just([])
)
RECORDS = st.fixed_dictionaries({}, optional=dict.fromkeys("ukvt", SCALARS))
CHECKED = RawDecoder(
    RawSchema(user=("u",), key=("k",), values=(ValueField("v", 100, 0.25),), time="t", max_key_bytes=8)
)


def expected_scalar(record, name, missing):
    x = record.get(name)
    if x is None:
        return missing
    if isinstance(x, bool):
        return json.dumps(x).encode()
    if isinstance(x, (int, float)):
        if isinstance(x, float) and math.isinf(x):
            return Reason.NOT_FINITE
        if x == int(x):
            return (
                b"%d" % int(x)
                if -(2**63) <= x < 2**64 and (type(x) is int or abs(x) < 2**53)
                else Reason.INTEGER_TOO_LARGE
                if type(x) is int
                else Reason.INEXACT_NUMBER
            )
        return "number"
    if x == "" and name == "u":
        return Reason.EMPTY_USER
    return x if isinstance(x, str) else Reason.NOT_A_SCALAR


def expected(record):
    """Reason, user and key as Python sees them, value, time."""
    if any(isinstance(x, float) and math.isinf(x) for x in record.values()):
        return Reason.NOT_FINITE
    found = [expected_scalar(record, "u", Reason.MISSING_USER), expected_scalar(record, "k", Reason.MISSING_KEY)]
    for x in found:
        if isinstance(x, Reason):
            return x
    value, time = record.get("v"), record.get("t")
    if value is None:
        return Reason.MISSING_VALUE
    if isinstance(value, (bool, str, list)):
        return Reason.NOT_A_SCALAR if isinstance(value, list) else Reason.VALUE_NOT_A_NUMBER
    if isinstance(value, int) and not -(2**63) <= value < 2**64:
        return Reason.INTEGER_TOO_LARGE
    if time is None:
        return Reason.MISSING_TIME
    if isinstance(time, str):
        if re.fullmatch(r"[+-]?[0-9]+(\.[0-9]+)?([eE][+-]?[0-9]{1,2})?", time) is None:
            return Reason.TIME_NOT_A_NUMBER
        time = Fraction(time)
    if isinstance(time, list):
        return Reason.NOT_A_SCALAR
    if isinstance(time, bool) or not -62_135_596_800_000 <= math.floor(time) <= 253_402_300_799_999:
        return Reason.BAD_TIME
    return max(-400, min(400, round(value / 0.25) if abs(value) < 1e9 else math.copysign(400, value))), math.floor(time)


@given(st.lists(RECORDS, max_size=8))
@example([{"u": 1, "k": True, "v": -0.0, "t": 0}, {"u": 1.0, "k": 1, "v": 1e308, "t": -0.5}])
def test_the_columns_are_what_an_obvious_reader_finds(records):
    found = rows(from_json(CHECKED, [json.dumps(r, ensure_ascii=False).encode() for r in records]))
    for record, (reason, user, key, values, time) in zip(records, found, strict=True):
        want = expected(record)
        if reason is Reason.TOO_LARGE:
            assert max(len(json.dumps(record[n], ensure_ascii=False).encode()) for n in "uk" if n in record) > 8
            continue
        assert reason is want if isinstance(want, Reason) else (reason, values[0], time) == (Reason.OK, *want)
        if reason is Reason.OK:
            for name, canonical in (("u", user), ("k", key)):
                value = json.loads(canonical)
                assert value == record[name]
                assert isinstance(value, bool) == isinstance(record[name], bool)
                assert isinstance(value, str) == isinstance(record[name], str)


# Anything at all: whole records, pieces that make a record only together with a neighbour, bytes, tombstones.
PIECES = st.sampled_from(
    [GOOD, None, b"", b"{", b"}", b'{"u":1,', b'"k":2}', b'{"u":1,"k":[', b"]}", b'{"u":"', b'","k":1}', b"\n",
     GOOD * 2, b'{"u":1,"k":2}\n{"u":3,"k":4}', b'{"u":1,"k":1,"x":[{}', b',{}]} {"u":1,"k":1}', b"\xff", b"[" * 600,
     b'{"u":7,"k":1.0}', b'{"u":true,"k":1}', b'{"u":1e400,"k":1}', b'{"u":99999999999999999999,"k":0}']
)  # fmt: skip
PAYLOADS = st.lists(
    st.one_of(PIECES, RECORDS.map(lambda r: json.dumps(r).encode()), st.binary(max_size=20)), max_size=12
)


@given(PAYLOADS)
@pytest.mark.parametrize("decoder", [SIMPLE, CHECKED], ids=["simple", "checked"])
def test_a_record_is_the_same_alone_and_in_any_batch(decoder, payloads):
    assert rows(from_json(decoder, payloads)) == [one(payload, decoder) for payload in payloads]


@given(PAYLOADS)
def test_without_the_bad_records_the_columns_of_the_others_are_the_same(payloads):
    columns = from_json(SIMPLE, payloads)
    good = columns.reason == 0
    alone = from_json(SIMPLE, [p for p, ok in zip(payloads, good, strict=True) if ok])
    assert not alone.reason.any()
    assert (alone.users, alone.keys) == (columns.users, columns.keys)
    assert alone.user.tolist() == columns.user[good].tolist()
    assert alone.key.tolist() == columns.key[good].tolist()
    assert (columns.user[~good] == -1).all()
    assert (columns.key[~good] == -1).all()


def test_batches_longer_than_a_chunk_keep_their_rows():
    n = 20_000
    payloads = [b'{"u":%d,"k":"%d"}' % (i % 977, i % 13) for i in range(n)]
    for bad in (0, 8191, 8192, n - 1):
        payloads[bad] = b"x"
    columns = from_json(SIMPLE, payloads)
    assert np.flatnonzero(columns.reason).tolist() == [0, 8191, 8192, n - 1]
    for row in (1, 8190, 8193, n - 2):
        assert columns.users[columns.user[row]] == b"%d" % (row % 977)
        assert columns.keys[columns.key[row]] == b'"%d"' % (row % 13)


def test_an_empty_batch_and_a_batch_of_nothing_good():
    for payloads in ([], [None, b"x"]):
        columns = from_json(FULL, payloads)
        assert (columns.users, columns.keys) == ([], [])
        assert columns.values.shape == (len(payloads), 2)
        assert columns.event_time.shape == (len(payloads),)


def test_a_deep_record_is_judged_alike_from_a_deep_call_stack():
    deep = b'{"u":1,"k":1,"other":' + b"[" * (MAX_DEPTH - 1) + b"]" * (MAX_DEPTH - 1) + b"}"

    def down(levels):
        return down(levels - 1) if levels else one(deep)[0]

    assert down(0) is down(300) is Reason.OK


class TestObjects:
    """Records that a schema registry's deserialiser has decoded."""

    def test_are_read_like_json(self):
        records = [
            {"who": {"id": 1.0}, "k": "a", "z": None, "v": 3.3, "w": 1, "t": 2},
            None,
            {"who": 3},
            Reason.UNDECODABLE,
            {},
        ]
        found = rows(from_objects(FULL, records))
        assert found[0] == (Reason.OK, b"1", b'["a",null]', (7, 1), 2000)
        assert [r[0] for r in found[1:]] == [
            Reason.TOMBSTONE,
            Reason.WRONG_TYPE,
            Reason.UNDECODABLE,
            Reason.MISSING_VALUE,
        ]

    def test_hold_what_json_cannot(self):
        records = [{"u": math.nan, "k": 1}, {"u": datetime(2023, 1, 1), "k": 1}, {"u": 1, "k": math.inf}]
        assert [r[0] for r in rows(from_objects(SIMPLE, records))] == [
            Reason.NOT_FINITE, Reason.TIME_NOT_A_KEY, Reason.NOT_FINITE,
        ]  # fmt: skip

    def test_logical_timestamps_are_times_in_any_unit(self):
        decoder = RawDecoder(RawSchema(user=("u",), key=("k",), time="t", time_unit="us"))
        records = [
            {"u": 1, "k": 1, "t": datetime(2023, 11, 14, 22, 13, 20, 123_456, UTC)},
            {"u": 1, "k": 1, "t": datetime(2023, 1, 1)},
            {"u": 1, "k": 1, "t": datetime(2026, 10, 1, 23, 59, 59, 999_600, UTC)},
            {"u": 1, "k": 1, "t": datetime(1969, 12, 31, 23, 59, 59, 999_999, UTC)},
        ]
        found = rows(from_objects(decoder, records))
        assert [(r[0], r[4]) for r in found] == [
            (Reason.OK, 1_700_000_000_123), (Reason.TIME_WITHOUT_ZONE, 0), (Reason.OK, 1_790_899_199_999), (Reason.OK, -1),
        ]  # fmt: skip

    @given(st.lists(RECORDS, max_size=6))
    def test_agree_with_the_json_decoder(self, records):
        text = [json.dumps(r).encode() for r in records]
        finite = [not any(isinstance(x, float) and math.isinf(x) for x in r.values()) for r in records]
        by_object, by_text = rows(from_objects(CHECKED, records)), rows(from_json(CHECKED, text))
        assert [a for a, ok in zip(by_object, finite, strict=True) if ok] == [
            b for b, ok in zip(by_text, finite, strict=True) if ok
        ]
