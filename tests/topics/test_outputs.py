"""private-stream, reports, threshold and estimate: round trips, pinned bytes, damage."""

import dataclasses
import json
import re
import subprocess
import sys

import msgspec
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from susurrus.topics import estimate, private_stream, reports, threshold
from susurrus.topics.histogram import Measured
from susurrus.topics.wire.packing import MalformedRecord

RELEASE = private_stream.StreamHeader(method="tops", epsilon=0.1, epoch="6f0c")


def released(**changes):
    columns = {
        "streams": [b'"meter%b"', b"7"],
        "first": np.array([10, 12]),
        "last": np.array([11, 13]),
        "value": np.array([1.5, -2.0]),
        "value_error": np.array([0.25, 0.5]),
        "sum": np.array([100, 200]),
        "sum_error": np.array([3.0, 4.0]),
        "filtered_sum": np.array([np.nan, 199.5]),
        "filtered_sum_error": np.array([np.nan, 2.5]),
        "fit": np.array([np.nan, 0.75]),
        "jump_first": np.array([-1, 12]),
        "jump_last": np.array([-1, 13]),
        "theta": np.array([96, 96]),
        "lower": np.array([0, 8]),
        "clipped": np.array([np.nan, 5.0]),
        "clipped_error": np.array([np.nan, 1.5]),
        "truncated": np.array([np.nan, 30.0]),
        "truncated_error": np.array([np.nan, 9.0]),
        "layout": np.array([0, 2]),
    }
    return private_stream.StreamColumns(**(columns | changes))


def test_a_released_piece_survives():
    keys, values = private_stream.encode_rows(RELEASE, released())
    assert [json.loads(key) for key in keys] == [{"stream": "meter%b"}, {"stream": 7}]
    first, second = map(private_stream.decode_row, values)
    assert (first.stream, first.first, first.last, first.layout) == ("meter%b", 10, 11, 0)
    assert (first.value, first.sum, first.filtered_sum) == (Measured(1.5, 0.25), Measured(100, 3.0), None)
    assert (second.filtered_sum, second.theta, second.epsilon) == (Measured(199.5, 2.5), 96, 0.1)
    assert (first.fit, first.jump_first, first.jump_last, first.lower, first.clipped, first.truncated) == (None,) * 6
    assert (second.fit, second.jump_first, second.jump_last, second.lower) == (0.75, 12, 13, 8)
    assert (second.clipped, second.truncated) == (Measured(5.0, 1.5), Measured(30.0, 9.0))
    assert values[0] == (
        b'{"stream":"meter%b","first":10,"last":11,"value":{"estimate":1.5,"std_error":0.25},'
        b'"sum":{"estimate":100,"std_error":3.0},"filtered_sum":null,"theta":96,"layout":0,"method":"tops",'
        b'"epsilon":0.1,"epoch":"6f0c","schema":2,"fit":null,"jump_first":null,"jump_last":null,"lower":null,'
        b'"clipped":null,"truncated":null}'
    )


@pytest.mark.parametrize(
    "changes",
    [
        {"value": np.array([np.nan, 1.0])},
        {"sum_error": np.array([np.inf, 1.0])},
        {"filtered_sum": np.array([np.inf, 1.0])},
        {"filtered_sum": np.array([1.0, 1.0])},
        {"clipped_error": np.array([1.0, 1.0])},
        {"fit": np.array([np.nan, np.inf])},
        {"last": np.array([1])},
    ],
    ids=lambda c: next(iter(c)),
)
def test_what_must_not_be_published_is_refused(changes):
    with pytest.raises(ValueError, match=r"finite|shape|missing"):
        private_stream.encode_rows(RELEASE, released(**changes))


@st.composite
def columns_of_reports(draw):
    n = draw(st.integers(0, 8))

    def column(strategy, kind):
        return np.array(draw(st.lists(strategy, min_size=n, max_size=n)), kind)

    phase = column(st.integers(1, 2), np.int32)
    return reports.Reports(
        phase=phase,
        threshold_version=np.where(phase == 1, 0, column(st.integers(0, 2**32 - 1), np.int64)),
        interval=column(st.integers(-(2**63), 2**63 - 1), np.int64),
        code=column(st.integers(0, 2**63 - 1), np.int64),
    )


def listed(found):
    return [getattr(found, f.name).tolist() for f in dataclasses.fields(found)]


@given(columns_of_reports())
def test_reports_survive_and_one_by_one_are_the_same(batch):
    payloads = reports.encode(batch)
    found, good = reports.decode(payloads)
    assert good.all()
    assert listed(found) == listed(batch)
    names = [f.name for f in dataclasses.fields(batch)]
    assert payloads == [
        reports.encode_one(**dict(zip(names, r, strict=True))) for r in zip(*listed(batch), strict=True)
    ]


GOOD_REPORT = reports.encode_one(phase=2, threshold_version=3, interval=60_000, code=12345)


def test_the_bytes_of_a_report_are_pinned():
    assert GOOD_REPORT.hex() == "04010203000000" + "60ea000000000000" + "3930000000000000"


