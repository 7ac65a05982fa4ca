"""Decoded objects, and what is around them, to the columns of a chunk."""

from datetime import date, datetime

import msgspec
import pytest

from susurrus.topics.records.payloads import Enveloped, chunk_of_objects
from susurrus.topics.records.raw import RawDecoder, RawSchema
from susurrus.topics.records.reason import Reason

ABSENT = msgspec.UNSET
NAME, USER = ("", "envelope", "name"), ("u", "id")


def test_paths_below_the_envelope_lead_through_what_is_around_a_value() -> None:
    objects = [Enveloped({"u": {"id": 1}}, {"name": "a"}), {"u": {"id": 2}}, Enveloped({}, {}), None]
    chunk = chunk_of_objects(objects, [USER, NAME])
    assert chunk.columns == [[1, 2, ABSENT], ["a", ABSENT, ABSENT]]
    assert (chunk.refused, chunk.pending) == ({3: Reason.TOMBSTONE}, {})


def test_what_is_around_a_refused_value_is_there_for_a_condition() -> None:
    objects = [
        Enveloped({"u": {"id": 1}}, {"name": "a"}, Reason.OTHER_TYPE),
        Enveloped({"u": 5}, {"name": "b"}),
        {"u": 5},
    ]
    chunk = chunk_of_objects(objects, [USER, NAME], [NAME])
    assert chunk.columns == [[ABSENT] * 3, ["a", "b", ABSENT]]
    assert chunk.refused == {}
    assert chunk.pending == {0: Reason.OTHER_TYPE, 1: Reason.WRONG_TYPE, 2: Reason.WRONG_TYPE}
    # A condition over the value cannot be asked where there is none.
    chunk = chunk_of_objects(objects, [("v",), USER, NAME], [("v",), NAME])
    assert (chunk.refused, chunk.pending) == ({0: Reason.OTHER_TYPE}, {1: Reason.WRONG_TYPE, 2: Reason.WRONG_TYPE})
    assert set(chunk_of_objects(objects, [USER, NAME]).refused) == {0, 1, 2}


def test_a_path_that_leads_through_a_scalar_of_the_envelope_is_a_wrong_type() -> None:
    objects = [Enveloped({}, {"name": "a"}, Reason.OTHER_TYPE), Enveloped({}, {"name": {"x": 1}})]
    chunk = chunk_of_objects(objects, [(*NAME, "x")])
    assert (chunk.columns, chunk.refused, chunk.pending) == ([[1]], {0: Reason.OTHER_TYPE}, {})


def test_the_whole_value_and_what_is_around_it() -> None:
    chunk = chunk_of_objects([Enveloped([1], {"name": "a"}), Enveloped("x", {}, Reason.TOO_DEEP)], [(), NAME], [NAME])
    assert chunk.columns == [[[1], ABSENT], ["a", ABSENT]]
    assert chunk.pending == {1: Reason.TOO_DEEP}


@pytest.mark.parametrize("empty", ["dead-letter", "value"])
def test_bytes_are_the_text_of_their_hexadecimal_digits(empty: str) -> None:
    decoder = RawDecoder(RawSchema(user="u", key=("k",), empty_user=empty))  # type: ignore[arg-type]
    objects = [{"u": b"\x00\xff\x1a", "k": b"k"}, {"u": "00ff1a", "k": "6b"}, {"u": b"", "k": 1}]
    columns = decoder.decode([chunk_of_objects(objects, decoder.paths)])
    assert columns.reason.tolist() == [0, 0, Reason.EMPTY_USER if empty == "dead-letter" else 0]
    assert columns.users[:1] + columns.users[1:2] == [b'"00ff1a"', *([b'""'] if empty == "value" else [])]
    assert columns.keys[0] == b'"6b"'


def test_a_date_is_a_key_as_expressions_write_it() -> None:
    decoder = RawDecoder(RawSchema(user=("u",), key=("k",)))
    objects = [{"u": 1, "k": date(2026, 1, 31)}, {"u": 1, "k": "2026-01-31"}, {"u": 1, "k": datetime(2026, 1, 31)}]
    columns = decoder.decode([chunk_of_objects(objects, decoder.paths)])
    assert (columns.reason.tolist(), columns.key.tolist()) == ([0, 0, Reason.TIME_NOT_A_KEY], [0, 0, -1])
    assert columns.keys == [b'"2026-01-31"']
