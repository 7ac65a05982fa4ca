"""What a release can be asked: tables and frames, sums, shares and means, and what it refuses."""

import dataclasses
import json
import math
import sys
from typing import Any

import numpy as np
import pytest

from susurrus.agents.histogram.column_settings import ColumnSettings
from susurrus.agents.histogram.columns import layout_of
from susurrus.agents.histogram.estimates import Combined, Estimates, Release, add_windows
from susurrus.mechanisms.errors import ConfigurationError, SusurrusError
from susurrus.mechanisms.histogram.smoothing import shown
from susurrus.mechanisms.propagation import Computed
from susurrus.mechanisms.ranking import Condition, RowRanking
from tests.agents.released import DAY, EPOCHS, WINDOW
from tests.mechanisms.histogram.remembered_days import days
from tests.mechanisms.test_propagation import check, scores
from tests.samples import samples

KEYS = ["a", "b", "c", "d"]


def release(keys: list[Any] | None = None, fields: tuple[str, ...] = ("url",), **changes: Any) -> Release:
    keys = KEYS if keys is None else keys
    n = len(keys)
    visits = Estimates(np.arange(n) * 100 + 100, np.full(n, 3.0), (np.arange(n) * 100 + 110, np.full(n, 4.0)))
    kb = Estimates(np.full(n, 2.5), np.full(n, 0.5), additive=False, divisor="visits")
    own: dict[str, Any] = {
        "window_start": WINDOW,
        "window_end": WINDOW + DAY,
        "trigger_time": WINDOW + DAY,
        "trigger": 4,
        "of_triggers": 4,
        "epoch": EPOCHS[1],
        "epoch_number": 1,
        "strategy": "closing",
        "fields": fields,
        "keys": keys,
        "columns": {"visits": visits, "kb": kb},
    }
    return Release(**own | changes)


class TestTotals:
    def test_are_of_direct_estimates(self) -> None:
        found = release().total()
        assert (found.estimate, found.std_error, found.keys) == (110 + 210 + 310 + 410, 8.0, 4)
        assert found.interval() == pytest.approx((1040 - 8 * 1.959964, 1040 + 8 * 1.959964))
        assert str(found) == "1,040 ± 16 (95 %), 4 keys"

    def test_add_up(self) -> None:
        one, two, both = (release().total("visits", keys) for keys in ("a", ["b", "c"], {"a", "b", "c"}))
        assert one.estimate + two.estimate == both.estimate
        assert math.hypot(one.std_error, two.std_error) == pytest.approx(both.std_error)

    @pytest.mark.parametrize(
        ("keys", "count"),
        [
            ("b", 1),
            (["b"], 1),
            (["b", "b"], 1),
            (np.array(["a", "b"]), 2),
            (lambda key: key > "b", 2),
            ([], 0),
            (None, 4),
        ],
    )
    def test_take_keys_in_many_ways(self, keys: Any, count: int) -> None:
        assert release().total("visits", keys).keys == count

    def test_tell_keys_apart_as_the_rows_do(self) -> None:
        scalars = release([None, True, 1, "1", 2.5])
        assert [scalars.total(keys=[key]).estimate for key in (None, True, 1, 1.0, np.int64(1), "1", 2.5)] == [
            110, 210, 310, 310, 310, 410, 510,
        ]  # fmt: skip
        parts = release([["a", 1], ["a", True], ["b", None]], ("name", "number"))
        assert parts.total(keys=("a", 1)).estimate == 110
        assert parts.total(keys=[("a", True), ["b", None]]).estimate == 210 + 310
        assert ("b", None) in parts
        assert ("b", 0) not in parts

    def test_refuse_what_is_not_published(self) -> None:
        with pytest.raises(SusurrusError, match=r"2 of 3 are not published .* not 0") as refused:
            release().total(keys=["a", "secret-1", "secret-2"])
        assert "secret" not in str(refused.value)

    def test_refuse_means(self) -> None:
        with pytest.raises(ConfigurationError, match=r'means do not add up; use mean\("kb"\), which weighs by visits'):
            release().total("kb")
        alone = release(columns={"kb": Estimates(np.ones(4), np.ones(4), additive=False)})
        for ask in (alone.total, alone.mean, lambda name: alone.share("a", name)):
            with pytest.raises(ConfigurationError, match="add a column that counts records"):
                ask("kb")
        with pytest.raises(ConfigurationError, match=r'is no mean; use total\("visits"\)'):
            release().mean("visits")

    def test_refuse_a_column_that_is_not_there(self) -> None:
        with pytest.raises(ConfigurationError, match='column="views": there is none; use one of visits, kb'):
            release().total("views")


