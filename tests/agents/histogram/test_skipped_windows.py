"""Windows that a budget which renews has no room for: decided once, said in public, and nothing of them is used."""

from collections.abc import Iterable
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from susurrus.agents.histogram.rank import RankStage
from susurrus.agents.histogram.release import ReleaseStage
from susurrus.agents.histogram.services import HistogramServices
from susurrus.agents.runtime.budget import Charges
from susurrus.mechanisms.spend import Spend
from susurrus.topics import charges as charge_codec
from susurrus.topics import histogram, progress, published_keys, rolling, top
from susurrus.topics import ledger as ledger_codec
from susurrus.topics.charges import Charge
from susurrus.topics.wire.packing import Kind, kind_of
from tests.agents.charge_log import ChargeLog
from tests.agents.histogram import test_release_stage
from tests.agents.histogram.test_release_stage import (
    FAR,
    HOUR,
    INTERVALS,
    LATE,
    TRIGGERS,
    WINDOWS,
    lists_of,
    log_of,
    published,
    random_rows,
    said,
    services,
    slow,
)
from tests.agents.stages import EPOCH, WINDOW, MemoryLedger, Runner

LENGTH = INTERVALS * HOUR
STARTS = [WINDOW + n * LENGTH for n in range(WINDOWS + 1)]
"""Of the windows that the log reaches."""


class RenewingLedger(MemoryLedger):
    """With charges in a log of their own, of other pipelines, too, and decisions."""

    def __init__(self, settings: Any, log: ChargeLog) -> None:
        super().__init__(settings, charged=False)
        self.log = log
        clients: Any = log
        self.charges = Charges(settings, clients)

    def is_charged(self, window: int) -> bool:
        return self.charges.include(window, EPOCH)

    def charge_output(self, window: int, guarantee: Any) -> Any:
        return self.charges.output(window, EPOCH, guarantee)

    def decision(self, window: int) -> bool | None:
        value = self.records.get(ledger_codec.decision_key(window))
        found = ledger_codec.decode(ledger_codec.decision_key(window), value)
        return found.begun if isinstance(found, ledger_codec.WindowDecision) else None

    def skipped(self) -> frozenset[int]:
        found = [record for record in self._decoded() if isinstance(record, ledger_codec.WindowDecision)]
        return frozenset(record.window for record in found if not record.begun)


class ChargedRunner(Runner):
    """What is charged is read back."""

    def _apply(self, commit: Any) -> None:
        ledger: Any = self.services.ledger
        for output in commit.outputs:
            if output.topic == ledger.charges.topic:
                ledger.log.rows += [(message["key"], message["value"]) for message in output.messages]
        super()._apply(commit)


def ours(log: ChargeLog, *, windows: int, per: str = "8h", **sections: Any) -> HistogramServices:
    """A pipeline whose budget has room for so many of its windows in any period. Windows are of 4 hours."""
    made: Any = services(**sections)
    one = made.strategy.guarantee
    delta = windows * one.delta
    epsilon = max(one.epsilon, Spend().plus(one, windows).epsilon_total(delta) + 1e-6)
    budget = {"epsilon": epsilon, "delta": delta, "per": per}
    made = services(budget=budget, **sections)
    object.__setattr__(made, "ledger", RenewingLedger(made.settings, log))
    return made


def other(start: int, mu: float, *, length: int = LENGTH) -> Charge:
    """A window of another pipeline on the same topic."""
    return Charge(
        raw_topic="raw", window=start, pipeline="visitors", epoch="other", epsilon=6.0, delta=1e-9, mu=mu,
        delta_selection=0.0, begin=start, end=start + length,
    )  # fmt: skip


run = partial(test_release_stage.run, kind=ChargedRunner)


def begun_and_skipped(runner: Runner) -> tuple[set[int], set[int]]:
    """By what is said in public, window starts."""
    records = [progress.decode(value or b"") for _, _, _, value, _ in runner.to("progress")]
    return {r.window for r in records if not r.skips}, {r.window for r in records if r.skips}


def standing(rows: Iterable[tuple[bytes, bytes | None]]) -> set[int]:
    """The windows of this pipeline whose charges are in the log."""
    found = dict(rows)
    charges = [charge_codec.decode(value) for value in found.values() if value is not None]
    return {charge.window for charge in charges if charge.pipeline == "t.page-views"}


