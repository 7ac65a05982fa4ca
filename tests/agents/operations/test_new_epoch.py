"""What a new epoch costs and where it begins, without a broker; doing it is in tests/chaos/test_restored.py."""

from collections.abc import Iterable
from concurrent.futures import Future
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest
from typer.testing import CliRunner

from susurrus.agents.cli.ledger import plan_lines
from susurrus.agents.cli.main import app
from susurrus.agents.histogram import new_beginning
from susurrus.agents.operations import new_epoch as module
from susurrus.agents.operations.epoch_plan import EpochPlan
from susurrus.agents.operations.new_epoch import NewEpoch
from susurrus.agents.pipelines import pipeline_of
from susurrus.agents.runtime.new_beginning import FirstWindow
from susurrus.agents.runtime.services import Services
from susurrus.mechanisms.accounting import delta_gaussian
from susurrus.mechanisms.errors import BudgetExhausted, ConfigurationError, Refusal
from susurrus.topics import charges, ledger
from susurrus.topics.progress import Progress
from tests.agents.released import DAY, EPOCHS, WINDOW, settings

NOW = WINDOW + 3 * DAY + 12 * 3_600_000
TODAY = WINDOW + 3 * DAY
OTHERS = {
    "kafka": {"bootstrap_servers": "localhost:1"},
    "clock": {"kind": "producer"},
    "topics": {"by_user_partitions": 4, "bounded_partitions": 4},
}


class Clients:
    """Topics that exist, a group without members."""

    application = "t.page-views"

    def __init__(
        self,
        *,
        members: Iterable[str] = (),
        partitions: dict[str, int] | None = None,
        log: tuple[int, int] = (0, 7),
        policy: str = "delete",
    ) -> None:
        self._log, self._policy = log, policy
        self._members = [SimpleNamespace(host=f"/{host}") for host in members]
        self._partitions = partitions or {}

    def admin(self) -> Any:
        future: Future[Any] = Future()
        future.set_result(SimpleNamespace(members=self._members))
        return SimpleNamespace(describe_consumer_groups=lambda groups, **_: dict.fromkeys(groups, future))

    def settings_of(self, topic: str) -> dict[str, str]:
        return {"cleanup.policy": self._policy}

    def watermarks(self, topic: str, partition: int) -> tuple[int, int]:
        return self._log

    def partitions(self, topic: str) -> int:
        return self._partitions.get(topic.rpartition(".")[2], 4)


def said(window: int, trigger: int = 4, *, epoch: int = 1, partition: int = 0) -> Progress:
    return Progress(
        window=window, trigger=trigger, of_triggers=4, partition=partition, of_partitions=4, rows=0, epoch=EPOCHS[epoch],
        epoch_number=epoch,
    )  # fmt: skip


def charge(window: int, *, epoch: int = 1, pipeline: str = "t.page-views") -> charges.Charge:
    return charges.Charge(
        raw_topic="raw", window=window, pipeline=pipeline, epoch=EPOCHS[epoch], epsilon=6.0, delta=1e-9, mu=0.9,
        delta_selection=5e-10,
    )  # fmt: skip


@pytest.fixture
def work(monkeypatch: pytest.MonkeyPatch) -> Any:
    def work(
        log: list[Progress],
        charged: list[charges.Charge] | None = None,
        *,
        clients: Clients | None = None,
        number: int = 1,
        first_window: FirstWindow = "next",
        origin: Any = None,
        **sections: Any,
    ) -> NewEpoch:
        def read(*, complete: bool) -> list[charges.Charge]:
            assert complete
            return [charge(p.window, epoch=p.epoch_number) for p in log] if charged is None else charged

        configured = settings(**{**OTHERS, **sections})
        records = {} if not number else {"epoch": ledger.Epoch(epoch=EPOCHS[number], number=number, created=0)}
        common: Any = {
            "settings": configured,
            "clients": clients or Clients(),
            "ledger": SimpleNamespace(
                topic="ledger",
                refresh=lambda **_: None,
                to_read=lambda: ("raw",),
                records=lambda: records,
                charges=SimpleNamespace(topic="c", read=read),
            ),
            "calendar": configured.calendar,
            "config_digest": bytes(32),
            "secret": b"",
        }
        monkeypatch.setattr(new_beginning, "read_progress", lambda clients, topic: enumerate(log))
        return NewEpoch(pipeline_of(configured), Services(**common), first_window=first_window, origin=origin)

    return work


