"""Which charges count before a window, without a broker: every one on the raw topic, whoever made it and in which epoch."""

from collections.abc import Callable, Iterable
from typing import Any

import pytest
from dp_accounting import GaussianDpEvent
from dp_accounting.pld import PLDAccountant
from hypothesis import given
from hypothesis import settings as tried
from hypothesis import strategies as st
from msgspec import structs

from susurrus.agents.planning.charging import ChargingAccount
from susurrus.agents.runtime import budget as module
from susurrus.agents.runtime.budget import Charges, charge_of
from susurrus.mechanisms.calendar import WindowStart
from susurrus.mechanisms.errors import BudgetExhausted
from susurrus.mechanisms.guarantee import Guarantee
from susurrus.mechanisms.spend import Budget, Spend
from susurrus.topics.charges import Charge, encode
from tests.agents.charge_log import ChargeLog
from tests.agents.released import DAY, settings

BUDGET = {"epsilon": 6.5, "delta": 1e-6}
MU = 0.9
FITTING = 2
"""Windows of this mu within the budget; dp-accounting says so below."""


def charge(
    window: int, pipeline: str = "t.page-views", epoch: str = "now", *, raw: str = "raw", mu: float = MU
) -> Charge:
    return Charge(
        raw_topic=raw, window=window * DAY, pipeline=pipeline, epoch=epoch, epsilon=6.0, delta=2e-9, mu=mu,
        delta_selection=1e-9,
    )  # fmt: skip


def charges_of(log: Iterable[Charge], **changes: Any) -> Charges:
    clients: Any = ChargeLog(list(log), **changes)
    return Charges(settings(budget=BUDGET), clients)


def fits(log: Iterable[Charge], window: int, epoch: str = "now") -> bool:
    try:
        assert charges_of(log).include(window * DAY, epoch)
    except BudgetExhausted:
        return False
    return True


def delta_of(charges: Iterable[Charge]) -> float:
    """At the budget's epsilon, by another library."""
    accountant = PLDAccountant()
    failures = 0.0
    for one in charges:
        accountant.compose(GaussianDpEvent(1 / one.mu))
        failures += one.delta_selection
    return float(accountant.get_delta(BUDGET["epsilon"])) + failures


def test_the_budget_of_these_tests_has_room_for_two_windows() -> None:
    windows = [charge(day) for day in range(3)]
    assert delta_of(windows[:FITTING]) < BUDGET["delta"] < delta_of(windows)


BEFORE = {
    "own windows": [charge(0), charge(1)],
    "own earlier epochs": [charge(0, epoch="first"), charge(1, epoch="second")],
    "the same window in earlier epochs": [charge(2, epoch="first"), charge(2, epoch="second")],
    "other pipelines": [charge(0, "visitors", "other"), charge(1, "sales", "another")],
    "its own name under other prefixes": [charge(0, "u.page-views"), charge(2, "u.page-views")],
    "other pipelines in the same window": [charge(2, "visitors", "other"), charge(2, "sales", "another")],
    "an epoch of the same name elsewhere": [charge(0, "visitors", "now"), charge(2, "sales", "now")],
    "commands": [charge(2, "t.page-views/tune", "run-1"), charge(2, "t.page-views/tune", "run-2")],
    "commands of others": [charge(1, "sales/tune", "run-1"), charge(2, "visitors/tune", "run-1")],
    "some of each": [charge(1, "sales"), charge(2, epoch="first")],
}


