"""The values of streams: clamped to [0, bound], the stream id a field or the Kafka key."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from susurrus.topics.records.payloads import JsonReader, chunk_of_objects
from susurrus.topics.records.raw import Reason
from susurrus.topics.records.values import ValuesDecoder, ValuesSchema

BY_FIELD = ValuesDecoder(ValuesSchema(value="v", bound=10.0, grid=0.5, stream="id", time="t"))
BY_KEY = ValuesDecoder(ValuesSchema(value="v", bound=10.0, grid=0.5))


def from_json(decoder, payloads, keys=()):
    return decoder.decode(JsonReader(decoder.paths).read(payloads), keys)


def record(**fields):
    return json.dumps({"v": 1, "id": "a", "t": 5} | fields).encode()


def rows(columns):
    time = columns.event_time.tolist() if columns.event_time is not None else [None] * len(columns)
    return [
        (Reason(r), None if r else columns.streams[s], v, t)
        for r, s, v, t in zip(
            columns.reason.tolist(), columns.stream.tolist(), columns.value.tolist(), time, strict=True
        )
    ]


@pytest.mark.parametrize(
    ("value", "steps"),
    [
        (0, 0),
        (-3, 0),
        (0.26, 1),
        (10, 20),
        (1e300, 20),
        (-1e300, 0),
        (2**63, 20),
        # Were these refused, one event's value would move all later ones of its stream by a position.
        (2**64, 20),
        (-(2**63) - 1, 0),
        (10**400, 20),
        (-(10**400), 0),
    ],
)
def test_values_are_clamped_to_zero_and_the_bound(value, steps):
    assert rows(from_json(BY_FIELD, [record(v=value)])) == [(Reason.OK, b'"a"', steps, 5)]


@pytest.mark.parametrize(
    ("text", "reason", "steps"),
    [
        ("1.7976931348623157e308", Reason.OK, 20),  # the largest float
        ("-1.7976931348623157e308", Reason.OK, 0),
        ("1.7976931348623159e308", Reason.NOT_FINITE, 0),
        ("1e309", Reason.NOT_FINITE, 0),
        ("-1e309", Reason.NOT_FINITE, 0),
        ("1" + "0" * 309, Reason.OK, 20),  # the same number as an integer
        ("Infinity", Reason.NOT_FINITE, 0),
    ],
)
def test_numbers_are_clamped_up_to_the_largest_float_and_integers_of_any_length(text, reason, steps):
    """As docs/streams.md says. What is no number is no event; in a field that is not read only `Infinity` matters."""
    here, elsewhere = (b'{"v":%s,"id":"a","t":5}', b'{"v":1,"id":"a","t":5,"x":[%s]}')
    good = reason == Reason.OK
    wanted = (reason, b'"a"' if good else None, steps, 5 if good else 0)
    assert rows(from_json(BY_FIELD, [here % text.encode()])) == [wanted]
    harmless = text != "Infinity"
    unread = (Reason.OK, b'"a"', 2, 5) if harmless else (Reason.NOT_FINITE, None, 0, 0)
    assert rows(from_json(BY_FIELD, [elsewhere % text.encode()])) == [unread]
    objects = chunk_of_objects([{"v": float(text), "id": "a", "t": 5}], BY_FIELD.paths)  # Avro, Protobuf
    floats = wanted if not text.endswith("0" * 9) else (Reason.NOT_FINITE, None, 0, 0)
    assert rows(BY_FIELD.decode([objects])) == [floats]


@pytest.mark.parametrize(
    ("payload", "reason"),
    [
        (None, Reason.TOMBSTONE),
        (b"", Reason.EMPTY),
        (b"{", Reason.NOT_JSON),
        (record(v="1"), Reason.VALUE_NOT_A_NUMBER),
        (record(v=None), Reason.MISSING_VALUE),
        (record(v=True), Reason.VALUE_NOT_A_NUMBER),
        (record(id=None), Reason.MISSING_KEY),
        (record(id=[1]), Reason.NOT_A_SCALAR),
        (record(id="x" * 5000), Reason.TOO_LARGE),
        (record(t="noon"), Reason.TIME_NOT_A_NUMBER),
        (b'{"v":NaN,"id":1,"t":1}', Reason.NOT_FINITE),
    ],
    ids=lambda x: x.name if isinstance(x, Reason) else "",
)
def test_bad_input_leaves_its_neighbours_alone(payload, reason):
    good = record(id=1), record(id=2.0)
    found = rows(from_json(BY_FIELD, [good[0], payload, good[1]]))
    assert found == [(Reason.OK, b"1", 2, 5), (reason, None, 0, 0), (Reason.OK, b"2", 2, 5)]


@pytest.mark.parametrize(
    ("bound", "grid", "steps"), [(0.7, 0.1, 7), (4.35, 0.01, 435), (1.0, 0.3, 3), (0.69, 0.1, 6), (2.0**52, 1.0, 2**52)]
)
def test_a_bound_that_was_meant_to_be_a_multiple_of_the_grid_is_one(bound, grid, steps):
    assert ValuesSchema(value="v", bound=bound, grid=grid).steps == steps


def test_the_kafka_key_is_the_stream_id():
    keys = [b"meter-7", None, "é".encode(), b"\xff", b"meter-7", b"gone", b""]
    payloads = [record()] * 5 + [b"x", record()]
    columns = from_json(BY_KEY, payloads, keys)
    assert [r[:2] for r in rows(columns)] == [
        (Reason.OK, b'"meter-7"'),
        (Reason.OK, b"null"),
        (Reason.OK, '"é"'.encode()),
        (Reason.INVALID_UTF8, None),
        (Reason.OK, b'"meter-7"'),
        (Reason.NOT_JSON, None),
        (Reason.OK, b'""'),
    ]
    assert columns.streams == [b'"meter-7"', b"null", '"é"'.encode(), b'""']
    assert columns.event_time is None


def test_missing_kafka_keys_are_an_error_of_the_caller():
    with pytest.raises(ValueError, match="Kafka key"):
        from_json(BY_KEY, [record()])


@pytest.mark.parametrize("bounds", [{"bound": 0}, {"grid": 0}, {"bound": 1, "grid": 2}, {"bound": float("nan")}])
def test_a_bound_that_cannot_be_is_refused(bounds):
    with pytest.raises(ValueError, match="bound="):
        ValuesDecoder(ValuesSchema(**({"value": "v", "bound": 1.0, "grid": 1.0} | bounds)))


@given(
    st.lists(
        st.tuples(
            st.sampled_from([b"a", None, b"\xff", b"b"]), st.sampled_from([record(), b"", None, record(v=-1), b"{"])
        )
    )
)
def test_a_record_is_the_same_alone_and_in_any_batch(pairs):
    keys, payloads = [k for k, _ in pairs], [p for _, p in pairs]
    alone = [rows(from_json(BY_KEY, [p], [k]))[0] for k, p in pairs]
    assert rows(from_json(BY_KEY, payloads, keys)) == alone