def begins(plan: EpochPlan) -> tuple[int, Any]:
    return plan.first_window, plan.origin


def test_by_default_it_begins_behind_everything_published_and_costs_nothing_twice(work: Any) -> None:
    plan = work([said(TODAY - DAY), said(TODAY, 2), said(TODAY, 3, partition=1)]).plan(NOW)
    assert begins(plan) == (TODAY + DAY, "latest")
    assert (plan.number, plan.again, plan.forgotten, plan.windows_left) == (2, (), (), None)
    assert [(p.window, p.trigger) for p in plan.unfinished] == [(TODAY, 3)]
    lines = " ".join(plan_lines(plan, "page-views"))
    assert "epoch 1 (abababab) ends, epoch 2 begins" in lines
    assert "Left unfinished at the trigger reached so far: 1995-08-04T00:00:00Z (3 of 4)" in lines
    assert "nothing is charged twice" in lines
    # Also where something was published of windows that are still to come: another calendar, another clock.
    assert work([said(TODAY + 5 * DAY, 1)]).plan(NOW).first_window == TODAY + 6 * DAY
    assert begins(work([]).plan(NOW)) == (TODAY + DAY, "latest")


@pytest.mark.parametrize(
    ("kind", "origin"), [("producer", "earliest"), ("broker", TODAY - 60_000)], ids=["producer", "broker"]
)
def test_the_current_window_is_read_again_from_its_beginning_and_charged_again(
    work: Any, kind: str, origin: Any
) -> None:
    """From where its first events may be, by their stamps. Without a time of its own an event is no earlier than its stamp."""
    clock = {"kind": kind, "max_future": "1m"}
    timed = {"topic": "raw", "user": "host", "key": ["url"], "time": "at"}
    made = work([said(TODAY - DAY), said(TODAY, 3)], first_window="current", clock=clock, input=timed)
    plan = made.plan(NOW)
    assert begins(plan) == (TODAY, origin)
    [again] = plan.again
    assert (again.window, again.trigger, again.epochs) == (TODAY, 3, 2)
    guarantee = plan.guarantee
    assert again.spend.mu == pytest.approx((0.9**2 + guarantee.mu**2) ** 0.5)
    assert again.delta == pytest.approx(2e-9)
    epsilon = again.spend.epsilon_total(again.delta)
    assert delta_gaussian(again.spend.mu, epsilon) + again.spend.delta_selection <= again.delta
    lines = " ".join(plan_lines(plan, "page-views"))
    assert "Published a second time, and charged epsilon=6, delta=1e-09" in lines
    assert f"in 2 epochs: epsilon={epsilon:.4g} at delta=2e-09" in lines


def test_where_the_stamp_is_the_time_nothing_before_the_window_is_read_again(work: Any) -> None:
    """By default an event may be minutes ahead of its stamp. Where it has none of its own, records before would be bad input."""
    plan = work([said(TODAY - DAY), said(TODAY, 3)], first_window="current", clock={"kind": "broker"}).plan(NOW)
    assert begins(plan) == (TODAY, TODAY)


def test_every_window_from_the_first_on_is_listed_and_counted_with_all_its_epochs(work: Any) -> None:
    log = [said(TODAY - n * DAY) for n in range(9)] + [said(TODAY - DAY, 2, epoch=2)]
    plan = work(log, first_window=TODAY - 7 * DAY, number=2).plan(NOW)
    assert [a.window for a in plan.again] == [TODAY - n * DAY for n in range(7, -1, -1)]
    assert [a.epochs for a in plan.again] == [2] * 6 + [3, 2]
    assert plan.again[6].trigger == 2  # of the newest epoch, which readers show
    assert (plan.number, begins(plan)[1]) == (3, "earliest")
    assert " and 3 more" in " ".join(plan_lines(plan, "page-views"))


