"""Quantiles and ranges as columns of a pipeline: settings, decoding, rows, and every published number on a broker."""

import io
import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from rich.console import Console

from susurrus.agents.histogram.board import HistogramBoard
from susurrus.agents.histogram.columns import Kept
from susurrus.agents.histogram.estimates import Estimates, Release
from susurrus.agents.histogram.releases import ReleaseReader, newest_rows
from susurrus.agents.histogram.settings import HistogramSettings
from susurrus.agents.histogram.terminal_table import histogram_table
from susurrus.mechanisms.calendar import Trigger
from susurrus.mechanisms.errors import ConfigurationError
from susurrus.mechanisms.histogram.quantiles import borders_of, quantile, spread
from susurrus.mechanisms.histogram.registry import build_strategy
from susurrus.mechanisms.histogram.rest import RestOfWindow
from susurrus.topics import bounded, histogram
from susurrus.topics.records.payloads import Chunk
from susurrus.topics.records.raw import BucketField, RawDecoder, RawSchema, Reason
from susurrus.topics.wire.packing import Kind, kind_of
from tests.agents.histogram.test_release_stage import lists_of, log_of, random_rows, run, services
from tests.agents.released import release_of, settings
from tests.broker import Broker
from tests.chaos.conftest import archive, published_in_peace
from tests.pipeline import CRASHING, EPOCH, SECRET, THREE_POINTS, Pipeline, merged
from tests.reference import Event, canonical, expected

LATENCY: dict[str, Any] = {
    "name": "latency", "kind": "quantiles", "field": "ms", "lower": 1, "upper": 1000, "scale": "log", "buckets": 3,
    "at": [0.5, 0.999],
}  # fmt: skip
RANGE: dict[str, Any] = {key: value for key, value in LATENCY.items() if key != "at"} | {
    "name": "range", "kind": "spread"
}  # fmt: skip


def configured(*columns: dict[str, Any], **sections: Any) -> Any:
    return settings(columns=list(columns), **sections)


def test_each_quantile_is_a_column_and_all_of_one_field_are_measured_once() -> None:
    found = configured({"name": "visits", "kind": "count"}, LATENCY, RANGE, {"name": "people", "kind": "users"})
    layout = found.layout
    assert [each.column.name for each in layout.published] == [
        "visits", "latency_p50", "latency_p99_9", "range", "people"
    ]  # fmt: skip
    assert [column.name for column in layout.measured] == ["visits", "people", "latency/buckets"]
    assert [each.sources for each in layout.published] == [(0,), (2, 3, 4), (2, 3, 4), (2, 3, 4), (1,)]
    assert (layout.width, found.plan().width) == (5, 5)
    assert [each.column.additive for each in layout.published] == [True, False, False, False, True]
    one = configured({**LATENCY, "at": [0.95]})
    assert [each.column.name for each in one.layout.published] == ["latency"]
    other = configured(LATENCY, {**RANGE, "upper": 2000})
    assert [column.kind for column in other.layout.measured] == ["cells", "cells"]


def test_a_weight_moves_budget_to_the_counts_by_bucket() -> None:
    size = {"name": "size", "kind": "sum", "field": "bytes", "bound": 100}
    plain, heavy = configured(size, LATENCY, RANGE), configured(size, {**LATENCY, "weight": 9}, RANGE)
    assert [column.weight for column in heavy.layout.measured] == [1, 9]
    before, after = (build_strategy(found.plan()).standard_errors()[-1, -1] for found in (plain, heavy))
    assert after < 0.8 * before


def test_a_default_that_is_written_down_is_the_same_pipeline() -> None:
    plain = {name: value for name, value in LATENCY.items() if name not in ("scale", "buckets")}
    said = configured({**plain, "scale": "linear", "buckets": 32})
    assert configured(plain).config_digest() == said.config_digest()
    for change in ({"at": [0.5]}, {"buckets": 31}, {"scale": "log"}, {"lower": 2}, {"upper": 999}):
        assert configured({**plain, **change}).config_digest() != said.config_digest()


