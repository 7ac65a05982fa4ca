"""The rolling view of a release partition, recomputed from what `histogram` published, whatever restarts there are."""

import json
import math
from collections import defaultdict
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from susurrus.agents.histogram import kept_rows
from susurrus.agents.histogram.release import ReleaseStage
from susurrus.agents.histogram.rolling import RollingView
from susurrus.agents.histogram.shown_rows import ShownRows
from susurrus.agents.histogram.table import SortedRows
from susurrus.agents.histogram.window_plans import WindowPlans
from susurrus.agents.kafka.offset import Offset
from susurrus.agents.runtime.commit import Commit
from susurrus.agents.runtime.services import Services
from susurrus.agents.runtime.store import Store
from susurrus.mechanisms.arrays import Bools, Int64s
from susurrus.mechanisms.calendar import Trigger, WindowIndex
from susurrus.mechanisms.errors import ConfigurationError
from susurrus.mechanisms.histogram.calibration import LEAST_ROWS
from susurrus.topics import histogram, progress, rolling
from susurrus.topics.wire.row_schema import converted, restored
from susurrus.topics.wire.timestamps import parse_time
from tests.agents.histogram.test_release_stage import (
    FAR,
    HOUR,
    INTERVALS,
    TRIGGERS,
    WINDOWS,
    lists_of,
    log_of,
    random_rows,
    run,
    services,
    slow_unit,
)
from tests.agents.stages import WINDOW, Runner
from tests.mechanisms.histogram.test_rest import dense

LENGTH = INTERVALS * HOUR
CASES: dict[str, dict[str, Any]] = {
    "toeplitz": {},
    "no late triggers": {"window": {"allowed_lateness": 0}},
    "late as long as a window": {"window": {"allowed_lateness": LENGTH}},
    "declared": {"keys": {"declared": ["k0", "k2", "never seen"]}},
    # With remembered keys the view has rows that `histogram` does not show.
    "closing": {"privacy": {"strategy": "closing"}, "keys": {"remember": 0}},
    "closing, declared": {
        "privacy": {"strategy": "closing"},
        "keys": {"declared": ["k0", "k2", "never seen"], "remember": 0},
    },
}


def viewed(**case: Any) -> Services:
    return services(**{**case, "window": {"rolling": True, **case.get("window", {})}})


Released = dict[int, dict[int, dict[str, dict[str, histogram.MeasuredColumn]]]]
"""window start -> trigger -> key -> values."""


def released(runner: Runner) -> Released:
    found: Released = defaultdict(lambda: defaultdict(dict))
    for _, _, _, value, _ in runner.to("histogram"):
        row = histogram.decode_row(value or b"")
        found[row.window][row.trigger][json.dumps(row.key)] = row.values
    return found


def rows_of(runner: Runner) -> dict[tuple[int, int, str], dict[str, Any]]:
    """(window start, trigger, key) -> row of the view."""
    found = {}
    for _, _, key, value, stamp in runner.to("rolling"):
        row = json.loads(value or b"")
        name = (parse_time(row["window_start"]), row["trigger"], json.dumps(row["key"]))
        assert name not in found
        assert json.loads(key or b"") == {"window": row["window_start"], "key": row["key"]}
        assert stamp == name[0] + name[1] * HOUR == parse_time(row["period_end"])
        assert parse_time(row["period_start"]) == stamp - LENGTH
        found[name] = row
    return found


def own(measured: histogram.MeasuredColumn) -> histogram.Measured:
    return measured.direct or measured