def test_charges_that_the_log_has_lost_are_entered_again(work: Any) -> None:
    log = [said(TODAY - DAY), said(TODAY), said(TODAY, 1, epoch=2)]
    kept = [charge(TODAY, epoch=2), charge(TODAY, pipeline="other")]
    plan = work(log, kept, number=0).plan(NOW)
    assert [(c.window, c.epoch, c.pipeline) for c in plan.forgotten] == [
        (TODAY - DAY, EPOCHS[1], "t.page-views"),
        (TODAY, EPOCHS[1], "t.page-views"),
    ]
    assert {(c.epsilon, c.mu) for c in plan.forgotten} == {(plan.guarantee.epsilon, plan.guarantee.mu)}
    assert (plan.before, plan.number) == ("", 3)  # higher than anything that readers have seen
    lines = " ".join(plan_lines(plan, "page-views"))
    assert "the epoch that the ledger has lost ends, epoch 3 begins" in lines
    assert "The log of charges lacks charged windows: the progress topic shows 2 more" in lines


def test_a_lost_charge_costs_what_other_windows_of_its_epoch_cost(work: Any) -> None:
    """The file may have had a higher epsilon before. Its epoch had one for all windows."""
    dear = msgspec.structs.replace(charge(TODAY - 2 * DAY), epsilon=9.0, mu=1.4)
    plan = work([said(TODAY - 2 * DAY), said(TODAY - DAY), said(TODAY, epoch=2)], [dear], number=2).plan(NOW)
    costs = {c.epoch: (c.epsilon, c.mu) for c in plan.forgotten}
    assert costs == {EPOCHS[1]: (9.0, 1.4), EPOCHS[2]: (plan.guarantee.epsilon, plan.guarantee.mu)}


def test_a_lost_charge_is_for_all_of_time_where_nobody_knows_how_long_its_window_was(work: Any) -> None:
    """A budget that renews would take a week that was published for a day of the new file, and let it go after a day."""
    [known] = work([said(TODAY - DAY)], []).plan(NOW).forgotten
    assert known.extent == (TODAY - DAY, TODAY)
    longer = msgspec.structs.replace(said(TODAY - DAY), of_triggers=28)
    [unknown] = work([longer], []).plan(NOW).forgotten
    assert (unknown.begin, unknown.end) == (None, None)
    [elsewhere] = work([said(TODAY - DAY + 3_600_000)], []).plan(NOW).forgotten
    assert (elsewhere.begin, elsewhere.end) == (None, None)


@pytest.mark.parametrize("length", ["1d", "4d"])
def test_what_the_ledger_knows_of_the_windows_decides_for_its_epoch(work: Any, length: str) -> None:
    """Windows of as many triggers and with the same beginning are not enough where the ledger has the calendar."""
    made = work([said(TODAY)], [])
    before = settings(**{**OTHERS, "window": {"length": length, "trigger_every": "6h" if length == "1d" else "1d"}})
    config = ledger.Config(digest="", fields=before.published_fields())
    records = made._services.ledger.records()
    records["config"] = config
    [charge] = made.plan(NOW).forgotten
    assert (charge.end is None) is (length == "4d")


def test_the_number_is_higher_than_any_that_was_seen_also_where_the_ledger_is_older(work: Any) -> None:
    assert work([said(TODAY, epoch=3)], number=1).plan(NOW).number == 4
    assert work([said(TODAY, epoch=1)], number=3).plan(NOW).number == 4


def test_a_budget_that_does_not_allow_it_forbids_it_before_anything_is_done(work: Any) -> None:
    log = [said(TODAY - DAY), said(TODAY)]
    budget = {"budget": {"epsilon": 12.0, "delta": 1e-8}}
    allowed = work(log, first_window="current", **budget).plan(NOW)
    assert allowed.windows_left is not None
    assert f"The budget allows it, and {allowed.windows_left} more" in " ".join(plan_lines(allowed, "p"))
    assert work(log, **budget).plan(NOW).windows_left == allowed.windows_left + 1
    many = [said(TODAY - n * DAY) for n in range(allowed.windows_left + 2)]
    with pytest.raises(BudgetExhausted, match="would be exceeded"):
        work(many, first_window=TODAY - 40 * DAY, **budget).plan(NOW)
    # What others on the raw topic have charged counts as well.
    others = [charge(TODAY - n * DAY, pipeline="other") for n in range(100)]
    with pytest.raises(BudgetExhausted):
        work(log, [*others, *map(charge, (TODAY - DAY, TODAY))], first_window="current", **budget).plan(NOW)