@pytest.mark.parametrize(
    "bad",
    [
        None,
        b"",
        GOOD_REPORT[:-1],
        GOOD_REPORT + b"\0",
        b"\x05" + GOOD_REPORT[1:],
        b"\x04\x02" + GOOD_REPORT[2:],
        b"\x04\x01\x00" + GOOD_REPORT[3:],
        b"\x04\x01\x03" + GOOD_REPORT[3:],
        b"\x04\x01\x01" + GOOD_REPORT[3:],
        GOOD_REPORT[:-1] + b"\x80",
    ],
    ids=range(10),
)
def test_a_malformed_report_is_marked_and_the_others_are_read(bad):
    found, good = reports.decode([GOOD_REPORT, bad, GOOD_REPORT])
    assert good.tolist() == [True, False, True]
    assert found.code.tolist() == [12345, 12345]


@pytest.mark.parametrize(("name", "value"), [("phase", 3), ("threshold_version", 2**32), ("code", -1)])
def test_a_report_that_cannot_be_is_not_written(name, value):
    batch = dataclasses.replace(reports.decode([GOOD_REPORT])[0], **{name: np.array([value])})
    with pytest.raises(ValueError, match=name):
        reports.encode(batch)


THRESHOLD = threshold.ThresholdRecord(
    version=2, theta=96.0, epsilon=1.0, alpha=0.4, reports=65536, phase1_epsilon=1.0, bound=1000.0, published=5
)


def test_a_threshold_survives_under_its_version_and_as_the_current_one():
    (key, value), (current, same) = threshold.encode(THRESHOLD)
    assert (key, current, same) == (b"version/2", b"current", value)
    assert threshold.decode(value) == THRESHOLD
    assert threshold.decode(value.replace(b'"theta"', b'"later":[],"theta"')) == THRESHOLD
    assert threshold.decode(value.replace(b"96.0", b"96")) == THRESHOLD


@pytest.mark.parametrize(
    ("old", "new"),
    [
        (b'"schema":1', b'"schema":2'),
        (b'"version":2', b'"version":0'),
        (b'"version":2', b'"version":true'),
        (b"96.0", b"NaN"),
        (b"96.0", b"-1"),
        (b"96.0", b'"96"'),
        (b'"alpha":0.4', b'"alpha":1.5'),
        (b'"theta"', b'"thet"'),
        (b"{", b"[" * 100_000),
    ],
)
def test_a_wrong_threshold_is_malformed(old, new):
    value = threshold.encode(THRESHOLD)[0][1]
    assert old in value
    with pytest.raises(MalformedRecord):
        threshold.decode(value.replace(old, new))


def test_every_truncation_of_a_threshold_is_malformed():
    value = threshold.encode(THRESHOLD)[0][1]
    for bad in [value[:end] for end in range(len(value))] + [b"5", b"null", b"[]"]:
        with pytest.raises(MalformedRecord):
            threshold.decode(bad)


ESTIMATE = estimate.EstimateRow(
    interval_start="2026-01-01T00:00:00Z",
    interval_end="2026-01-01T00:01:00Z",
    count=4021,
    sum=Measured(10.5, 2.0),
    mean=Measured(0.25, 0.5),
    running_sum=Measured(100, 3.0),
    filtered_sum=None,
    threshold_version=2,
    theta=96.0,
    epsilon=1.0,
    epoch="6f0c",
)


def test_an_estimate_survives():
    key, value = estimate.encode(ESTIMATE)
    assert key == b'{"slot":"2026-01-01T00:00:00Z"}'
    assert estimate.decode(value) == ESTIMATE
    assert ESTIMATE.interval == 1_767_225_600_000


@pytest.mark.parametrize("bad", [float("nan"), float("inf")])
def test_an_estimate_that_is_not_finite_is_refused(bad):
    for changes in ({"sum": Measured(bad, 1.0)}, {"mean": Measured(1.0, bad)}, {"filtered_sum": Measured(bad, 1.0)}):
        with pytest.raises(ValueError, match="finite"):
            estimate.encode(msgspec.structs.replace(ESTIMATE, **changes))


@pytest.mark.parametrize(
    ("codec", "value"),
    [
        (private_stream.decode_row, private_stream.encode_rows(RELEASE, released())[1][0]),
        (estimate.decode, estimate.encode(ESTIMATE)[1]),
    ],
    ids=["private-stream", "estimate"],
)
def test_every_truncation_and_another_schema_are_malformed(codec, value):
    codec(value)
    other = re.sub(rb'"schema":(\d)', rb'"schema":1\1', value)
    for bad in [value[:end] for end in range(len(value))] + [other]:
        with pytest.raises(MalformedRecord):
            codec(bad)


def test_clients_need_neither_msgspec_nor_kafka_for_reports_and_thresholds():
    code = "import sys, susurrus.topics.reports, susurrus.topics.threshold; print(*sys.modules)"
    loaded = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split()
    assert not {"msgspec", "confluent_kafka", "faust", "aiokafka", "susurrus.mechanisms"} & set(loaded)
    assert "susurrus.topics.reports" in loaded