def slowly(
    services: Services, found: Released
) -> dict[tuple[int, int, str], tuple[int, int, dict[str, tuple[float, float]]]]:
    """(window start, trigger, key) -> from when and until when it counts, estimate and standard error by column.

    From published rows and dense matrices alone; the trigger from which the rest is counted is the first one with a row.
    """
    strategy, triggers = services.strategy, services.calendar.triggers
    matrices = {name: dense(strategy, column) for column, name in enumerate(("visits", "paid"))}
    result = {}
    for w in range(WINDOWS + 1):
        start = WINDOW + w * LENGTH
        for t in range(1, INTERVALS + 1):
            end = min(triggers, INTERVALS + t)
            today, before = found[start][t], found[start - LENGTH]
            parts: dict[str, int] = {}
            for key in before[end]:
                since = next(s for s in range(t, end + 1) if key in before[s])
                if since < end:
                    parts[key] = since
            for key in {*today, *parts}:
                values = {}
                for name, matrix in matrices.items():
                    estimate = variance = 0.0
                    if key in today:
                        estimate, variance = today[key][name].estimate, today[key][name].std_error ** 2
                    if key in parts:
                        early, late = own(before[parts[key]][key][name]), own(before[end][key][name])
                        e, s = before[end][key][name].estimate, before[end][key][name].std_error
                        at, last = parts[key] - 1, end - 1
                        beta = matrix[at, last] / matrix[last, last]
                        estimate += e - early.estimate + np.rint(beta * (late.estimate - e))
                        variance += (1 - beta) ** 2 * s**2 + matrix[at, at] - beta**2 * matrix[last, last]
                        variance += (2 + beta * (2 - beta)) / 12
                    values[name] = estimate, math.sqrt(variance)
                since_time = start - LENGTH + parts[key] * HOUR if key in parts else start
                result[start, t, key] = since_time, start + t * HOUR if key in today else start, values
    return result