def test_a_budget_that_renews_forbids_nothing_and_skipped_windows_were_not_published(work: Any) -> None:
    log = [said(TODAY - DAY), said(TODAY, 0)]
    budget = {"budget": {"epsilon": 6.0, "delta": 1e-9, "per": "30d"}}
    plan = work(log, first_window=TODAY - DAY, **budget).plan(NOW)
    assert [again.window for again in plan.again] == [TODAY - DAY]
    assert (plan.renews, plan.windows_left) == (True, None)
    assert "a window that has no room in its period, published before or not, is skipped" in " ".join(
        plan_lines(plan, "p")
    )
    assert not work(log).plan(NOW).renews


def test_charges_that_the_log_has_lost_count_as_if_they_were_there(work: Any) -> None:
    """In the budget, and in what a window that is published again has cost. What was published was paid for or is owed."""
    budget = {"budget": {"epsilon": 25.0, "delta": 1e-8}}
    log = [said(TODAY - 2 * DAY), said(TODAY - DAY), said(TODAY)]
    kept = work(log, first_window="current", **budget).plan(NOW)
    lost = work(log, [], first_window="current", **budget).plan(NOW)
    assert len(lost.forgotten) == 3
    assert not kept.forgotten
    assert lost.windows_left == pytest.approx(kept.windows_left, abs=1)
    assert lost.windows_left < work([], [], **budget).plan(NOW).windows_left - 2
    assert [again.epochs for again in lost.again] == [again.epochs for again in kept.again] == [2]
    assert lost.again[0].spend.mu_squared > 1.5 * lost.guarantee.mu**2
    # A budget that is spent is spent, also where nothing of it is in the log.
    many = [said(TODAY - n * DAY) for n in range(kept.windows_left + 5)]
    with pytest.raises(BudgetExhausted):
        work(many, [], first_window="current", **budget).plan(NOW)


REPLAY = {
    "clock": {"kind": "replay", "until": WINDOW + 5 * DAY},
    "start": {"from": "earliest", "first_window": WINDOW},
}


def test_an_archive_goes_on_behind_the_last_published_window_from_where_it_began(work: Any) -> None:
    log = [said(WINDOW), said(WINDOW + DAY, 2)]
    far = WINDOW + 10_000 * DAY
    assert begins(work(log, **REPLAY).plan(far)) == (WINDOW + 2 * DAY, "earliest")
    assert begins(work(log, first_window="current", **REPLAY).plan(far)) == (WINDOW + DAY, "earliest")
    assert begins(work([], **REPLAY).plan(far)) == (WINDOW, "earliest")
    with pytest.raises(ConfigurationError, match="nothing of the archive is left"):
        work([said(WINDOW + 4 * DAY)], **REPLAY).plan(far)


@pytest.mark.parametrize(
    ("clients", "problem"),
    [
        ({"log": (7, 7)}, r"up to offset=7, and they are deleted, .* nothing is charged: write the archive again"),
        ({"policy": "compact"}, r"cleanup\.policy=compact"),
    ],
    ids=["deleted", "compacted"],
)
def test_an_archive_that_no_worker_would_begin_gets_no_new_epoch(
    work: Any, clients: dict[str, Any], problem: str
) -> None:
    with pytest.raises(Refusal, match=problem):
        work([said(WINDOW)], clients=Clients(**clients), **REPLAY).plan(WINDOW + 10 * DAY)


def test_rows_of_the_new_epochs_first_window_must_outlast_their_writing(work: Any) -> None:
    """What counts is the window that it begins with, not the one that the pipeline once began with."""
    week = {"topics": {**OTHERS["topics"], "retention": "7d"}, **REPLAY}
    now = WINDOW + 9 * DAY
    with pytest.raises(
        Refusal, match=r'^topics\.retention = "7d", but rows of the first window .*set topics\.retention'
    ):
        work([], **week).plan(now)
    assert work([said(WINDOW + DAY)], **week).plan(now).first_window == WINDOW + 2 * DAY
    with pytest.raises(Refusal, match=r"^topics\.retention"):
        work([said(WINDOW + DAY)], first_window="current", **week).plan(now)


