"""progress and dead letters: round trips and damage."""

import json

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from susurrus.topics import dead_letter, progress
from susurrus.topics.dead_letter import DeadLetter, decode_headers, encode_headers
from susurrus.topics.records.raw import Reason
from susurrus.topics.wire.packing import MalformedRecord

EXAMPLE = progress.Progress(
    window=0, trigger=3, of_triggers=96, partition=2, of_partitions=8, rows=0, epoch="00ff", epoch_number=2
)


def test_progress_survives_and_its_key_is_epoch_window_and_partition():
    key, value = progress.encode(EXAMPLE)
    assert progress.decode(value) == EXAMPLE
    assert key == b'{"epoch":"00ff","window":"1970-01-01T00:00:00Z","partition":2}'
    later = msgspec.structs.replace(EXAMPLE, trigger=4)
    assert progress.encode(later)[0] == key  # compaction keeps the later one
    # Of both epochs: whoever asks what a window has cost must see that it was published twice.
    assert progress.encode(msgspec.structs.replace(EXAMPLE, epoch="ff", epoch_number=3))[0] != key


def test_what_a_window_has_from_those_before_it_is_said_where_there_is_such():
    value = progress.encode(EXAMPLE)[1]
    assert b"remembered" not in value
    assert b"persistence" not in value
    for remembered, persistence in ((0, 0.0), (12, 0.3), (5, None)):
        said = msgspec.structs.replace(EXAMPLE, remembered=remembered, persistence=persistence)
        assert progress.decode(progress.encode(said)[1]) == said


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("trigger", -1),
        ("remembered", -1),
        ("persistence", 1.1),
        ("partition", -1),
        ("rows", -1),
        ("window", "yesterday"),
        ("schema", 2),
        ("of_partitions", None),
        ("epoch", None),
        ("epoch_number", 0),
    ],
)
def test_wrong_progress_is_malformed(field, value):
    record = json.loads(progress.encode(EXAMPLE)[1]) | {field: value}
    with pytest.raises(MalformedRecord):
        progress.decode(json.dumps(record).encode())


def test_truncated_progress_is_malformed():
    value = progress.encode(EXAMPLE)[1]
    for end in range(len(value)):
        with pytest.raises(MalformedRecord):
            progress.decode(value[:end])


@given(
    st.builds(
        DeadLetter,
        st.sampled_from([r for r in Reason if r]),
        st.text(min_size=1, max_size=20),
        st.integers(0, 2**31),
        st.integers(0, 2**63 - 1),
        st.sampled_from(["route", "tops"]),
    )
)
def test_a_dead_letter_survives(letter):
    assert decode_headers(encode_headers(letter)) == letter


def test_the_headers_are_those_of_kip_1034():
    headers = dict(encode_headers(DeadLetter(Reason.NOT_JSON, "web", 3, 12345)))
    assert headers["__streams.errors.exception"] == b"NOT_JSON"
    assert headers["__streams.errors.message"] == b"the value is not one JSON value"
    assert headers["__streams.errors.stacktrace"] == b""
    assert headers["__streams.errors.topic"] == b"web"
    assert headers["__streams.errors.partition"] == b"3"
    assert headers["__streams.errors.offset"] == b"12345"


def test_every_reason_has_a_message():
    messages = {r: dict(encode_headers(DeadLetter(r, "t", 0, 0)))[dead_letter.MESSAGE] for r in Reason if r}
    assert len(set(messages.values())) == len(messages)


@pytest.mark.parametrize(
    "missing", [dead_letter.EXCEPTION, dead_letter.TOPIC, dead_letter.PARTITION, dead_letter.OFFSET]
)
@pytest.mark.parametrize("value", [None, b"", b"\xff", b"x"])
def test_wrong_headers_are_malformed(missing, value):
    headers = [(n, value if n == missing else v) for n, v in encode_headers(DeadLetter(Reason.EMPTY, "t", 0, 0))]
    if missing == dead_letter.TOPIC and value != b"\xff":
        assert decode_headers(headers).topic == (value or b"").decode()
        return
    with pytest.raises(MalformedRecord):
        decode_headers(headers)