@pytest.mark.parametrize("strategy", ["toeplitz", "closing"])
def test_a_window_without_room_is_skipped_and_the_others_are_published_as_ever(strategy: str, tmp_path: Path) -> None:
    """Eight hours touch three windows of four, and two fit: the third is skipped, the fourth has room again."""
    made = ours(ChargeLog(), windows=2, privacy={"strategy": strategy})
    rows = random_rows(3)
    runner = run(made, log_of(rows, made.config_digest, lists=lists_of(made, 3)), tmp_path / "s")
    assert begun_and_skipped(runner) == ({STARTS[0], STARTS[1], STARTS[3]}, {STARTS[2]})
    everything = {name: row for name, row in slow(made, rows).items() if name[0] != STARTS[2]}
    if strategy == "toeplitz":
        assert published(runner) == published(runner, "latest") == everything
    assert {name[0] for name in published(runner)} == {STARTS[0], STARTS[1]}, "the last has few records yet"
    assert standing(made.ledger.log.rows) == {STARTS[0], STARTS[1], STARTS[3]}  # type: ignore[attr-defined]
    [skip] = [entry for entry in said(runner) if entry[1] == 0]
    assert skip == (STARTS[2], 0, 0)
    assert runner.stage.counters["skipped"] == 1
    assert not any(
        row.window == STARTS[2]
        for _, _, _, value, _ in runner.to("histogram")
        if (row := histogram.decode_row(value or b""))
    )


def test_a_skipped_window_hands_on_the_keys_that_it_was_given(tmp_path: Path) -> None:
    """It publishes nothing from which another list could follow: the third window has the first one's."""
    made = ours(ChargeLog(), windows=1, per="4h", privacy={"strategy": "closing"}, keys={"remember": 6})
    log = log_of(random_rows(3), made.config_digest, lists=lists_of(made, 3))
    runner = run(made, log, tmp_path / "s")
    assert begun_and_skipped(runner)[1] == {STARTS[1], STARTS[3]}
    rows = published(runner)
    # The first window has no list, so all its rows are shown.
    handed_on = {
        key
        for (start, trigger, key), row in rows.items()
        if (start, trigger, row[0] >= 6) == (STARTS[0], TRIGGERS, True)
    }
    assert len(handed_on) > 3
    assert made.published_keys is not None
    told = [
        (block.interval, start, key)
        for *_, value, _ in runner.to("published-keys")
        if kind_of(value or b"") is Kind.BLOCK
        for block in [published_keys.decode(value or b"")]
        for start, key in zip(block.window.tolist(), block.keys, strict=True)
    ]
    for window in (1, 2):  # the list is written again, for the window behind the skipped one
        last = window * INTERVALS + LATE - 1
        assert {key for interval, start, key in told if interval <= last and start == STARTS[window]} >= handed_on
    assert {key for _, start, key in told if start == STARTS[1]} == handed_on


@pytest.mark.parametrize("strategy", ["toeplitz", "closing", "closing, remembers"])
@pytest.mark.parametrize("seed", range(6))
def test_a_restart_after_any_commit_decides_the_same_and_publishes_the_same_bytes(
    seed: int, strategy: str, tmp_path: Path
) -> None:
    rows, runs = random_rows(seed), []
    sections: dict[str, Any] = {"privacy": {"strategy": strategy.partition(",")[0]}}
    if strategy.endswith("remembers"):
        sections["keys"] = {"remember": 1}
    for number, choice in enumerate((None, seed)):
        made = ours(ChargeLog(), windows=1 + seed % 2, **sections)
        log = log_of(rows, made.config_digest, seed, lists=lists_of(made, seed))
        runs.append(run(made, log, tmp_path / str(number), seed=choice))
        skipped = begun_and_skipped(runs[-1])[1]
        assert skipped
        assert skipped == made.ledger.skipped()
    undisturbed, disturbed = runs
    for topic in ("histogram", "latest", "progress", "ledger", "published-keys"):
        assert disturbed.to(topic) == undisturbed.to(topic)
    assert disturbed.services.ledger.log.rows == undisturbed.services.ledger.log.rows  # type: ignore[attr-defined]


def test_a_decision_holds_for_a_new_owner_though_the_log_looks_otherwise_by_then(tmp_path: Path) -> None:
    """Between the decision and the window's first release another pipeline charges; a lost disk changes nothing either."""
    made = ours(ChargeLog(), windows=1, per="4h")
    log = log_of(random_rows(3), made.config_digest)
    runner = ChargedRunner(ReleaseStage, made, tmp_path / "s")
    ledger: Any = made.ledger
    runner.feed(log, len(log))
    runner.commit(2, now=FAR)  # the first window's charge, and its decision
    assert ledger.decision(STARTS[0]) is True
    assert not runner.to("histogram"), "nothing is published before that is durable"
    ledger.log.rows.append(charge_codec.encode(other(STARTS[0], 3.0)))
    runner.restart(empty=True)
    runner.feed(log, len(log))
    runner.commit(now=FAR)
    runner.close()
    begun, skipped = begun_and_skipped(runner)
    assert STARTS[0] in begun
    assert STARTS[1] in skipped, "and the charge of the other counts for the windows after it"