def test_what_cannot_be_is_refused_with_the_reason(work: Any) -> None:
    with pytest.raises(ConfigurationError, match="is not the start of a window; use 1995-08-04T00:00:00Z"):
        work([], first_window=NOW).plan(NOW)
    with pytest.raises(ConfigurationError, match="one forged stamp could decide"):
        work([], origin=TODAY)
    assert begins(work([], origin=TODAY, clock={"kind": "broker"}).plan(NOW)) == (TODAY + DAY, TODAY)
    with pytest.raises(Refusal, match=r"has members=2 at 10\.0\.0\.1, 10\.0\.0\.2.*stop every worker"):
        work([], clients=Clients(members=["10.0.0.2", "10.0.0.1"])).plan(NOW)
    with pytest.raises(Refusal, match=r"topic=t\.page-views\.bound-changelog does not exist"):
        work([], clients=Clients(partitions={"bound-changelog": 0})).plan(NOW)
    with pytest.raises(Refusal, match=r"bounded has partitions=3, the configuration says 4: change \[topics\] back"):
        work([], clients=Clients(partitions={"bounded": 3})).plan(NOW)
    stream = {"pipeline": {"name": "p", "kind": "stream"}, "stream": {"bound": 1.0, "epsilon": 1.0}, "privacy": None}
    with pytest.raises(Refusal, match="there are no epochs that are charged"):
        work([], **{**stream, "window": {}, "input": {"topic": "raw"}, "clock": {}})
    with pytest.raises(ConfigurationError, match=r"kafka\.embedded"):
        work([], kafka={"bootstrap_servers": "localhost:1", "embedded": True})


def test_every_mark_and_digest_of_the_old_epoch_is_withdrawn(work: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also those of streams: a key of the old epoch says nothing about values under the new one."""
    made = work([])
    old = [
        ledger.Epoch(epoch=EPOCHS[1], created=0),
        ledger.Started(stage="release", partition=0),
        ledger.Digest(partition=0, window=WINDOW, trigger=1, digest="ab" * 32),
        ledger.PublishedPosition(partition=0, begins=0, position=9, digest="cd" * 32),
    ]
    records = {ledger.key_of(record): record for record in old}
    of_ledger = SimpleNamespace(
        refresh=lambda **_: None,
        to_read=lambda: ("raw",),
        records=lambda: records,
        topic="ledger",
        charges=SimpleNamespace(topic="c", read=lambda **_: []),
        configuration=ledger.Config(digest="00", fields={}),
    )
    written: list[tuple[str, bytes, bytes | None]] = []
    monkeypatch.setattr(made, "_services", replace(made._services, ledger=of_ledger))
    monkeypatch.setattr(made, "_fence", lambda tasks: SimpleNamespace())
    monkeypatch.setattr(made, "_tasks", list)
    monkeypatch.setattr(made, "_ends", dict)
    monkeypatch.setattr(made, "_commit", lambda initializer, rows, ends: written.extend(rows))
    monkeypatch.setattr(made._clients, "topic_id", lambda topic: "raw-1", raising=False)
    monkeypatch.setattr(module, "sources_from", lambda *of: {"sources": (), "offsets": {}})
    made.begin(made.plan(NOW), NOW)
    withdrawn = {key.decode() for topic, key, value in written if topic == "ledger" and value is None}
    assert withdrawn == {"started/release/0", "digest/0/1995-08-01T00:00:00Z/1", "published/0"}


@pytest.mark.parametrize("option", ["--first-window", "--from"])
def test_an_instant_that_is_none_is_told_with_its_option(option: str, tmp_path: Path) -> None:
    config = tmp_path / "pipeline.toml"
    config.write_text(
        '[pipeline]\nname = "p"\n[kafka]\nbootstrap_servers = "localhost:1"\n[input]\ntopic = "raw"\nuser = "u"\nkey = ["k"]\n'
        "[privacy]\nepsilon = 1.0\ndelta = 1e-9\n"
    )
    done = CliRunner().invoke(
        app, ["ledger", "new-epoch", "-c", str(config), option, "yesterday"], env={"SUSURRUS_SECRET": "5a" * 32}
    )
    assert done.exit_code == 2
    assert f"{option} yesterday: write an instant as ISO 8601" in " ".join(done.output.replace("│", " ").split())


def test_two_plans_of_the_same_facts_are_equal_and_another_trigger_makes_them_differ(work: Any) -> None:
    log = [said(TODAY, 2)]
    plan = work(log).plan(NOW)
    assert work(log).plan(NOW) == plan
    assert work([said(TODAY, 3)]).plan(NOW) != plan
    assert replace(plan) == plan