def smoothed(**changes: Any) -> Release:
    """The same release, whose first and third rows have a smoothed number: the smallest and the largest row."""
    before = release().columns
    visits = dataclasses.replace(
        before["visits"],
        smoothed=(np.array([150, 200, 500, 400]), np.array([1.0, 3.0, 2.0, 3.0])),
        smoothed_rows=np.array([True, False, True, False]),
    )
    return release(columns={**before, "visits": visits}, **changes)


class TestWhichNumber:
    def test_a_row_is_shown_by_its_smoothed_number_where_it_has_one(self) -> None:
        found = smoothed()
        visits = found.columns["visits"]
        assert [visits.at(row).estimate for row in range(4)] == [150, 200, 500, 400]
        assert [visits.at(row).std_error for row in range(4)] == [1.0, 3.0, 2.0, 3.0]
        assert [found.keys[row] for row in found.largest()] == ["c", "d", "b", "a"]
        assert [release().keys[row] for row in release().largest()] == ["d", "c", "b", "a"]
        assert found.numbers_shown == "2 smoothed"
        assert release().numbers_shown == ""

    def test_the_other_numbers_are_one_call_away(self) -> None:
        estimate, direct = smoothed().showing("estimate"), smoothed().showing("direct")
        assert [estimate.columns["visits"].at(row).estimate for row in range(4)] == [100, 200, 300, 400]
        assert [direct.columns["visits"].at(row).estimate for row in range(4)] == [110, 210, 310, 410]
        assert direct.columns["visits"].at(0).std_error == 4.0
        assert [estimate.keys[row] for row in estimate.largest()] == ["d", "c", "b", "a"]
        assert estimate.numbers_shown == "not smoothed"
        assert direct.numbers_shown == "direct"
        assert release().showing("estimate").numbers_shown == ""
        # A trigger before the last has no direct numbers: its estimates are those.
        alone = release(columns={"visits": Estimates(np.arange(4), np.ones(4))})
        assert alone.showing("direct").columns["visits"].at(3).estimate == 3
        assert direct.showing("smoothed").columns["visits"].at(0).estimate == 150

    @pytest.mark.parametrize("number", ["smoothed", "estimate", "direct"])
    def test_sums_and_shares_are_of_direct_numbers_where_there_are_such_whatever_is_shown(self, number: Any) -> None:
        found = smoothed().showing(number)
        assert found.total("visits") == release().total("visits")
        assert found.share("a", "visits") == release().share("a", "visits")
        assert found.mean("kb") == release().mean("kb")
        assert add_windows([found], "visits").estimate == 1040

    @pytest.mark.parametrize("number", ["smoothed", "estimate", "direct"])
    def test_before_the_last_trigger_they_are_of_smoothed_numbers_with_the_errors_of_the_estimates(
        self, number: Any
    ) -> None:
        of = dataclasses.replace(smoothed().columns["visits"], direct=None)
        kb = release().columns["kb"]
        found = release(columns={"visits": of, "kb": kb}).showing(number)
        assert found.total() == Combined(150 + 200 + 500 + 400, math.hypot(3, 3, 3, 3), 4)
        assert found.total(keys="b") == Combined(200, 3.0, 1)
        assert found.share("a").estimate == 150 / 1250
        # A mean was divided by the estimate; what it was divided by is not what is added.
        assert found.mean("kb", ["a", "b"]).estimate == (2.5 * 100 + 2.5 * 200) / (150 + 200)

    def test_a_frame_has_the_shown_number_by_the_name_of_the_column_and_the_others_beside_it(self) -> None:
        rows = smoothed().frame().rows()
        assert [row["visits"] for row in rows] == [150, 200, 500, 400]
        assert [row["visits_estimate"] for row in rows] == [100, 200, 300, 400]
        assert [row["visits_smoothed"] for row in rows] == [150, None, 500, None]
        assert [row["visits_smoothed_std_error"] for row in rows] == [1.0, None, 2.0, None]
        assert [row["visits_direct"] for row in rows] == [110, 210, 310, 410]
        assert (rows[0]["visits_lower"], rows[1]["visits_lower"]) == pytest.approx((150 - 1.959964, 200 - 3 * 1.959964))
        names = [name for name in rows[0] if name.startswith("visits")]
        assert names == ["visits"] + [f"visits_{of}" for of in (
            "std_error", "lower", "upper", "estimate", "estimate_std_error", "smoothed", "smoothed_std_error",
            "direct", "direct_std_error",
        )]  # fmt: skip
        direct = smoothed().showing("direct").exported().rows()
        assert [row["visits"] for row in direct] == [110, 210, 310, 410]
        assert [row["visits_estimate"] for row in direct] == [100, 200, 300, 400]
        # A release without smoothed rows has the columns that it always had.
        assert not [name for name in release().frame().columns if "smoothed" in name or name.endswith("estimate")]

    def test_a_table_shows_the_error_of_the_number_that_it_shows(self) -> None:
        lines = smoothed().table(column="visits", width=100).splitlines()
        assert lines[0].endswith("4 keys published · 2 smoothed")
        assert lines[2].split()[:3] == ["c", "500", "4"]
        assert smoothed().showing("direct").table(width=100).splitlines()[2].split()[:3] == ["d", "410", "8"]

    def test_a_ranking_is_of_the_shown_numbers(self) -> None:
        ranking = RowRanking(order_by="visits", descending=True, limit=2, having=(Condition("visits", ">", 350),))
        assert smoothed(ranking=ranking).top().keys == ["c", "d"]
        assert smoothed(ranking=ranking).showing("estimate").top().keys == ["d"]
        assert [of.estimate for of in (smoothed().top(ranking).columns["visits"].at(row) for row in range(2))] == [
            500,
            400,
        ]

    def test_arrow_has_null_where_a_row_has_no_smoothed_number(self) -> None:
        pytest.importorskip("pyarrow")
        table = smoothed().to_arrow()
        assert table["visits_smoothed"].to_pylist() == [150, None, 500, None]
        assert str(table["visits_smoothed"].type) == "int64"
        assert table["visits_smoothed_std_error"].to_pylist() == [1.0, None, 2.0, None]

    def test_pandas_has_nan_there(self) -> None:
        pytest.importorskip("pandas")
        found = smoothed().to_pandas()
        assert found["visits_smoothed"].dtype == np.float64
        assert found["visits_smoothed"].isna().tolist() == [False, True, False, True]

    def test_rows_without_any_have_no_such_column(self) -> None:
        of = smoothed().columns["visits"].take(np.array([1, 3]))
        assert (of.smoothed, of.smoothed_rows, of.at(1).estimate) == (None, None, 400)


