"""From how many users on a key appears: the claim against the real steps, on addressed noise that it has never seen."""

import dataclasses

import numpy as np
import pytest

from susurrus.agents.histogram.detectable import detectable_curve, detectable_users
from susurrus.mechanisms.histogram.plan import Column
from susurrus.mechanisms.histogram.registry import STRATEGIES, build_strategy, plan_of
from susurrus.mechanisms.histogram.strategy import Increments, Strategy
from susurrus.mechanisms.histogram.user_lists import ListSums
from susurrus.mechanisms.noise import NoiseSource

TRIGGERS, KEYS, ONE = 12, 1000, 1 << 20


def make(name: str, **changes) -> Strategy:
    constants = {
        "epsilon": 4.0,
        "delta": 1e-6,
        "columns": (Column(name="visits", kind="count"),),
        "max_records": 16,
        **changes,
    }
    return build_strategy(plan_of(strategy=name, triggers=TRIGGERS, **constants))


def published_share(strategy: Strategy, users: int, trigger: int) -> float:
    """Of KEYS keys whose `users` users come steadily up to `trigger`, how many the strategy's own steps publish by then."""
    noise = NoiseSource(b"detectable" * 4, epoch=b"e", config=b"c", pipeline="p").window(0)
    names = [b"%d" % key for key in range(KEYS)]
    weights = strategy.bounding.weights
    come = np.diff(np.rint(np.arange(trigger + 1) * users / trigger).astype(np.int64))
    states, ever = strategy.empty(KEYS), np.zeros(KEYS, np.bool_)
    for number, new in enumerate(come.tolist(), start=1):
        each = np.full(KEYS, new, np.int64)
        lists = None
        if strategy.lists is not None and number == TRIGGERS:
            everyone, none = np.full(KEYS, users, np.int64), np.zeros(KEYS, np.int64)
            lists = ListSums(users=everyone, weight=everyone * ONE, public_weight=none, unit=none)
        increments = Increments(
            users=each,
            weight=each * (ONE if weights is None else int(weights[0, number - 1])),
            sums=np.repeat(each[:, None], len(strategy.plan.columns), axis=1),
            lists=lists,
        )
        step = strategy.step(number, names, states, increments, noise, np.zeros(KEYS, np.bool_))
        states = step.states
        ever |= step.published
    return float(ever.mean())


@pytest.mark.statistical
@pytest.mark.parametrize("name", list(STRATEGIES))
@pytest.mark.parametrize("trigger", [1, 5, TRIGGERS])
def test_a_key_appears_from_so_many_users_on_and_from_fewer_less_often(name, trigger):
    strategy = make(name)
    for probability in (0.5, 0.95):
        users = detectable_users(strategy, trigger, probability)
        # Users are whole and come in whole numbers at each trigger. KEYS keys show a share to within 0.02 or so.
        near = max(3, users // 20)
        assert published_share(strategy, users + near, trigger) > probability
        assert published_share(strategy, users - near, trigger) < probability


def test_several_columns_share_the_budget_so_a_key_needs_more_users():
    alone = make("toeplitz")
    columns = (*alone.plan.columns, Column(name="bytes", kind="sum", bound=100))
    for trigger in (1, TRIGGERS):
        assert detectable_users(make("toeplitz", columns=columns), trigger) > detectable_users(alone, trigger)


@pytest.mark.parametrize("name", list(STRATEGIES))
def test_no_key_appears_below_the_minimum(name):
    # More than minimum_users must have come; the tests themselves stand on top of that.
    curve = detectable_curve(make(name, minimum_users=300), 0.01)
    assert (curve > 300).all()
    assert published_share(make(name, minimum_users=300), 300, TRIGGERS) == 0


def test_the_curve_is_the_same_every_time_and_rises_with_the_probability():
    first, again = (detectable_curve.__wrapped__(make("closing")) for _ in range(2))
    assert first.tolist() == again.tolist()
    assert (detectable_curve(make("closing"), 0.5) < first).all()
    assert detectable_users(make("closing"), TRIGGERS) == first[-1]


def test_a_question_that_has_no_answer_is_refused():
    strategy = make("toeplitz")
    for trigger in (0, TRIGGERS + 1):
        with pytest.raises(ValueError, match=f"trigger={trigger}"):
            detectable_users(strategy, trigger)
    with pytest.raises(ValueError, match="probability=1"):
        detectable_users(strategy, 1, 1.0)
    hidden = build_strategy(dataclasses.replace(strategy.plan, discover=False))
    with pytest.raises(ValueError, match="discover=False"):
        detectable_users(hidden, 1)