@pytest.mark.parametrize("who", BEFORE)
def test_every_earlier_charge_on_the_raw_topic_takes_its_part(who: str) -> None:
    before, own = BEFORE[who], charge(2)
    assert fits([own], 2)
    assert fits([before[0], own], 2), "there is room for one of them"
    assert not fits([*before, own], 2), "and none for both"
    assert fits([before[0], own, before[1]], 2), "what comes later is later's trouble"
    elsewhere = [charge(one.window // DAY, one.pipeline, one.epoch, raw="elsewhere") for one in before]
    assert fits([*elsewhere, own], 2), "other raw topics have other budgets"


LOGS = st.lists(
    st.builds(
        charge,
        st.integers(0, 3),
        st.sampled_from(["t.page-views", "t.page-views", "other.page-views", "t.page-views/tune"]),
        st.sampled_from(["now", "first", "second"]),
        raw=st.sampled_from(["raw", "raw", "raw", "elsewhere"]),
        mu=st.sampled_from([0.6, 0.9, 1.2]),
    ),
    min_size=1,
    max_size=8,
)


@given(log=LOGS, window=st.integers(0, 3), late=st.booleans())
@tried(max_examples=200, deadline=None)
def test_a_window_is_charged_once_and_counts_with_everything_before_it(
    log: list[Charge], window: int, late: bool
) -> None:
    """Against a loop over the log: the first record of a key counts, also where a later one says less."""
    if late:
        log = [*log, charge(window)]
    seen: dict[bytes, Charge] = {}
    for one in log:
        if encode(one)[0] not in seen and one.raw_topic == "raw":
            seen[encode(one)[0]] = one
    here = [charge(window)]
    counted = list(seen.values())
    place = next((n for n, one in enumerate(counted) if encode(one)[0] == encode(here[0])[0]), None)
    if place is None:
        assert not charges_of(log).include(window * DAY, "now")
        return
    spent = sum(one.mu**2 for one in counted[: place + 1])
    failures = sum(one.delta_selection for one in counted[: place + 1])
    known = charges_of(log)
    assert known.read(complete=True) == counted
    allowed = Budget(**BUDGET).allows(Spend(spent * (1 + 1e-12), failures))
    assert fits(log, window) is allowed


def test_the_log_is_read_on_from_where_it_was_read() -> None:
    log = ChargeLog([charge(0)], shown=1)
    clients: Any = log
    charges = Charges(settings(budget=BUDGET), clients)
    assert len(charges.read(complete=False)) == 1
    log.rows += [encode(charge(day)) for day in (1, 2)]
    assert len(charges.read(complete=False)) == 1, "a hasty look sees no more"
    assert [one.window for one in charges.read(complete=True)] == [0, DAY, 2 * DAY]
    assert charges.include(DAY, "now")
    with pytest.raises(BudgetExhausted):
        charges.include(2 * DAY, "now")


def own_only(charges: list[Charge]) -> list[Charge]:
    return [one for one in charges if one.pipeline == "t.page-views"]


def without_earlier_epochs(charges: list[Charge]) -> list[Charge]:
    return [one for one in charges if one.pipeline != "t.page-views" or one.epoch == "now"]


def windows_only(charges: list[Charge]) -> list[Charge]:
    return [one for one in charges if "/" not in one.pipeline]


@pytest.mark.parametrize(
    ("forgets", "noticed"),
    [
        (
            own_only,
            {
                "other pipelines",
                "other pipelines in the same window",
                "an epoch of the same name elsewhere",
                "its own name under other prefixes",
            },
        ),
        (without_earlier_epochs, {"own earlier epochs", "the same window in earlier epochs"}),
        (windows_only, {"commands", "commands of others"}),
    ],
)
def test_a_sum_that_forgets_some_of_them_lets_a_window_through(
    forgets: Callable[[list[Charge]], list[Charge]], noticed: set[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The planted defects: each of the cases above shows what it is made for."""
    whole = module.spend_of
    monkeypatch.setattr(module, "spend_of", lambda charges: whole(forgets(list(charges))))
    shown = {who for who, before in BEFORE.items() if fits([*before, charge(2)], 2)}
    assert noticed <= shown
    assert "own windows" not in shown


# ---- commands --------------------------------------------------------------------------------------------------------

RUN = Guarantee(epsilon=6.0, delta=0.0, mu=MU, delta_gaussian=0.0, delta_selection=0.0)


def account_of(log: ChargeLog, name: str = "page-views") -> ChargingAccount:
    clients: Any = log
    configured = settings(budget=BUDGET, pipeline={"name": name, "prefix": "t"})
    return ChargingAccount(configured, clients, "tune")


@pytest.mark.parametrize("who", BEFORE)
def test_a_command_is_refused_by_the_same_charges_and_then_writes_nothing(who: str) -> None:
    account_of(ChargeLog(BEFORE[who][:1])).charge(WindowStart(0), RUN)
    log = ChargeLog(BEFORE[who])
    with pytest.raises(BudgetExhausted, match="nothing was charged"):
        account_of(log).charge(WindowStart(0), RUN)
    assert len(log.rows) == 2


def test_a_command_is_charged_once_for_each_run_and_what_came_first_counts() -> None:
    log = ChargeLog()
    account = account_of(log)
    runs = [account.charge(WindowStart(0), RUN) for _ in range(FITTING)]
    assert len({*runs}) == len({key for key, _ in log.rows}) == len(log.rows) == FITTING
    assert account.spent().mu_squared == pytest.approx(FITTING * MU**2)
    overtaken = ChargeLog([charge(0, "sales")])
    overtaken.before_the_next = lambda: charge(1, "visitors")
    with pytest.raises(BudgetExhausted, match="another charge came first; this one counts"):
        account_of(overtaken).charge(WindowStart(0), RUN)
    assert len(overtaken.rows) == 3


@pytest.mark.parametrize("epoch", ["now", "first"])
def test_what_a_window_is_charged_is_the_whole_guarantee_under_its_own_name(epoch: str) -> None:
    promise = Guarantee(epsilon=1.5, delta=3 * 2.0**-20, mu=0.4, delta_gaussian=2.0**-20, delta_selection=2.0**-19)
    clients: Any = ChargeLog()
    configured = settings(budget=BUDGET)
    written = charge_of(configured, "raw", 5 * DAY, epoch, promise)
    assert (written.raw_topic, written.pipeline, written.window, written.epoch) == (
        "raw",
        "t.page-views",
        5 * DAY,
        epoch,
    )
    assert module.guarantee_of(written) == promise
    output = Charges(configured, clients).output(5 * DAY, epoch, promise)
    assert [(row["key"], row["value"]) for row in output.messages] == [encode(written)]


def both(log: Iterable[Charge]) -> Charges:
    """The charges as a pipeline over the topics a and b sees them."""
    clients: Any = ChargeLog(list(log))
    source = {"topics": ["a", "b"], "user": "host", "key": ["url"]}
    return Charges(settings(budget=BUDGET, input=source), clients)


def test_a_pipeline_over_two_topics_is_charged_on_each_and_goes_on_when_both_charges_can_be_read() -> None:
    promise = Guarantee(epsilon=1.5, delta=2e-9, mu=MU, delta_gaussian=1e-9, delta_selection=1e-9)
    output = both([]).output(2 * DAY, "now", promise)
    assert [row["key"].decode().split("/")[1] for row in output.messages] == ["a", "b"]
    on_a, on_b = charge(2, raw="a"), charge(2, raw="b")
    assert not both([on_a]).include(2 * DAY, "now")
    assert not both([on_b, charge(2, "others", raw="a")]).include(2 * DAY, "now")
    assert both([on_a, on_b]).include(2 * DAY, "now")


def test_a_window_that_was_charged_on_two_topics_counts_once_and_what_others_charged_on_either_counts() -> None:
    once = [charge(0, raw="a"), charge(0, raw="b"), charge(1, raw="a"), charge(1, raw="b")]
    assert len(both(once).read(complete=True)) == 2
    assert both(once).include(DAY, "now")  # two windows fit
    with pytest.raises(
        BudgetExhausted
    ):  # counted for a user of both topics: one window of each other pipeline, and this one
        both([charge(0, "on-a", raw="a"), charge(0, "on-b", raw="b"), *once[2:]]).include(DAY, "now")
    elsewhere = [charge(0, "on-c", raw="c"), charge(0, "on-a", raw="a"), *once[2:]]
    assert both(elsewhere).include(DAY, "now")


def test_of_a_pipeline_over_two_topics_and_one_over_either_that_charge_at_once_one_sees_the_other() -> None:
    """The other one's charge lies between those on a and b. On b there is room for two, and it has been let through."""
    sales, others = charge(0, "sales", raw="b"), charge(2, "others", raw="b")
    log = [sales, charge(2, raw="a"), others, charge(2, raw="b")]
    clients: Any = ChargeLog(log)
    source = {"topic": "b", "user": "host", "key": ["url"]}
    other = settings(budget=BUDGET, input=source, pipeline={"name": "others", "prefix": "t"})
    clients.rows = [encode(structs.replace(one, pipeline="t.others") if one is others else one) for one in log]
    assert Charges(other, clients).include(2 * DAY, "now")
    with pytest.raises(BudgetExhausted):
        both(log).include(2 * DAY, "now")
    assert both([sales, charge(2, raw="a"), charge(2, raw="b"), others]).include(2 * DAY, "now")


def test_a_command_over_two_topics_is_judged_by_all_that_is_before_its_last_charge() -> None:
    log: Any = ChargeLog([charge(0, "sales", raw="b")])
    others = iter([charge(0, "visitors", raw="elsewhere"), charge(2, "others", raw="b")])
    log.before_the_next = lambda: next(others)
    configured = settings(budget=BUDGET, input={"topics": ["a", "b"], "user": "host", "key": ["url"]})
    account = ChargingAccount(configured, log, "tune")
    account.topics = ("a", "b")
    with pytest.raises(BudgetExhausted, match="another charge came first; this one counts"):
        account.charge(WindowStart(2 * DAY), RUN)
    assert len(log.rows) == 5


# ---- a budget that renews --------------------------------------------------------------------------------------------


def renewing(log: ChargeLog) -> ChargingAccount:
    clients: Any = log
    configured = settings(budget={**BUDGET, "per": "30d"}, pipeline={"name": "page-views", "prefix": "t"})
    return ChargingAccount(configured, clients, "tune")


def of_day(number: int, pipeline: str = "t.page-views") -> Charge:
    return structs.replace(charge(number, pipeline), begin=number * DAY, end=(number + 1) * DAY)


def test_a_command_pays_in_the_periods_that_touch_what_it_looked_at() -> None:
    full = [of_day(0), of_day(1)]
    with pytest.raises(BudgetExhausted, match=r"per=30d has no room for this run, .*nothing was charged"):
        renewing(ChargeLog(full)).charge(WindowStart(5 * DAY), RUN, (5 * DAY, 6 * DAY))
    log = ChargeLog(full)
    renewing(log).charge(WindowStart(40 * DAY), RUN, (40 * DAY, 41 * DAY))
    assert len(log.rows) == 3
    with pytest.raises(BudgetExhausted, match="nothing was charged"):
        renewing(ChargeLog(full)).charge(WindowStart(40 * DAY), RUN)  # of a file that may be about any time
    with pytest.raises(BudgetExhausted, match="nothing was charged"):
        renewing(ChargeLog(full)).charge(WindowStart(40 * DAY), RUN, (-(10**15), 40 * DAY))
    overtaken = ChargeLog([of_day(0)])
    overtaken.before_the_next = lambda: of_day(3, "u.page-views")
    with pytest.raises(BudgetExhausted, match="another charge came first; this one counts"):
        renewing(overtaken).charge(WindowStart(5 * DAY), RUN, (5 * DAY, 6 * DAY))


def test_a_charge_is_judged_by_all_that_is_before_the_last_of_its_records() -> None:
    """Of two pipelines over two topics, one at least sees the other, however their records lie."""

    def at(raw: str, name: str) -> Charge:
        return structs.replace(charge(2, name, raw=raw), begin=2 * DAY, end=3 * DAY)

    ours, theirs = ([at(raw, name) for raw in "ab"] for name in ("t.page-views", "u.page-views"))
    for order in ([0, 0, 1, 1], [0, 1, 0, 1], [0, 1, 1, 0]):
        left, right = list(ours), list(theirs)
        log = [(left, right)[which].pop(0) for which in order]
        clients: Any = ChargeLog(log)
        source = {"topics": ["a", "b"], "user": "host", "key": ["url"]}
        seen = 0
        for prefix in "tu":
            configured = settings(budget=BUDGET, input=source, pipeline={"name": "page-views", "prefix": prefix})
            found = Charges(configured, clients).before(2 * DAY, "now")
            assert found is not None
            seen += len(found[0])
        assert seen >= 1
    assert Charges(settings(budget=BUDGET, input=source), clients).before(3 * DAY, "now") is None


def test_a_charge_that_was_withdrawn_is_none() -> None:
    log = ChargeLog([of_day(0), of_day(1)])
    clients: Any = log
    charges = Charges(settings(budget=BUDGET), clients)
    assert len(charges.read(complete=True)) == 2
    output = charges.withdrawal(DAY, "now")
    log.rows += [(row["key"], row["value"]) for row in output.messages]
    assert [one.window for one in charges.read(complete=True)] == [0]
    assert [one.window for one in Charges(settings(budget=BUDGET), clients).read(complete=True)] == [0]