def test_of_two_pipelines_that_charge_at_once_the_log_decides_and_the_loser_withdraws(tmp_path: Path) -> None:
    made = ours(ChargeLog(), windows=1, per="4h")
    log = log_of(random_rows(3), made.config_digest)
    runner = ChargedRunner(ReleaseStage, made, tmp_path / "s")
    ledger: Any = made.ledger
    runner.feed(log, len(log))
    ledger.log.rows.append(charge_codec.encode(other(STARTS[0], 3.0)))
    ledger.log.shown = 0  # the other one's transaction is still open, so this one seems to have room
    runner.commit(1, now=FAR)
    assert standing(ledger.log.rows) == {STARTS[0]}
    assert runner.commit(1, now=FAR) == 0, "what it does not see yet, it does not judge"
    assert "open transaction" in runner.stage.stall(FAR).text
    ledger.log.shown = None
    runner.commit(1, now=FAR)
    assert ledger.decision(STARTS[0]) is False
    assert STARTS[0] not in standing(ledger.log.rows), "what is not published is not charged"
    runner.commit(now=FAR)
    runner.close()
    assert STARTS[0] in begun_and_skipped(runner)[1]
    assert not any(row[0] == STARTS[0] for row in published(runner))


def test_the_others_wait_for_the_decision_and_obey_it(tmp_path: Path) -> None:
    made = ours(ChargeLog([other(STARTS[0], 3.0)]), windows=1, per="4h", topics={"bounded_partitions": 2})
    ledger: Any = made.ledger
    runner = ChargedRunner(ReleaseStage, made, tmp_path / "1", partition=1)
    log = log_of(random_rows(3), made.config_digest)
    runner.feed(log, len(log))
    assert runner.commit(now=FAR) == 0
    assert "waiting for release-0" in runner.stage.stall(FAR).text
    key, value = ledger_codec.encode(ledger_codec.WindowDecision(window=STARTS[0], begun=False, epoch=EPOCH))
    ledger.records[key] = value
    assert runner.commit(now=FAR) > 0
    assert not any(row[0] == STARTS[0] for row in published(runner))
    assert STARTS[0] not in begun_and_skipped(runner)[0]
    runner.close()


@pytest.mark.parametrize("added", [False, True], ids=["the same topics", "a topic is added"])
def test_a_window_that_began_without_a_period_goes_on_when_the_budget_begins_to_renew(
    added: bool, tmp_path: Path
) -> None:
    """What is published already cannot be skipped, and its charge is never withdrawn."""
    log = ChargeLog()
    made = ours(log, windows=1, per="4h")
    object.__setattr__(made.settings.budget, "per", None)
    object.__setattr__(made.settings.budget, "delta", 0.5)
    records = log_of(random_rows(3), made.config_digest)
    runner = ChargedRunner(ReleaseStage, made, tmp_path / "s")
    runner.feed(records, len(records))
    runner.commit(3, now=FAR)
    assert {name[0] for name in said(runner)} == {STARTS[0]}
    log.rows.insert(0, charge_codec.encode(other(STARTS[0], 3.0)))
    again = ours(log, windows=1, per="4h")
    ledger: Any = again.ledger
    ledger.records = made.ledger.records  # type: ignore[attr-defined]
    if added:  # and nothing of it is charged yet: the charge is there on one of two topics
        clients: Any = log
        ledger.charges = Charges(again.settings, clients, lambda: ("raw", "added"))
    runner.services = again
    runner.restart()
    runner.feed(records, len(records))
    runner.commit(now=FAR)
    runner.close()
    assert (STARTS[0], TRIGGERS) in {name[:2] for name in said(runner)}
    assert STARTS[0] in standing(log.rows)


def test_a_skipped_window_stays_skipped_when_the_budget_renews_no_more(tmp_path: Path) -> None:
    log = ChargeLog([other(STARTS[0], 3.0)])
    made = ours(log, windows=1, per="4h")
    records = log_of(random_rows(3), made.config_digest)
    runner = ChargedRunner(ReleaseStage, made, tmp_path / "s")
    runner.feed(records, len(records))
    runner.commit(2, now=FAR)
    assert made.ledger.decision(STARTS[0]) is False
    object.__setattr__(made.settings.budget, "per", None)
    object.__setattr__(made.settings.budget, "delta", 0.5)
    runner.restart()
    runner.feed(records, len(records))
    runner.commit(now=FAR)
    runner.close()
    assert STARTS[0] not in begun_and_skipped(runner)[0]
    assert STARTS[1] in begun_and_skipped(runner)[0]