@pytest.mark.parametrize(
    ("column", "said"),
    [
        ({**LATENCY, "at": None}, r"at is missing; kind = .quantiles. needs it, for example at = \[0.5, 0.95\]"),
        ({**LATENCY, "at": [0.5, 0.5]}, "at must be numbers between 0 and 1, each once"),
        ({**LATENCY, "at": [1.0]}, "less than 1"),
        ({**LATENCY, "upper": None}, "upper is missing"),
        ({**LATENCY, "lower": 0}, 'lower = 0 is not above 0, and scale = "log"'),
        (
            {**LATENCY, "scale": "linear", "lower": -1.5e308, "upper": 1.5e308},
            "sums and squares must be numbers between",
        ),
        ({**LATENCY, "lower": 1000}, "lower = 1000 is not below upper = 1000"),
        ({**LATENCY, "lower": 999.9999999999999}, "too close together for so many buckets"),
        ({**LATENCY, "bound": 1000}, "bound has no meaning"),
        ({**LATENCY, "grid": 1}, "grid has no meaning"),
        ({**LATENCY, "field": None}, "field is missing"),
        ({**LATENCY, "buckets": 257}, "less than or equal to 256"),
        ({**RANGE, "at": [0.5]}, "at has no meaning"),
        ({"name": "x", "kind": "sum", "field": "ms", "bound": 5, "at": [0.5]}, "at has no meaning"),
        ({"name": "x", "kind": "count", "buckets": 5}, "buckets has no meaning"),
    ],
)
def test_what_cannot_be_says_what_to_change(column: dict[str, Any], said: str) -> None:
    with pytest.raises(ConfigurationError, match=said):
        configured({name: value for name, value in column.items() if value is not None})


def test_two_columns_that_publish_one_name_are_refused() -> None:
    with pytest.raises(ConfigurationError, match='two are called "latency_p50"'):
        configured(LATENCY, {"name": "latency_p50", "kind": "count"})


def test_values_are_in_the_bucket_below_a_border_they_are_equal_to() -> None:
    field = BucketField(path="ms", borders=tuple(borders_of(1, 1000, 3, "log").tolist()))
    decoder = RawDecoder(RawSchema(user=("u",), key=("k",), values=(field,)))
    below, above = float(np.nextafter(10, 0)), float(np.nextafter(10, 11))
    good = [-5, 1, 1.5, below, 10, above, 100, 100.5, 1000, 1e300]
    bad = [float("nan"), float("inf"), "7", None, True, [1], 2**70]
    values = [*good, *bad]
    found = decoder.decode(
        [Chunk(columns=[["u"] * len(values), ["k"] * len(values), values], rows=len(values), refused={})]
    )
    assert found.values[: len(good), 0].tolist() == [0, 0, 0, 0, 0, 1, 1, 2, 2, 2]
    assert found.reason[: len(good)].tolist() == [Reason.OK] * len(good)
    assert (found.reason[len(good) :] != Reason.OK).all()


def test_records_add_to_one_bucket_of_their_cell() -> None:
    layout = configured({"name": "visits", "kind": "count"}, LATENCY).layout
    kept = Kept(
        rows=np.array([4, 0, 2], np.intp),
        starts=np.array([0, 0, 2, 3]),
        first=np.ones(5, np.bool_),
        values=np.array([[2], [0], [1], [0], [2]]),
    )
    assert layout.aggregate(kept).tolist() == [[0, 0, 0, 0], [2, 0, 0, 2], [1, 0, 1, 0], [0, 0, 0, 0]]
    assert layout.totals(np.array([[5, 1, 0, 2]])).tolist() == [[5, 1, 1, 3]]


def test_rows_have_the_interval_in_every_form() -> None:
    """As columns, as JSON, back again, and in the schema."""
    found = configured({"name": "visits", "kind": "count"}, LATENCY, RANGE)
    counts = np.array([[700, 100, 400, 690], [50, 3, -2, 40]])
    errors = np.full((2, 4), 9.0)
    columns = [each.rows(counts, errors) for each in found.layout.published]
    borders = borders_of(1, 1000, 3, "log")
    for column, wanted in zip(
        columns[1:],
        [quantile(counts[:, 1:], errors[:, 0], borders, share) for share in (0.5, 0.999)]
        + [spread(counts[:, 1:], errors[:, 0], borders)],
        strict=True,
    ):
        assert column.estimate.tolist() == wanted.estimate.tolist()
        assert column.interval is not None
        assert (column.interval[0].tolist(), column.interval[1].tolist()) == (
            wanted.lower.tolist(),
            wanted.upper.tolist(),
        )
    release = histogram.TriggerHeader(
        window_start=0, window_end=1, trigger=1, of_triggers=1, strategy="toeplitz", epoch="0" * 32
    )
    _, values = histogram.encode_rows(release, [b'"a"', b'"b"'], columns)
    assert list(json.loads(values[0])["values"]["latency_p50"]) == ["estimate", "std_error", "lower", "upper"]
    assert list(json.loads(values[0])["values"]["visits"]) == ["estimate", "std_error"]
    [back] = histogram.decode_rows(values)
    again = histogram.encode_rows(release, back.keys, back.columns)
    assert again[1] == values
    members = found.schemas[found.topic("histogram")].members
    of = next(field for field in members.fields if field.name == "values").type
    shapes = {field.name: [member.name for member in field.type.fields] for field in of.fields}  # type: ignore[union-attr]
    assert shapes["latency_p50"] == ["estimate", "std_error", "lower", "upper"]
    assert shapes["visits"] == ["estimate", "std_error", "direct", "smoothed"]


