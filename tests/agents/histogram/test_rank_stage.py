"""rank against the published rows alone: what is first, once, and the same bytes whatever happens to the stage."""

import random
from collections import defaultdict
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from susurrus.agents.histogram import candidates as candidates_module
from susurrus.agents.histogram.rank import RankStage, first_rows
from susurrus.agents.histogram.release import ReleaseStage
from susurrus.agents.runtime.services import Services
from susurrus.mechanisms.errors import Refusal
from susurrus.mechanisms.ranking import Condition, RowRanking
from susurrus.topics import histogram, tick, top
from susurrus.topics.wire.packing import Kind, kind_of
from tests.agents.cycles import no_cycles
from tests.agents.histogram.test_release_stage import FAR, INTERVALS, LAST, TRIGGERS, Row, log_of, random_rows, services
from tests.agents.stages import WINDOW, Runner, Written

PARTITIONS = 2
TOP = {"order_by": "visits", "limit": 3, "having": ["visits >= 20", "paid < 400"]}
HOUR = 3_600_000


def ranked(**changes: Any) -> Services:
    return services(top={**TOP, **changes}, topics={"bounded_partitions": PARTITIONS})


def rows_of(partition: int, seed: int = 1) -> list[Row]:
    """Other keys in each partition."""
    return [(*row[:3], b'"%d%b' % (partition, row[3][1:]), *row[4:]) for row in random_rows(seed + 10 * partition)]


def released(ours: Services, directory: Path, seed: int = 1) -> list[Runner]:
    """Both release partitions, at their end."""
    runners = []
    for partition in range(PARTITIONS):
        runner = Runner(ReleaseStage, ours, directory / f"release-{partition}", partition)
        log = log_of(rows_of(partition, seed), ours.config_digest, seed)
        runner.feed(log, len(log))
        runner.commit(now=FAR)
        runner.close()
        runners.append(runner)
    return runners


def candidates_of(runners: list[Runner], dice: random.Random) -> list[bytes]:
    """The log of candidates, as two partitions write it in turn."""
    parts = [[value for _, _, _, value, _ in runner.to("candidates") if value is not None] for runner in runners]
    log = []
    while any(parts):
        log.append(dice.choice([part for part in parts if part]).pop(0))
    return log


def tops(runner: Runner) -> Written:
    return runner.to("top")


def wanted(ours: Any, runners: list[Runner]) -> dict[tuple[int, int], list[bytes]]:
    """Every ranking from the published rows alone, by Python's own sort: (window, trigger) -> keys in order."""
    found: dict[tuple[int, int], list[Any]] = defaultdict(list)
    for runner in runners:
        for _, _, _, value, _ in runner.to("histogram"):
            row = histogram.decode_row(value or b"")
            if row.values["visits"].estimate >= 20 and row.values["paid"].estimate < 400:
                found[row.window, row.trigger].append(row)
    limit = ours.settings.top.limit
    return {
        place: [row.key for row in sorted(rows, key=lambda row: (-row.values["visits"].estimate, row.key))[:limit]]
        for place, rows in found.items()
    }


def read(runner: Runner) -> dict[tuple[int, int], list[Any]]:
    """(window, trigger) -> keys, of what was written."""
    records = [top.decode(value or b"") for _, _, _, value, _ in tops(runner)]
    return {(record.window, record.trigger): [row.key for row in record.rows] for record in records}


def undisturbed(ours: Services, log: list[bytes], directory: Path) -> Runner:
    runner = Runner(RankStage, ours, directory)
    runner.feed(log, len(log))
    runner.commit(now=FAR)
    runner.close()
    return runner


@pytest.mark.parametrize("limit", [1, 3, 150])
def test_every_ranking_is_that_of_the_published_rows(limit: int, tmp_path: Path) -> None:
    ours = ranked(limit=limit)
    runners = released(ours, tmp_path)
    runner = undisturbed(ours, candidates_of(runners, random.Random(1)), tmp_path / "rank")
    found, expected = read(runner), wanted(ours, runners)
    places = {(WINDOW + w * INTERVALS * HOUR, t) for w in range(3) for t in range(1, TRIGGERS + 1)}
    assert places <= found.keys()
    assert len(found) == len(tops(runner))  # once each, also where there are no rows
    assert {place: keys for place, keys in found.items() if keys} == expected
    assert len(expected) > 5
    assert any(len(keys) < limit for keys in found.values()) or limit == 1
    # At the trigger's own time, as the rows.
    stamps = {
        (top.decode(value or b"").window, top.decode(value or b"").trigger): stamp for *_, value, stamp in tops(runner)
    }
    assert all(stamp == window + trigger * HOUR for (window, trigger), stamp in stamps.items())
    totals = runner.stage.counters
    assert totals == {"triggers": len(found), "rows": sum(map(len, found.values()))}


