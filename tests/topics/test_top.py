"""What a record of `top` holds is what the rows of `histogram` hold."""

import json
from dataclasses import replace

import numpy as np
import pytest

from susurrus.topics import candidates, histogram, top
from susurrus.topics.candidates import CandidatesBlock
from susurrus.topics.histogram import ColumnRows, TriggerHeader
from susurrus.topics.wire.packing import MalformedRecord

RELEASE = TriggerHeader(
    window_start=0, window_end=86_400_000, trigger=3, of_triggers=96, strategy="toeplitz", epoch="ab" * 16
)


def rows() -> list[bytes]:
    columns = [
        ColumnRows(name="n", estimate=np.array([118, 2**53 + 1], np.int64), std_error=9.25),
        ColumnRows(name="mean", estimate=np.array([5.0, 1e-7]), std_error=np.array([0.1, 0.2]), direct=(np.array([4.0, 2.0]), 0.5)),
    ]  # fmt: skip
    return histogram.encode_rows(RELEASE, [b'["/a\\u2028",1]', b'["/b",2.5]'], columns)[1]


def test_rows_stay_byte_for_byte_what_they_are() -> None:
    key, value = top.encode(RELEASE, "ORDER BY n DESC LIMIT 2", rows()[::-1])
    assert key == b'{"window":"1970-01-01T00:00:00Z"}'
    for text in (b'"key":["/a\\u2028",1],', b'"estimate":9007199254740993', b'"estimate":5.0,"std_error":0.1,"direct"'):
        assert text in value
    found = top.decode(value)
    assert [row.rank for row in found.rows] == [1, 2]
    assert [row.key for row in found.rows] == [["/b", 2.5], ["/a\u2028", 1]]
    whole = [histogram.decode_row(row) for row in rows()[::-1]]
    assert [row.values for row in found.rows] == [row.values for row in whole]
    assert (found.window, found.trigger, found.of_triggers, found.ranking) == (0, 3, 96, "ORDER BY n DESC LIMIT 2")


def test_a_day_has_its_date_in_rows_and_ranking() -> None:
    day = replace(RELEASE, window_date="2026-10-25")
    [row] = histogram.encode_rows(day, [b'"/a"'], [ColumnRows(name="n", estimate=np.array([5]), std_error=1.0)])[1]
    assert list(json.loads(row))[:3] == ["window_start", "window_end", "window_date"]
    assert histogram.decode_row(row).window_date == "2026-10-25"
    value = top.encode(day, "ORDER BY n LIMIT 1", [row])[1]
    assert list(json.loads(value))[:3] == ["window_start", "window_end", "window_date"]
    assert top.decode(value).window_date == "2026-10-25"
    assert b"window_date" not in rows()[0] + top.encode(RELEASE, "ORDER BY n LIMIT 1", rows())[1]


def test_a_release_without_rows_has_a_record_as_well() -> None:
    assert top.decode(top.encode(RELEASE, "ORDER BY n LIMIT 1", [])[1]).rows == []


def test_others_rows_and_versions_are_refused() -> None:
    with pytest.raises(MalformedRecord, match="histogram row"):
        top.encode(RELEASE, "", [b"{}"])
    other = json.loads(top.encode(RELEASE, "", [])[1]) | {"schema": 2}
    with pytest.raises(MalformedRecord, match="upgrade the reader"):
        top.decode(json.dumps(other).encode())


def test_candidates_come_back_in_pieces_that_fit() -> None:
    block = CandidatesBlock(
        partition=3, interval=-7, window=np.array([5, 5, 9], np.int64), rows=[b"x" * n for n in (40, 1, 30)]
    )
    pieces = list(candidates.split(block, 120))
    assert len(pieces) > 1
    found = [candidates.decode(candidates.encode(piece)) for piece in pieces]
    assert [row for piece in found for row in piece.rows] == block.rows
    assert [window for piece in found for window in piece.window.tolist()] == [5, 5, 9]
    assert {(piece.partition, piece.interval) for piece in found} == {(3, -7)}
    assert (
        list(candidates.split(CandidatesBlock(partition=0, interval=0, window=np.zeros(0, np.int64), rows=[]), 120))
        == []
    )