class TestRatios:
    def test_a_share_is_of_all_published_keys(self) -> None:
        found = release().share(["a", "b"], "visits")
        assert found.estimate == pytest.approx(320 / 1040)
        p = 320 / 1040
        assert found.std_error == pytest.approx(4 * math.sqrt(2 * (1 - p) ** 2 + 2 * p**2) / 1040)
        assert found.keys == 2

    def test_a_quotient_by_noise_is_refused(self) -> None:
        noise = release(columns={"visits": Estimates(np.ones(4), np.ones(4))})
        with pytest.raises(SusurrusError, match="less than 5 standard errors above 0"):
            noise.share("a")

    @pytest.mark.statistical
    def test_the_mean_of_the_published_kind_is_covered(self) -> None:
        """Counts and sums of the same keys again and again, published by the column kind itself."""
        columns = [
            ColumnSettings(name="n", kind="count"),
            ColumnSettings(name="kb", kind="mean", field="kb", bound=100.0, grid=0.1),
        ]
        made = layout_of([column.column() for column in columns])
        assert [made.divisor(column) for column in made.published] == [None, "n"]
        alone = layout_of([columns[1].column()])
        assert alone.divisor(alone.published[0]) is None
        counts, means = np.array([4000, 900, 300, 250]), np.array([10.0, 40.0, -5.0, 30.0])
        truth = float((counts * means).sum() / counts.sum())
        generator, errors, found = np.random.default_rng(5), np.array([[12.0, 9_000.0]] * 4), []
        for _ in range(samples(1_000)):
            exact = np.stack([counts, counts * means * 10], axis=1)
            noisy = np.rint(exact + errors * generator.standard_normal((4, 2))).astype(np.int64)
            rows = {column.column.name: column.rows(noisy, np.sqrt(errors**2 + 1 / 12)) for column in made.published}
            estimates = {
                name: Estimates(of.estimate, np.asarray(of.std_error), None, name == "n", None if name == "n" else "n")
                for name, of in rows.items()
            }
            found.append(release(columns=estimates).mean("kb"))
        check(scores([Computed(one.estimate, one.std_error) for one in found], [truth] * len(found)))


