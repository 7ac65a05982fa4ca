"""Streams and local estimates: what the boards answer is what the mechanisms answer for the same rows."""

from collections.abc import Iterator
from itertools import pairwise
from typing import Any

import numpy as np
import pytest

from susurrus.agents.display.board import BadQuestion
from susurrus.agents.local.board import EstimatesBoard
from susurrus.agents.local.reader import filtered_sum, range_sum
from susurrus.agents.local.settings import LocalSettings
from susurrus.agents.stream.board import StreamsBoard
from susurrus.agents.stream.mechanism import grid_of, mechanism_of
from susurrus.agents.stream.pieces import Pieces
from susurrus.agents.stream.reader import released_stream
from susurrus.agents.stream.settings import StreamSettings
from susurrus.mechanisms.errors import ConfigurationError
from susurrus.mechanisms.stream.tops import Tops
from susurrus.topics.estimate import EstimateRow
from susurrus.topics.histogram import Measured
from susurrus.topics.private_stream import StreamRow
from susurrus.topics.wire.timestamps import format_time
from tests.agents.released import EPOCHS, settings
from tests.stream_rows import UNSAID

TOPS = {"bound": 100.0, "grid": 0.5, "epsilon": 1.0, "holdout": 300, "range_limit": 1024, "fanout": 4, "smoothing": 1}
START = 1_767_225_600_000


def stream_settings(**stream: Any) -> StreamSettings:
    return StreamSettings.of(
        settings(
            pipeline={"name": "meters", "kind": "stream"},
            input={"topic": "raw"},
            stream=stream,
            privacy=None,
            start={"from": "earliest", "first_window": "2026-01-01T00:00:00Z"},
        )
    )


def tops_rows(of: StreamSettings, count: int, name: Any = "meter-1") -> Iterator[StreamRow]:
    """Pieces as ToPS lays them out, with made-up sums."""
    mechanism = mechanism_of(of.stream)
    assert isinstance(mechanism, Tops)
    rng, leaf, total = np.random.default_rng(3), mechanism.base.leaf, 0.0
    for number in range(count):
        value = float(np.round(rng.normal(30 * leaf, 20)) * grid_of(of.stream))
        total += value
        first = mechanism.holdout + number * leaf
        yield StreamRow(
            stream=name, first=first, last=first + leaf - 1, value=Measured(value, 12.0), sum=Measured(total, 20.0),
            filtered_sum=None, theta=60.0, layout=0, method="tops", epsilon=1.0, epoch=EPOCHS[1], schema=2,
            **(UNSAID | {"fit": (3.0 if number == 31 else 1.0) if (number + 1) % 16 == 0 else None}),
        )  # fmt: skip


def test_ranges_over_a_stream_are_those_of_the_reader() -> None:
    of = stream_settings(**TOPS)
    rows = list(tops_rows(of, 192))
    board = StreamsBoard(of, "per value")
    assert board.take([(0, row) for row in rows])
    assert not board.answer("streams", {"search": "other"})["streams"]
    (listed,) = board.answer("streams", {"search": "METER"})["streams"]
    begin, end = listed["begin"], listed["end"]
    assert (begin, end) == (rows[0].first, rows[-1].last + 1)
    released, grid = released_stream(rows, of.stream), grid_of(of.stream)
    for first, last in ((begin, end), (begin + 4, begin + 64), (begin + 17, begin + 333)):
        said = board.answer("range", {"stream": listed["name"], "from": str(first), "to": str(last)})
        at = np.array([first - begin]), np.array([last - begin])
        assert said["fits"] is bool(released.fits(*at)[0])
        for name, wanted in (("plain", released.plain(*at)), ("filtered", released.filtered(*at))):
            np.testing.assert_allclose(said[name], [float(each[0]) * grid for each in wanted])
    points = board.answer("series", {"stream": listed["name"]})["points"]
    assert len(points) <= 160
    assert (points[0][0], points[-1][1]) == (begin, end)
    assert all(before[1] == after[0] for before, after in pairwise(points))
    total = sum(mean * (to - start) for start, to, mean, *_ in points)
    assert total == pytest.approx(rows[-1].sum.estimate)


def test_pieces_are_kept_once_and_a_new_epoch_starts_over() -> None:
    of = stream_settings(**TOPS)
    rows = list(tops_rows(of, 8))
    pieces = Pieces("meter-1", of.stream)
    for row in (*rows, *rows):
        pieces.add(row)
    assert len(pieces) == 8
    assert pieces.total == (rows[-1].sum.estimate, 20.0)
    fields = {name: getattr(rows[0], name) for name in rows[0].__struct_fields__}
    pieces.add(StreamRow(**fields | {"epoch": EPOCHS[2]}))
    assert (len(pieces), pieces.epoch) == (1, EPOCHS[2])