@pytest.mark.parametrize("case", CASES)
def test_the_view_is_what_follows_from_published_rows(
    case: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(kept_rows, "_CHUNK", 2)
    ours = viewed(**CASES[case])
    log = log_of(random_rows(3), ours.config_digest, lists=lists_of(ours, 3))
    runner = run(ours, log, tmp_path / "s", seed=3)
    wanted, rows = slowly(ours, released(runner)), rows_of(runner)
    seen = {name for name in wanted if name[0] + name[1] * HOUR <= max(n[0] + n[1] * HOUR for n in rows)}
    assert rows.keys() == seen
    assert len(rows) > 30
    for name, row in rows.items():
        since, until, values = wanted[name]
        assert (parse_time(row["counted_from"]), parse_time(row["counted_until"])) == (since, until)
        for column, (estimate, error) in values.items():
            assert row["values"][column]["estimate"] == estimate
            assert row["values"][column]["std_error"] == pytest.approx(error, rel=1e-6)
    # Every sort of row is there.
    whole = [
        r for r in rows.values() if (r["counted_from"], r["counted_until"]) == (r["period_start"], r["period_end"])
    ]
    late = [r for r in rows.values() if r["period_start"] < r["counted_from"] < r["window_start"]]
    alone = [r for r in rows.values() if r["counted_from"] == r["window_start"]]
    gone = [r for r in rows.values() if r["counted_until"] == r["window_start"]]
    assert min(map(len, (whole, late, alone, gone))) > 0


REMEMBERED: dict[str, Any] = {
    # Other shares than the defaults: every window has the same plan.
    "privacy": {"strategy": "closing", "closing": {"unknown_share": 0.2}},
    "keys": {"remember": 6},
}


def everything(shown: ShownRows, rows: SortedRows, level: Int64s) -> Bools:
    return np.ones(len(rows.keys), np.bool_)


def test_with_remembered_keys_the_view_is_that_of_all_public_rows_shown_or_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Rows that readers of windows do not see are in it, from the trigger on at which a window begins to remember, and after
    restarts."""
    ours = viewed(**REMEMBERED)
    log = log_of(random_rows(3), ours.config_digest, lists=lists_of(ours, 3))
    as_published = run(ours, log, tmp_path / "a", seed=3)
    with monkeypatch.context() as patched:
        patched.setattr(ShownRows, "_large", everything)
        all_shown = run(viewed(**REMEMBERED), log, tmp_path / "b")
    wanted, rows = slowly(ours, released(all_shown)), rows_of(as_published)
    assert rows_of(all_shown) == rows
    hidden = {name for name in rows if name in wanted} - {
        (start, trigger, key)
        for start, of in released(as_published).items()
        for trigger, keys in of.items()
        for key in keys
    }
    assert len(hidden) > 5
    for name, row in rows.items():
        since, until, values = wanted[name]
        assert (parse_time(row["counted_from"]), parse_time(row["counted_until"])) == (since, until)
        assert {column: row["values"][column]["estimate"] for column in values} == {
            column: estimate for column, (estimate, _) in values.items()
        }


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("seed", [4, 5])
def test_restarts_change_no_byte_and_progress_says_how_many_rows_there_are(
    case: str, seed: int, tmp_path: Path
) -> None:
    ours = viewed(**CASES[case])
    log = log_of(random_rows(4), ours.config_digest, lists=lists_of(ours, 4))
    undisturbed = run(ours, log, tmp_path / "a")
    again = viewed(**CASES[case])
    disturbed = run(again, log, tmp_path / "b", seed=seed)
    assert disturbed.to("rolling") == undisturbed.to("rolling")
    said = [progress.decode(value or b"") for _, _, _, value, _ in disturbed.to("progress")]
    rows = rows_of(disturbed)
    for each in said:
        number = sum(name[:2] == (each.window, each.trigger) for name in rows)
        assert each.rolling_rows == (number if each.trigger <= INTERVALS else None)


@pytest.mark.parametrize("case", CASES)
def test_the_releases_do_not_change_and_neither_does_the_digest(case: str, tmp_path: Path) -> None:
    without = services(**CASES[case])
    ours = viewed(**CASES[case])
    assert ours.config_digest == without.config_digest
    log = log_of(random_rows(4), ours.config_digest, lists=lists_of(ours, 4))
    view, plain = run(ours, log, tmp_path / "a"), run(without, log, tmp_path / "b")
    assert plain.to("histogram", "latest") == view.to("histogram", "latest")
    assert plain.to("rolling") == []
    assert all(b"rolling" not in (value or b"") for _, _, _, value, _ in plain.to("progress"))


@pytest.mark.parametrize("commits", [3, 7, 11])
def test_a_state_that_is_lost_is_rebuilt_with_the_rows_of_windows_that_are_public(commits: int, tmp_path: Path) -> None:
    ours = viewed()
    log = log_of(random_rows(4), ours.config_digest)
    undisturbed = run(viewed(), log, tmp_path / "a")
    runner = Runner(ReleaseStage, ours, tmp_path / "s")
    runner.feed(log, len(log))
    runner.commit(commits, now=FAR)
    runner.restart(empty=True)
    runner.feed(log, len(log))
    runner.commit(now=FAR)
    assert runner.to("rolling") == undisturbed.to("rolling")
    runner.close()


def test_rows_of_two_windows_are_kept_and_no_more(tmp_path: Path) -> None:
    ours = viewed()
    log = log_of(random_rows(4), ours.config_digest)
    runner = Runner(ReleaseStage, ours, tmp_path / "s")
    runner.feed(log, len(log))
    while runner.commit(1, now=FAR):
        kept = {key[1:9] for key in runner.state() if key[:1] == kept_rows.KEPT}
        interval = runner.commits[-1].meta["closed"]
        current = interval // INTERVALS
        wanted = {
            w for w in (current - 1, current) if w >= 0 and (w == current or interval % INTERVALS < INTERVALS - 1)
        }
        assert {int.from_bytes(name, "big") - (1 << 63) for name in kept} == wanted
    runner.close()


def test_a_view_may_be_switched_off_and_on(tmp_path: Path) -> None:
    """What is kept goes when it is off. When it is on again, rows count from there on."""
    ours, off = viewed(), services()
    log = log_of(random_rows(4), ours.config_digest)
    everything = run(viewed(), log, tmp_path / "a")
    runner = Runner(ReleaseStage, ours, tmp_path / "s")
    runner.feed(log, len(log))
    runner.commit(2, now=FAR)
    assert any(key[:1] == kept_rows.KEPT for key in runner.state())
    for use, commits in ((off, 4), (ours, 10**9)):
        runner.services = use
        use.ledger.records = ours.ledger.records  # type: ignore[misc]
        runner.restart()
        runner.feed(log, len(log))
        runner.commit(commits, now=FAR)
        if use is off:
            assert not any(key[:1] == kept_rows.KEPT for key in runner.state())
    assert runner.to("histogram") == everything.to("histogram")
    rows, wanted = rows_of(runner), rows_of(everything)
    back = WINDOW + 7 * HOUR
    assert {parse_time(r["period_end"]) for r in rows.values()} == {
        WINDOW + h * HOUR for h in (1, 2, *range(7, 17))
    } & {parse_time(r["period_end"]) for r in wanted.values()}
    for name, row in rows.items():
        at = parse_time(row["period_end"])
        if at < back or at >= back + LENGTH:
            assert row == wanted[name]
        elif at >= back and parse_time(row["window_start"]) > WINDOW + LENGTH:
            assert parse_time(row["counted_from"]) >= back
    runner.close()


def test_a_calibrated_end_makes_the_rest_more_exact_and_the_direct_rows_stay_beside_it(tmp_path: Path) -> None:
    """Enough keys for a calibration, and shares with which the lists say more of them than the stream."""
    shares = {"discovery_share": 0.4, "unknown_share": 0.05, "public_share": 0.5}
    names = [f"k{i:03d}" for i in range(LEAST_ROWS + 50)]
    ours = viewed(privacy={"strategy": "closing", "closing": shares}, keys={"declared": names})
    users = 60
    each = [(w, json.dumps(name).encode()) for w in range(WINDOWS) for name in names]
    lists = {(0, w, key): (users, users << 20, users * slow_unit(users)) for w, key in each}
    rows = [(0, w * INTERVALS, w, key, users, 7) for w, key in each]
    runner = run(ours, log_of(rows, ours.config_digest, lists=lists), tmp_path / "s", seed=1)
    wanted, found = slowly(ours, released(runner)), rows_of(runner)
    calibrated = range(TRIGGERS - INTERVALS, INTERVALS)  # by then the window before is over
    both = [row for (start, t, _), row in found.items() if start > WINDOW and t in calibrated]
    assert len(both) > 500
    for name, row in found.items():
        visits, paid = row["values"]["visits"], row["values"]["paid"]
        assert (visits["estimate"], visits["std_error"]) == pytest.approx(wanted[name][2]["visits"], rel=1e-6)
        assert "direct" not in paid
    assert all("direct" in row["values"]["visits"] for row in both)
    assert np.mean([row["values"]["visits"]["std_error"] for row in both]) < np.mean(
        [0.9 * row["values"]["visits"]["direct"]["std_error"] for row in both]
    )
    # The direct row is today's own, and the difference of the rows of the window before.
    history = released(runner)
    for (start, t, key), row in found.items():
        if start > WINDOW and t in calibrated:
            before = history[start - LENGTH]
            rest = own(before[TRIGGERS][key]["visits"]).estimate - own(before[t][key]["visits"]).estimate
            alone = history[start][t][key]["visits"].estimate
            assert row["values"]["visits"]["direct"]["estimate"] == alone + rest


def test_a_mean_is_computed_from_the_views_own_sum_and_count(tmp_path: Path) -> None:
    mean = {"name": "mean", "kind": "mean", "field": "amount", "bound": 50, "grid": 1}
    ours = viewed(columns=[mean])
    runner = run(ours, log_of(random_rows(3), ours.config_digest), tmp_path / "s")
    rows = rows_of(runner)
    assert len(rows) > 30
    for row in rows.values():
        values = {name: of["estimate"] for name, of in row["values"].items()}
        assert values["mean"] == pytest.approx(max(-50, min(50, values["paid"] / max(values["visits"], 1))))


@pytest.mark.parametrize(
    ("sections", "said"),
    [
        ({"privacy": {"strategy": "dp-sqlp"}}, 'not with strategy "dp-sqlp".*choose another'),
        ({"window": {"trigger_every": INTERVALS * HOUR}}, "only release is the last window.length already"),
    ],
)
def test_what_has_no_view_is_refused(sections: dict[str, Any], said: str) -> None:
    with pytest.raises(ConfigurationError, match=said):
        viewed(**sections)


def test_behind_a_window_that_was_not_published_rows_count_the_current_one_alone(tmp_path: Path) -> None:
    """A budget that renews skips windows."""
    ours = viewed(window={"allowed_lateness": 0})
    store = Store(tmp_path / "s")
    view = RollingView(ours, store, WindowPlans(ours, 0, {}))  # type: ignore[arg-type]
    keys = [b'"a"', b'"b"']
    rows = SortedRows(keys=keys, estimates=np.full((2, 2), 5), std_errors=np.ones((2, 2)), direct=None)
    for window in (0, 2, 3):
        for trigger in range(1, INTERVALS + 1):
            commit = Commit(position=Offset(0), meta={})
            found = view.take(WindowIndex(window), Trigger(trigger), rows, commit)
            store.write(commit.puts, commit.deletes, commit.drops, meta=b"m")
            assert found is not None
            start = WINDOW + window * LENGTH
            before = window == 3 and trigger < INTERVALS
            assert (found.counted_from == (start - LENGTH + trigger * HOUR if before else start)).all()
            assert (found.rows.estimates == 5).all()  # nothing came later in a window, so the rest is 0
    kept = {int.from_bytes(key[1:9], "big") - (1 << 63) for key, _ in store.scan(kept_rows.KEPT, b"s")}
    assert kept == {3}
    store.close()


def test_a_ranking_beside_it_is_said_to_be_of_windows() -> None:
    found = viewed(top={"order_by": "visits", "limit": 2}).settings.findings()
    assert any("not of the rolling view" in str(each) for each in found)
    assert not any("rolling" in str(each) for each in viewed().settings.findings())


def test_rows_are_read_as_they_were_written(tmp_path: Path) -> None:
    ours = viewed(privacy={"strategy": "closing"})
    runner = run(ours, log_of(random_rows(3), ours.config_digest, lists=lists_of(ours, 3)), tmp_path / "s")
    values = [value or b"" for _, _, _, value, _ in runner.to("rolling")]
    keys, again = [], []
    for part in rolling.decode_rows(values):
        head = part.release
        header = rolling.RollingHeader(
            period_start=head.window_start + head.trigger * HOUR - LENGTH,
            period_end=head.window_start + head.trigger * HOUR,
            window_start=head.window_start,
            window_end=head.window_end,
            trigger=head.trigger,
            of_triggers=head.of_triggers,
            strategy=head.strategy,
            epoch=head.epoch,
        )
        assert head.window_end - head.window_start == LENGTH
        assert head.of_triggers == TRIGGERS
        encoded = rolling.encode_rows(header, part.keys, part.columns, part.counted_from, part.counted_until)
        keys += encoded[0]
        again += encoded[1]
    assert [json.loads(value) for value in again] == [json.loads(value) for value in values]
    assert keys == [key for _, _, key, _, _ in runner.to("rolling")]


def test_other_formats_hold_whole_rows(tmp_path: Path) -> None:
    ours = viewed(privacy={"strategy": "closing"})
    schema = ours.settings.schemas[ours.topic("rolling")]
    runner = run(ours, log_of(random_rows(3), ours.config_digest, lists=lists_of(ours, 3)), tmp_path / "s")
    rows = [json.loads(value or b"") for _, _, _, value, _ in runner.to("rolling")]
    there, back = converted(schema.members, {}), restored(schema.members, {})
    assert [back(there(row)) for row in rows] == rows
    assert any("direct" in row["values"]["visits"] for row in rows)