@pytest.mark.statistical
@pytest.mark.parametrize(("changing", "excess"), [(0.1, 0.8), (0.5, 3.0)])
def test_sums_over_remembered_keys_are_not_too_high_and_those_of_their_own_streams_would_be(
    changing: float, excess: float
) -> None:
    """The rows that are shown, at every quarter before the last: days in a row, as the smoothing's own tests have them."""
    ours: list[float] = []
    planted: list[float] = []
    for seed in range(samples(12)):
        for quarter in days(20_000, changing, 4, 500 + seed):
            if quarter.quarter == 3:
                continue
            estimates = quarter.estimates.astype(np.int64)
            of = Estimates(
                quarter.direct.astype(np.int64),
                np.sqrt(quarter.given[1]),
                smoothed=(estimates, quarter.errors),
                smoothed_rows=np.ones(len(estimates), np.bool_),
            )
            rows = np.flatnonzero(shown(estimates, quarter.errors))
            found = release(list(range(len(rows))), columns={"visits": of.take(rows)}, trigger=1).total()
            truth = quarter.truth[rows].sum()
            ours.append((found.estimate - truth) / found.std_error)
            planted.append((quarter.direct[rows].sum() - truth) / found.std_error)
    assert abs(np.mean(ours)) < 0.4
    assert np.mean(np.abs(ours) <= 1.96) >= 0.95
    assert np.mean(planted) > excess


class TestWindows:
    def test_are_independent(self) -> None:
        days = [release(window_start=WINDOW + day * DAY) for day in range(3)]
        found = add_windows(days, "visits", "a")
        assert (found.estimate, found.keys) == (330, 3)
        assert found.std_error == pytest.approx(4 * math.sqrt(3))

    @pytest.mark.parametrize("other", [{"trigger": 3}, {"epoch": EPOCHS[2], "epoch_number": 2}])
    def test_count_once(self, other: dict[str, Any]) -> None:
        with pytest.raises(SusurrusError, match="is there twice"):
            add_windows([release(), release(**other)])