def test_the_same_id_in_two_partitions_is_two_streams() -> None:
    of = stream_settings(**TOPS)
    board = StreamsBoard(of, "per value")
    board.take([(partition, row) for partition in (0, 1) for row in tops_rows(of, 4)])
    assert board.answer("streams", {})["found"] == 2


def test_a_range_of_pak_is_the_difference_of_two_running_sums() -> None:
    of = stream_settings(
        method="pak", bound=100.0, grid=0.5, epsilon=8.0, delta=1e-5, holdout=500, horizon=1000, tail_start=0.05
    )
    pieces = Pieces("m", of.stream)
    sums = [1000.0, 1010.0, 1030.0, 1025.0]
    for number, total in enumerate(sums):
        first = 0 if number == 0 else 199 + number
        pieces.add(
            StreamRow(
                stream="m", first=first, last=199 + number, value=Measured(1.0, 1.0), sum=Measured(total, 3.0 + number),
                filtered_sum=None, theta=60.0, layout=0, method="pak", epsilon=1.0, epoch=EPOCHS[1], schema=2,
                **UNSAID,
            )
        )  # fmt: skip
    estimate, error = pieces.plain(np.array([0, 200, 201]), np.array([203, 203, 202]))
    assert estimate.tolist() == [1025.0, 25.0, 20.0]
    np.testing.assert_allclose(error, [6.0, np.hypot(6.0, 3.0), np.hypot(5.0, 4.0)])
    assert pieces.filtered(np.array([0]), np.array([203])) is None
    with pytest.raises(ConfigurationError, match="first piece"):
        pieces.plain(np.array([10]), np.array([203]))
    assert pieces.edges(0, 203, 160).tolist() == [0, 200, 201, 202, 203]


def test_a_question_about_no_stream_or_no_range_is_told_why() -> None:
    of = stream_settings(**TOPS)
    board = StreamsBoard(of, "per value")
    board.take([(0, row) for row in tops_rows(of, 4)])
    name = board.answer("streams", {})["streams"][0]["name"]
    for query in ({}, {"stream": "0"}, {"stream": name, "from": "0"}, {"stream": name, "from": "310", "to": "305"}):
        with pytest.raises(BadQuestion):
            board.answer("range", query)


def local_board(count: int) -> tuple[EstimatesBoard, list[EstimateRow]]:
    of = LocalSettings.of(
        settings(
            pipeline={"name": "m", "kind": "local"}, input={}, local={"bound": 100.0, "epsilon": 1.0}, privacy=None
        )
    )
    rng = np.random.default_rng(2)
    rows = []
    for number in range(count):
        reports, total = int(rng.integers(500, 1500)), float(rng.normal(30_000, 500))
        rows.append(
            EstimateRow(
                interval_start=format_time(START + 60_000 * number), interval_end=format_time(START + 60_000 * (number + 1)),
                count=reports, sum=Measured(total, 400.0), mean=Measured(total / reports, 400.0 / reports),
                running_sum=Measured(0.0, 1.0), filtered_sum=Measured(total, 300.0), threshold_version=1, theta=80.0,
                epsilon=1.0, epoch=EPOCHS[1],
            )
        )  # fmt: skip
    board = EstimatesBoard(of, "per report")
    assert board.take(rows[::-1])
    return board, rows


def test_local_estimates_are_those_of_the_reader_in_order_of_time() -> None:
    board, rows = local_board(50)
    assert not board.take(rows[:5])
    state = board.state(START)
    assert (state["intervals"], state["newest"]["start"]) == (50, START + 49 * 60_000)
    assert state["due"]["at"] == START + 51 * 60_000 + 30_000  # an interval, and its lateness
    points = board.answer("series", {})["points"]
    assert [point[2] for point in points] == [row.count for row in rows]
    assert points[7][3:] == [
        rows[7].sum.estimate / rows[7].count, 400.0 / rows[7].count, rows[7].sum.estimate / rows[7].count, 300.0 / rows[7].count,
    ]  # fmt: skip
    begin, end = START + 10 * 60_000, START + 20 * 60_000
    said = board.answer("range", {"from": str(begin), "to": str(end)})
    plain, filtered = range_sum(rows, begin, end), filtered_sum(rows, begin, end)
    assert said["plain"] == [plain.sum, plain.standard_error]
    assert said["filtered"] == [filtered.sum, filtered.standard_error]
    assert (said["reports"], said["from"], said["to"]) == (plain.count, begin, end)


def test_many_intervals_are_few_points() -> None:
    board, rows = local_board(1000)
    said = board.answer("series", {})
    assert said["intervals_a_point"] == 5
    assert len(said["points"]) == 200
    first = said["points"][0]
    assert first[2] == sum(row.count for row in rows[:5])
    assert first[3] == pytest.approx(sum(row.sum.estimate for row in rows[:5]) / first[2])
    assert first[5:] == [None, None]
    with pytest.raises(BadQuestion, match="no interval"):
        board.answer("range", {"from": "5", "to": "6"})