def test_half_an_interval_is_refused() -> None:
    row = json.loads(_one_row())
    for end in ("lower", "upper"):
        broken = json.loads(json.dumps(row))
        del broken["values"]["latency"][end]
        with pytest.raises(ValueError, match="half an interval"):
            list(histogram.decode_rows([json.dumps(broken).encode()]))


def _one_row() -> bytes:
    found = configured({**LATENCY, "at": [0.5]})
    columns = [each.rows(np.array([[1, 2, 3]]), np.ones((1, 3))) for each in found.layout.published]
    release = histogram.TriggerHeader(
        window_start=0, window_end=1, trigger=1, of_triggers=1, strategy="toeplitz", epoch="0" * 32
    )
    return histogram.encode_rows(release, [b'"a"'], columns)[1][0]


def test_a_field_that_is_counted_by_bucket_twice_is_warned_of() -> None:
    def said(*columns: dict[str, Any]) -> list[str]:
        return [found.text for found in configured(*columns).findings() if "by bucket" in found.text]

    assert said(LATENCY, RANGE) == []
    [text] = said(LATENCY, {**RANGE, "buckets": 4})
    assert text.startswith('columns: ms is counted by bucket 2 times, for "latency" and "range"')


def test_a_rolling_view_has_quantiles_and_their_intervals() -> None:
    found = configured(LATENCY, window={"length": "1d", "trigger_every": "6h", "rolling": True})
    strategy = build_strategy(found.plan())
    assert strategy.covariance(Trigger(2), Trigger(4)).shape == (3,)
    rest = RestOfWindow.of(strategy, np.array([2, 1]), Trigger(4))
    early, late = np.array([[10, 20, 30]] * 2), np.array([[50, 90, 140]] * 2)
    errors = np.broadcast_to(strategy.standard_errors()[-1], late.shape)
    numbers, variances = rest.rows(np.array([1, 2]), early, late, late, errors)
    assert numbers.tolist() == [[40, 70, 110]] * 2
    [p50, _] = [each.rows(numbers, np.sqrt(variances)) for each in found.layout.published]
    assert p50.interval is not None
    of = next(field for field in found.schemas[found.topic("rolling")].members.fields if field.name == "values").type
    shapes = {field.name: [member.name for member in field.type.fields] for field in of.fields}  # type: ignore[union-attr]
    assert shapes["latency_p50"] == ["estimate", "std_error", "lower", "upper"]


@pytest.mark.parametrize("strategy", ["toeplitz", "closing"])
def test_restarts_of_release_change_no_byte_of_quantiles_and_of_their_rolling_view(
    strategy: str, tmp_path: Path
) -> None:
    def ours() -> Any:
        return services(columns=[LATENCY], privacy={"strategy": strategy}, window={"rolling": True})

    rows = random_rows(4)
    log = [_with_buckets(value) for value in log_of(rows, ours().config_digest, lists=lists_of(ours(), 4))]
    undisturbed, disturbed = run(ours(), log, tmp_path / "a"), run(ours(), log, tmp_path / "b", seed=5)
    for topic in ("histogram", "latest", "rolling"):
        assert disturbed.to(topic) == undisturbed.to(topic)
    for topic in ("histogram", "rolling"):
        found = [json.loads(value or b"")["values"]["latency_p50"] for _, _, _, value, _ in undisturbed.to(topic)]
        assert len(found) > 30
        assert all(of["lower"] <= of["estimate"] <= of["upper"] for of in found)
        assert any(of["upper"] < 1000 for of in found)


def _with_buckets(value: bytes) -> bytes:
    """A record of bounded in which each key's users have values in the first two buckets."""
    if kind_of(value) is not Kind.BLOCK:
        return value
    block = bounded.decode(value)
    first = 2 * block.sums[:, 0] // 3
    added = np.stack([first, block.sums[:, 0] - first, np.zeros_like(first)], axis=1)
    return bounded.encode(replace(block, sums=np.concatenate([block.sums, added], axis=1)))