class TestFrames:
    def test_rows_are_named_as_in_an_export_and_have_intervals(self) -> None:
        [first, *_] = release().frame(0.5).rows()
        assert first == {
            "window_start": "1995-08-01T00:00:00Z",
            "window_end": "1995-08-02T00:00:00Z",
            "trigger": 4,
            "of_triggers": 4,
            "trigger_time": "1995-08-02T00:00:00Z",
            "url": "a",
            "visits": 100,
            "visits_std_error": 3.0,
            "visits_lower": pytest.approx(100 - 3 * 0.6744898),
            "visits_upper": pytest.approx(100 + 3 * 0.6744898),
            "visits_direct": 110,
            "visits_direct_std_error": 4.0,
            "kb": 2.5,
            "kb_std_error": 0.5,
            "kb_lower": pytest.approx(2.5 - 0.5 * 0.6744898),
            "kb_upper": pytest.approx(2.5 + 0.5 * 0.6744898),
            "strategy": "closing",
            "epoch": EPOCHS[1],
        }

    def test_a_dictionary_is_json(self) -> None:
        found = json.loads(json.dumps(release().to_dict()))
        assert (found["final"], found["trigger"], found["epoch_number"], len(found["rows"])) == (True, 4, 1, 4)
        assert list(found["rows"][0])[:3] == ["url", "visits", "visits_std_error"]

    def test_arrow_and_pandas_have_the_same_columns(self) -> None:
        parts = release([["a", 1], ["b", 2]], ("visits", "number"))
        frame, arrow = parts.to_pandas(), parts.to_arrow()
        assert list(frame.columns) == arrow.column_names == list(parts.frame().columns)
        assert frame["key_visits"].tolist() == arrow["key_visits"].to_pylist() == ["a", "b"]
        assert frame["visits"].dtype == np.int64
        assert str(arrow["window_start"].type) == "timestamp[ms, tz=UTC]"
        assert frame["window_start"][0] == arrow["window_start"].to_pylist()[0]

    def test_a_day_of_a_zone_is_shown_by_its_clocks(self) -> None:
        start = 1_792_879_200_000  # 2026-10-25 in Berlin, of 25 hours
        day = release(["a"], window_start=start, window_end=start + 25 * DAY // 24, time_zone="Europe/Berlin")
        head = day.to_dict()
        assert (head["window_start"], head["window_end"]) == ("2026-10-25T00:00:00+02:00", "2026-10-26T00:00:00+01:00")
        assert (head["window_date"], day.window_date) == ("2026-10-25", "2026-10-25")
        assert day.caption(1).startswith("window 2026-10-25T00:00:00+02:00")
        assert "window_start=2026-10-25T00:00:00+02:00" in repr(day)
        [row] = day.exported().rows()
        assert list(row)[:3] == ["window_start", "window_end", "window_date"]
        assert row["window_end"] == "2026-10-26T00:00:00+01:00"
        arrow, frame = day.to_arrow(), day.to_pandas()
        assert str(arrow["window_start"].type) == "timestamp[ms, tz=Europe/Berlin]"
        assert arrow["window_date"].to_pylist() == frame["window_date"].tolist() == ["2026-10-25"]
        assert frame["window_start"][0].isoformat() == "2026-10-25T00:00:00+02:00"
        assert frame["window_start"][0].value == start * 1_000_000
        assert "window_date" not in release().to_dict()

    def test_an_empty_release_is_an_empty_table(self) -> None:
        empty = release([])
        assert len(empty.to_pandas()) == len(empty.to_arrow()) == len(empty.to_dict()["rows"]) == 0
        assert "0 keys published" in empty.table()
        assert empty.total().estimate == 0

    @pytest.mark.parametrize(("method", "package"), [("to_pandas", "pandas"), ("to_arrow", "pyarrow")])
    def test_a_missing_package_is_named(self, method: str, package: str, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setitem(sys.modules, package, None)
        with pytest.raises(SusurrusError, match=rf'{package} is not installed: `pip install "susurrus\['):
            getattr(release(), method)()

    def test_a_confidence_is_between_0_and_1(self) -> None:
        for ask in (release().to_dict, release().total().interval, release().to_pandas):
            with pytest.raises(ConfigurationError, match="confidence=95: must lie between 0 and 1"):
                ask(95)


class TestTable:
    def test_shows_the_largest_rows(self) -> None:
        assert release().table(2, width=80).splitlines() == [
            "window 1995-08-01T00:00:00Z · final · 4 keys published, 2 shown",
            "url  visits  ± 95 %   kb  ± 95 %",
            "d       400       6  2.5    0.98",
            "c       300       6  2.5    0.98",
        ]

    def test_of_another_column_and_confidence(self) -> None:
        lines = release(trigger=3).table(1, column="kb", confidence=0.8, width=80).splitlines()
        assert lines[0].startswith("window 1995-08-01T00:00:00Z · trigger 3 of 4")
        assert lines[1].split()[:2] == ["url", "kb"]
        assert "± 80 %" in lines[1]

    def test_is_what_printing_shows_and_a_representation_is_short(self) -> None:
        assert str(release()) == release().table()
        assert repr(release()) == "Release(window_start=1995-08-01T00:00:00Z, trigger=4, of_triggers=4, keys=4)"

    def test_shortens_keys_where_the_terminal_is_narrow_and_keeps_control_characters_out(self) -> None:
        lines = release(["x" * 200, "\x1b[31m"]).table(width=60).splitlines()
        assert all(len(line) <= 60 for line in lines)
        assert "…" in lines[3]
        assert "\x1b" not in "".join(lines)


class TestRankings:
    RANKING = RowRanking(order_by="visits", descending=True, limit=2, having=(Condition("kb", "<", 9),))

    def test_the_first_rows_are_a_release_of_their_own(self) -> None:
        found = release(ranking=self.RANKING).top()
        assert found.keys == ["d", "c"]
        assert (found.of_keys, len(found), found.final, found.epoch) == (4, 2, True, EPOCHS[1])
        assert found.columns["visits"].estimate.tolist() == [400, 300]
        direct = found.columns["visits"].direct
        assert direct is not None
        assert direct[0].tolist() == [410, 310]
        assert (found.columns["kb"].divisor, found.columns["kb"].additive) == ("visits", False)
        frame = found.exported()
        assert list(frame.columns["rank"]) == [1, 2]
        assert frame.columns["key"] == ['"d"', '"c"']
        assert "rank" not in release().exported().columns

    def test_its_tables_are_in_the_order_of_the_ranking(self) -> None:
        upwards = RowRanking(order_by="visits", descending=False, limit=3)
        found = release().top(upwards)
        lines = found.table(width=120).splitlines()
        assert "ORDER BY visits LIMIT 3 · 3 of 4 published keys" in lines[0]
        assert [line.split()[0] for line in lines[2:]] == ["a", "b", "c"]
        assert found.largest(2, "kb") == [0, 1]
        assert found.names() == ["visits", "kb"]
        assert found.top().keys == found.keys

    def test_where_there_is_none_it_says_so(self) -> None:
        with pytest.raises(ConfigurationError, match=r"the pipeline has no ranking; add a section \[top\]"):
            release().top()
        with pytest.raises(ConfigurationError, match='column="x": there is none'):
            release().top(RowRanking(order_by="x", descending=True, limit=1))
        with pytest.raises(ConfigurationError, match='column="x": there is none'):
            release().top(RowRanking(order_by="kb", descending=True, limit=1, having=(Condition("x", ">", 1),)))