def test_the_ledger_forgets_decisions_of_windows_that_are_long_over(tmp_path: Path, monkeypatch: Any) -> None:
    monkeypatch.setattr("susurrus.agents.runtime.standing._DECISIONS_KEPT_WINDOWS", 1)
    made = ours(ChargeLog(), windows=4)
    runner = run(made, log_of(random_rows(3), made.config_digest), tmp_path / "s")
    ledger: Any = made.ledger
    kept = [start for start in STARTS if ledger.records.get(ledger_codec.decision_key(start))]
    assert kept == STARTS[-2:], "those that may be open stay"
    assert len(runner.commits) > 4
    again = ours(ChargeLog(), windows=1)
    run(again, log_of(random_rows(3), again.config_digest), tmp_path / "t")
    assert again.ledger.skipped() == {STARTS[1], STARTS[2]}, "and what was skipped is never forgotten"


def test_a_window_that_is_skipped_is_told_once_in_the_log(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    made = ours(ChargeLog(), windows=2)
    with caplog.at_level("WARNING"):
        run(made, log_of(random_rows(3), made.config_digest), tmp_path / "s", seed=4)
    [told] = [record.getMessage() for record in caplog.records if "is skipped" in record.getMessage()]
    assert "window 1995-08-01T08:00:00Z is skipped: budget: epsilon=" in told
    assert "per=8h has no room for it" in told
    assert "the window of 1995-08-01T12:00:00Z is the next that begins" in told


def test_a_window_that_is_skipped_has_no_ranking(tmp_path: Path) -> None:
    """With an empty one, readers would take the window for published."""
    made = ours(ChargeLog(), windows=2, top={"order_by": "visits", "limit": 3})
    released = run(made, log_of(random_rows(3), made.config_digest), tmp_path / "release")
    log = [value for _, _, _, value, _ in released.to("candidates") if value is not None]
    runner = Runner(RankStage, made, tmp_path / "rank")
    runner.feed(log, len(log))
    runner.commit(now=FAR)
    runner.close()
    rankings = [top.decode(value or b"") for _, _, _, value, _ in runner.to("top")]
    assert {ranking.window for ranking in rankings} == {STARTS[0], STARTS[1], STARTS[3]}


def test_a_window_that_was_skipped_has_no_ranking_either_where_the_budget_renews_no_more(tmp_path: Path) -> None:
    made = ours(ChargeLog(), windows=2, top={"order_by": "visits", "limit": 3})
    released = run(made, log_of(random_rows(3), made.config_digest), tmp_path / "release")
    log = [value for _, _, _, value, _ in released.to("candidates") if value is not None]
    object.__setattr__(made.settings.budget, "per", None)
    runner = Runner(RankStage, made, tmp_path / "rank")
    runner.feed(log, len(log))
    runner.commit(now=FAR)
    runner.close()
    assert STARTS[2] not in {top.decode(value or b"").window for _, _, _, value, _ in runner.to("top")}


def test_a_topic_that_was_added_while_a_window_waits_for_its_charge_does_not_count_it_twice(tmp_path: Path) -> None:
    """Route charges the open windows on the new topic, this one, too, before release has charged it anywhere."""
    for windows, begins in ((1, True), (0, False)):
        others = [] if begins else [other(STARTS[0], 3.0)]
        made = ours(ChargeLog(others), windows=1, per="4h")
        ledger: Any = made.ledger
        ledger.charges = Charges(made.settings, ledger.log, lambda: ("raw", "added"))
        early = ledger.charges.output(STARTS[0], EPOCH, made.strategy.guarantee, ["added"])
        ledger.log.rows += [(message["key"], message["value"]) for message in early.messages]
        runner = run(made, log_of(random_rows(3), made.config_digest), tmp_path / str(windows))
        assert (STARTS[0] in begun_and_skipped(runner)[0]) is begins
        assert STARTS[0] in standing(ledger.log.rows), "and a charge that is older than the decision is never withdrawn"


def test_the_rolling_view_behind_a_skipped_window_begins_with_the_window(tmp_path: Path) -> None:
    """Of the window before nothing is published, so its rows say that they are counted from their own window's begin."""
    made = ours(ChargeLog(), windows=2, window={"rolling": True})
    rows = [*random_rows(3), *((0, 3 * INTERVALS, 3, b'"k%d"' % key, 900, 5) for key in range(3))]
    runner = run(made, log_of(rows, made.config_digest), tmp_path / "s")
    parts = list(rolling.decode_rows([value for _, _, _, value, _ in runner.to("rolling") if value is not None]))
    since: dict[int, set[int]] = {}
    for part in parts:
        since.setdefault(part.release.window_start, set()).update(part.counted_from.tolist())
    assert since.keys() == {STARTS[0], STARTS[1], STARTS[3]}
    assert min(since[STARTS[1]]) < STARTS[1], "with the rest of the window before"
    assert since[STARTS[3]] == {STARTS[3]}