def test_readers_terminals_and_the_dashboard_show_the_ends() -> None:
    estimates = Estimates(
        np.array([91.7, 20.0]),
        np.array([8.6, 5.0]),
        additive=False,
        interval=(np.array([75.1, 15.0]), np.array([109.0, 35.0])),
    )
    release = release_of(
        ["/a", "/b"], {"latency": estimates, "visits": Estimates(np.array([9, 8]), np.array([2.0, 2.0]))}
    )
    for text in (release.table(), _drawn(release)):
        assert "75.1 to 109" in text
        assert "15 to 35" in text
    rows = release.frame(0.5).rows()
    assert [(row["latency_lower"], row["latency_upper"]) for row in rows] == [(75.1, 109.0), (15.0, 35.0)]
    part = estimates.take(np.array([1]))
    assert part.interval is not None
    assert (part.at(0).lower, part.at(0).upper) == (15.0, 35.0)
    again = newest_rows([release, release])
    assert again.columns["latency"].at(0) == estimates.at(0)
    board = HistogramBoard(
        HistogramSettings.of(configured({**LATENCY, "at": [0.5]}, {"name": "visits", "kind": "count"})),
        "per user",
        keep=2,
        curve_bytes=1 << 20,
    )
    board.windows.add(release)
    found = board.answer("table", {})
    assert found["rows"][0]["values"] == {"latency": [91.7, 8.6, 75.1, 109.0], "visits": [9, 2.0]}
    assert found["largest"] == 109.0
    curve = board.answer("curves", {"key": found["rows"][0]["name"], "windows": str(release.window_start)})
    assert [point[2:] for point in curve["curves"][0]["points"]] == [[91.7, 8.6, 75.1, 109.0]]


def _drawn(release: Release) -> str:
    console = Console(width=100, file=io.StringIO())
    console.print(histogram_table(release, width=100, limit=5))
    return console.file.getvalue()  # type: ignore[attr-defined,no-any-return]


# ---- on a broker -----------------------------------------------------------------------------------------------------

SIZE: dict[str, Any] = {"field": "bytes", "lower": 100, "upper": 100_000, "scale": "log", "buckets": 16}
ON_A_BROKER: dict[str, Any] = {
    "privacy": {"strategy": None},
    "bounds": {"max_records_per_user": 20, "max_records_per_key": 2},
    "columns": [
        {"name": "hosts", "kind": "users"},
        {"name": "size", "kind": "quantiles", "at": [0.5, 0.9], **SIZE},
        {"name": "range", "kind": "spread", **SIZE},
        {"name": "bytes", "kind": "sum", "field": "bytes", "bound": 20000},
    ],
}


@pytest.fixture(scope="module")
def log(kafka: Broker, once: Callable[[str, Callable[[], str]], str]) -> str:
    return once("quantiles", lambda: archive(kafka, 1))


def test_every_published_quantile_is_the_references_whatever_workers_die(
    kafka: Broker, log: str, tmp_path: Path
) -> None:
    """Every number against the slow reference; the same bytes after kills in the middle of commits; and what a reader gets."""
    peaceful = published_in_peace(kafka, tmp_path, log, ON_A_BROKER)
    with Pipeline(kafka, tmp_path, log, merged(CRASHING, ON_A_BROKER)) as pipeline:
        pipeline.crash("bound:after-commit:2")
        pipeline.crash_everywhere("release", 2, THREE_POINTS)
        pipeline.start()
        pipeline.wait()
        assert pipeline.public() == peaceful
        found = pipeline.settings
        with ReleaseReader(found) as reader:
            releases = []
            while not reader.caught_up:
                releases += reader.poll(1.0)
    events: list[Event] = [
        (message.partition(), message.offset(), message.timestamp()[1], json.loads(message.value()))
        for message in kafka.read_all(log)
    ]
    wanted = expected(found, events, secret=bytes.fromhex(SECRET), epoch=EPOCH)
    stds = HistogramErrors(found)
    borders = borders_of(100, 100_000, 16, "log")
    rows = [histogram.decode_row(value) for part in peaceful["histogram"].values() for _, value, _ in part]
    assert len(rows) > 100
    assert len(rows) == len(wanted)
    for row in rows:
        numbers = np.array([wanted[row.window, row.trigger, canonical(row.key)][2:]])
        scale = stds.of_total(row.trigger)
        for name, of in (
            ("size_p50", quantile(numbers, scale, borders, 0.5)),
            ("size_p90", quantile(numbers, scale, borders, 0.9)),
            ("range", spread(numbers, scale, borders)),
        ):
            said = row.values[name]
            assert (said.estimate, said.lower, said.upper) == (of.estimate[0], of.lower[0], of.upper[0])
    last = releases[-1]
    frame = last.frame().rows()
    assert {"size_p50", "size_p50_std_error", "size_p50_lower", "size_p50_upper"} <= set(frame[0])
    assert "size_p50_lower" in last.exported().columns
    with pytest.raises(ConfigurationError, match="size_p50"):
        last.total("size_p50")


class HistogramErrors:
    """The standard error of F_B by trigger, from the mechanism."""

    def __init__(self, found: Any) -> None:
        self._errors = build_strategy(found.plan()).standard_errors()[:, -1]

    def of_total(self, trigger: int) -> Any:
        return self._errors[trigger - 1 : trigger]