def test_rows_of_a_ranking_are_the_bytes_of_the_published_rows(tmp_path: Path) -> None:
    ours = ranked()
    runners = released(ours, tmp_path)
    runner = undisturbed(ours, candidates_of(runners, random.Random(1)), tmp_path / "rank")
    published = {value for one in runners for _, _, _, value, _ in one.to("histogram")}
    for record in (value or b"" for _, _, _, value, _ in tops(runner)):
        for row in top.decode(record).rows:
            [same] = [one for one in published if b'"key":"%b"' % row.key.encode() in one and _of(one) == _of(record)]
            assert same[same.index(b'"key"') : same.index(b',"strategy"')] in record


def _of(value: bytes) -> tuple[str, int]:
    found = histogram.decode_row(value) if b'"ranking"' not in value else top.decode(value)
    return found.window_start, found.trigger


def test_a_ranking_by_something_else_than_the_published_rows_would_be_seen(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A planted defect: release hands on its rows in the order of the exact counts. The comparison above must not hold then."""
    ours = ranked(limit=1)
    exact = {row[3]: row[4] for partition in range(PARTITIONS) for row in rows_of(partition)}

    def by_exact(self: Any, window: int, columns: Any, rows: Any) -> None:
        largest = sorted(rows, key=lambda row: -exact.get(b'"%b"' % histogram.decode_row(row).key.encode(), 0))[:1]
        self._rows += largest
        self._windows += [window] * len(largest)

    monkeypatch.setattr(candidates_module.Candidates, "add", by_exact)
    runners = released(ours, tmp_path)
    runner = undisturbed(ours, candidates_of(runners, random.Random(1)), tmp_path / "rank")
    assert {place: keys for place, keys in read(runner).items() if keys} != wanted(ours, runners)


@pytest.mark.parametrize("seed", range(6))
def test_restarts_and_empty_disks_and_other_orders_change_no_byte(seed: int, tmp_path: Path) -> None:
    ours = ranked()
    dice = random.Random(seed)
    runners = released(ours, tmp_path)
    peace = tops(undisturbed(ours, candidates_of(runners, random.Random(1)), tmp_path / "peace"))
    log = candidates_of(runners, dice)
    runner = Runner(RankStage, ours, tmp_path / "rank")
    while runner.next < len(log) or runner.stage.report()["interval"] < LAST:
        runner.feed(log, runner.next + dice.randrange(1, 9))
        runner.commit(dice.randrange(3), now=FAR)
        if dice.random() < 0.4:
            # The store comes back from the changelog, as it was at the last commit.
            state = runner.state()
            runner.store.wipe()
            runner.store.write(list(state.items()), [], [], meta=b"m")
            runner.restart()
    runner.commit(now=FAR)
    assert tops(runner) == peace
    runner.close()


def test_what_waits_is_spilled_and_comes_back(tmp_path: Path) -> None:
    ours = ranked()
    runners = released(ours, tmp_path)
    log = candidates_of(runners, random.Random(1))
    peace = tops(undisturbed(ranked(), log, tmp_path / "peace"))
    # All of partition 0 first: nothing can be ranked, and rows wait.
    by_source = sorted(log, key=lambda value: 0 if _source(value) == 0 else 1)
    runner = Runner(RankStage, ours, tmp_path / "rank")
    runner.stage._max_rows = 2  # type: ignore[attr-defined]
    number = sum(_source(value) == 0 for value in log)
    runner.feed(by_source, number)
    assert runner.commit(now=FAR) == 1
    assert runner.state()
    assert tops(runner) == []
    stalled = runner.stage.stall(0)
    assert stalled is not None and "waits for release 1" in stalled.text  # noqa: PT018
    runner.restart()
    runner.feed(by_source, len(by_source))
    runner.commit(now=FAR)
    assert tops(runner) == peace
    assert not runner.state()
    runner.close()


def _source(value: bytes) -> int:
    if kind_of(value) is Kind.TICK:
        return tick.decode(value).source
    return candidates_module.codec.decode(value).partition


@pytest.mark.parametrize("change", ["lost", "twice", "another configuration"])
def test_candidates_that_are_lost_or_come_twice_are_refused(change: str, tmp_path: Path) -> None:
    ours = ranked()
    log = candidates_of(released(ours, tmp_path), random.Random(1))
    at = next(at for at, value in enumerate(log) if kind_of(value) is Kind.BLOCK)
    other = ranked(limit=4) if change == "another configuration" else ours
    log = (
        log[:at] + log[at + 1 :] if change == "lost" else [*log[:at], log[at], *log[at:]] if change == "twice" else log
    )
    runner = Runner(RankStage, other, tmp_path / "rank")
    said = {"lost": "Kafka has lost", "twice": "count twice", "another configuration": "another configuration"}[change]
    with pytest.raises(Refusal, match=said):
        runner.feed(log, len(log))
    runner.close()


def test_a_stage_leaves_nothing_for_the_collector(tmp_path: Path) -> None:
    ours = ranked()
    log = candidates_of(released(ours, tmp_path), random.Random(1))
    with no_cycles():
        undisturbed(ours, log, tmp_path / "rank")


def test_without_a_ranking_nothing_is_handed_on(tmp_path: Path) -> None:
    [runner, _] = released(services(topics={"bounded_partitions": PARTITIONS}), tmp_path)
    assert runner.to("candidates") == []
    assert "candidates" not in (runner.meta or {})


def test_rows_may_come_in_any_order() -> None:
    release = histogram.TriggerHeader(
        window_start=0, window_end=1, trigger=1, of_triggers=1, strategy="toeplitz", epoch="ab"
    )
    column = histogram.ColumnRows(name="n", estimate=np.array([7, 9, 7, 3], np.int64), std_error=1.0)
    keys = [b'"b"', b'"c"', b'"a"', b'"d"']
    _, rows = histogram.encode_rows(release, keys, [column])
    ranking = RowRanking(order_by="n", descending=True, limit=3)
    for seed in range(5):
        some = random.Random(seed).sample(rows, 4)
        assert first_rows(ranking, some) == [rows[1], rows[2], rows[0]]
    assert first_rows(ranking, []) == []


def test_a_ranking_is_of_the_numbers_that_are_shown() -> None:
    release = histogram.TriggerHeader(
        window_start=0, window_end=1, trigger=1, of_triggers=1, strategy="closing", epoch="ab"
    )
    column = histogram.ColumnRows(
        name="n",
        estimate=np.array([7, 9, 8], np.int64),
        std_error=1.0,
        smoothed=(np.array([20, 0, 5], np.int64), 1.0),
        smoothed_rows=np.array([True, False, True]),
    )
    _, rows = histogram.encode_rows(release, [b'"a"', b'"b"', b'"c"'], [column])
    ranking = RowRanking(order_by="n", descending=True, limit=2, having=(Condition("n", ">", 8),))
    # The third row's estimate would do; the smoothed one, which readers show, does not. Alone, a row has no others to compare with.
    assert first_rows(ranking, rows) == [rows[0], rows[1]]
    assert first_rows(ranking, rows[2:] + rows[1:2]) == [rows[1]]


@pytest.mark.parametrize("seed", range(4))
def test_a_release_partition_that_restarts_hands_on_the_same(seed: int, tmp_path: Path) -> None:
    ours = ranked()
    dice = random.Random(seed)
    log = log_of(rows_of(0), ours.config_digest)
    [peace, _] = released(ours, tmp_path)
    runner = Runner(ReleaseStage, ranked(), tmp_path / "s")
    while runner.next < len(log) or runner.stage.report()["interval"] < LAST:
        runner.feed(log, runner.next + dice.randrange(1, 9))
        runner.commit(dice.randrange(3), now=FAR)
        if dice.random() < 0.4:
            runner.restart()
    assert runner.to("candidates") == peace.to("candidates")
    runner.close()
