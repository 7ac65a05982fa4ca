"""From a sample to recommendations: what one user can move, what is charged, and what is said."""

import math
from collections import Counter
from fractions import Fraction
from random import Random
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import beta as beta_law
from scipy.stats import chisquare

from susurrus.agents.planning import tune
from susurrus.agents.planning.needs import needs_of
from susurrus.agents.planning.sample import WIDE_STEPS, Sample
from susurrus.agents.planning.tune import Answer, choices, questions_of, toml_lines
from susurrus.mechanisms.accounting import mu_of_bounded_range, mu_of_pure
from susurrus.mechanisms.errors import ConfigurationError
from susurrus.mechanisms.exact import discrete_laplace
from susurrus.mechanisms.histogram.registry import build_strategy
from tests.agents.planning.test_needs import sample_of
from tests.agents.planning.test_sample import settings_with
from tests.samples import samples

COLUMNS = [
    {"name": "n", "kind": "users"},
    {"name": "bytes", "kind": "sum", "field": "bytes", "bound": 1000, "grid": 10},
    {"name": "mean", "kind": "mean", "field": "bytes", "bound": 1000, "grid": 10},
]
Records = list[tuple[int, int, int]]
"""(key, hour, value) of one user."""

one_user = st.lists(st.tuples(st.integers(0, 5), st.integers(0, 71), st.integers(0, 10**6)), max_size=8)


def configured(strategy: str = "toeplitz") -> Any:
    return settings_with(
        columns=COLUMNS,
        privacy={"strategy": strategy},
        bounds={"max_records_per_user": 16, "max_records_per_key": 2},
        window={"length": "1d", "trigger_every": "6h"},
    )


def joined(users: list[Records]) -> Sample:
    """The sample of these users; those without records are not in it."""
    present = [sorted(user, key=lambda record: record[1]) for user in users if user]
    rows = [(code, *record) for code, mine in enumerate(present) for record in mine]
    return sample_of([row[:3] for row in rows], [row[3] for row in rows])


@pytest.mark.parametrize("strategy", ["toeplitz", "closing"])
@given(others=st.lists(one_user.filter(bool), min_size=1, max_size=4), mine=one_user, instead=one_user)
def test_one_users_records_move_every_score_by_one_user_at_most(
    strategy: str, others: list[Records], mine: Records, instead: Records
) -> None:
    """Added, removed or replaced, over several windows, keys and values, from the sample on."""
    settings = configured(strategy)
    bounding = build_strategy(settings.plan()).bounding
    asked = questions_of(settings, epsilon=Fraction(1, 2), quantile=Fraction(19, 20))
    here, there = joined([*others, mine]), joined([*others, instead])
    needs = [needs_of(sample, settings, bounding) for sample in (here, there)]
    assert abs(here.users - there.users) <= 1
    for question in asked.quantiles:
        data = [(n.user, n.records) if question.field is None else (n.by, n.sizes[:, question.field]) for n in needs]
        one, two = (question.mechanism.scores(*columns) for columns in data)
        assert max(abs(a - b) for a, b in zip(one, two, strict=True)) <= 1


def test_a_run_costs_what_its_parts_cost_together() -> None:
    questions = questions_of(configured(), epsilon=Fraction(1, 2), quantile=Fraction(19, 20))
    # bytes and mean share their field: it is asked for once.
    assert [asked.setting for asked in questions.quantiles] == ["bounds.max_records_per_user", "bound of bytes, mean"]
    promise = questions.guarantee
    assert promise.epsilon == 0.5
    assert (promise.delta, promise.delta_selection) == (0.0, 0.0)
    assert promise.mu == pytest.approx(math.hypot(mu_of_pure(0.05), *[mu_of_bounded_range(0.225)] * 2), rel=1e-12)


def test_what_is_asked_is_drawn_with_the_given_randomness_and_nothing_else() -> None:
    settings = configured()
    rng = np.random.default_rng(2)
    sample = joined([[(int(key), int(hour), 50) for key, hour in rng.integers(0, 6, (4, 2))] for _ in range(500)])
    questions = questions_of(settings, epsilon=Fraction(1), quantile=Fraction(19, 20))
    first, again, other = (questions.answer(sample, settings, Random(seed).randrange) for seed in (1, 1, 3))
    assert first == again
    assert first.users != other.users
    assert first.users != 500
    exact = questions.answer(sample, settings, None)
    assert (exact.users, exact.users_margin) == (500, 0)
    assert all(answer.misses == 0 and not answer.too_few for answer in exact.answers)


def lower_bound(one: Counter[int], other: Counter[int], runs: int) -> float:
    """Of epsilon, from how often the answers came: Clopper-Pearson over all events "at least k", 99.99 % each."""
    bounds = [0.0]
    for cut in range(min(one), max(other) + 1):
        here, there = (sum(count for value, count in law.items() if value >= cut) for law in (one, other))
        if here and there < runs:
            low, high = beta_law.ppf(5e-5, here, runs - here + 1), beta_law.ppf(1 - 5e-5, there + 1, runs - there)
            bounds.append(math.log(low / high))
    return float(max(bounds))


@pytest.mark.statistical
@pytest.mark.parametrize(("quieter", "holds"), [(1, True), (2, False)])
def test_the_number_of_users_has_the_noise_that_its_part_of_epsilon_asks_for(
    quieter: int, holds: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One user more, against what is charged for this answer; and the whole law of the noise."""
    monkeypatch.setattr(tune, "discrete_laplace", lambda epsilon, below: discrete_laplace(quieter * epsilon, below))
    settings = settings_with(columns=[COLUMNS[0]], bounds={"max_records_per_user": 16})
    strategy = build_strategy(settings.plan())
    monkeypatch.setattr(tune, "build_strategy", lambda plan: strategy)  # it takes longer than all the rest
    questions = questions_of(settings, epsilon=Fraction(10), quantile=Fraction(19, 20))
    promised, size = float(questions.users_epsilon), samples(3_000)
    assert promised == 1.0
    below = Random(11).randrange
    laws = []
    for users in (41, 40):
        sample = joined([[(0, 1, 5)]] * users)
        laws.append(Counter(questions.answer(sample, settings, below).users for _ in range(size)))
    assert (lower_bound(*laws, size) <= promised) is holds
    noise = {value - 40: count for value, count in laws[1].items()}
    cells = range(-5, 6)
    ratio = math.exp(-promised)
    found = [noise.get(z, 0) for z in cells]
    wanted = [size * (1 - ratio) / (1 + ratio) * ratio ** abs(z) for z in cells]
    outside = size - sum(found), size - sum(wanted)
    p_value = float(chisquare([*found, outside[0]], [*wanted, outside[1]]).pvalue)
    assert (p_value > 1e-4) is holds
    assert holds or p_value < 1e-12


def answer(place: int, value: int | None, misses: float = 0.01, settings: Any = None) -> Answer:
    asked = questions_of(settings or configured(), epsilon=Fraction(1), quantile=Fraction(19, 20)).quantiles[place]
    return Answer(question=asked, value=None if value is None else Fraction(value), misses=misses)


def test_the_lines_to_write_are_those_of_answers_that_mean_something() -> None:
    settings = configured()
    lines = list(toml_lines([answer(0, 20), answer(1, 5000)], settings))
    assert "\n".join(lines) == (
        "[bounds]\nmax_records_per_user = 20\n"
        '\n[[columns]]\nname = "bytes"\nbound = 5000\n'
        '\n[[columns]]\nname = "mean"\nbound = 5000'
    )
    assert list(toml_lines([answer(0, 20, misses=0.06), answer(1, None)], settings)) == []


def test_the_noise_of_a_choice_is_that_of_the_configuration_with_it() -> None:
    settings = configured()
    found = choices(answer(0, 20), settings)
    assert [(int(c.value), c.recommended, c.configured) for c in found] == [
        (10, False, False), (15, False, False), (16, False, True), (20, True, False), (30, False, False), (50, False, False),
    ]  # fmt: skip
    [twenty] = [choice.noise for choice in found if choice.recommended]
    there = settings_with(
        columns=COLUMNS,
        privacy={"strategy": "toeplitz"},
        bounds={"max_records_per_user": 20, "max_records_per_key": 2},
        window={"length": "1d", "trigger_every": "6h"},
    )
    strategy: Any = build_strategy(there.plan())
    columns = zip(there.measured_columns, strategy.source, strict=True)
    expected = {column.name: 1.96 * strategy.values[source].std[-1] * column.grid for column, source in columns}
    assert expected.keys() == {"n", "bytes", "mean/count"}
    assert twenty == pytest.approx(expected)
    # Beyond the largest candidate there is nothing to recommend, but what the largest ones cost.
    assert [int(c.value) for c in choices(answer(0, None), settings)] == [16, 2000, 3000, 5000]


def test_what_the_strategy_refuses_is_said() -> None:
    settings = configured("closing")
    assert all(choice.noise for choice in choices(answer(0, None, settings=settings), settings))
    wide = questions_of(settings, epsilon=Fraction(1), quantile=Fraction(19, 20), largest_cap=100_000).quantiles[0]
    refused = choices(Answer(question=wide, value=Fraction(100_000), misses=0.0), settings)
    assert [choice.noise is None for choice in refused if choice.recommended] == [True]


def test_every_bound_that_the_grid_allows_can_be_found() -> None:
    asked = questions_of(configured(), epsilon=Fraction(1), quantile=Fraction(19, 20)).quantiles[1]
    assert (asked.numbers[0], asked.numbers[-1]) == (10, 150_000_000)
    assert asked.mechanism.candidates[0] == WIDE_STEPS
    assert [c * 10 / WIDE_STEPS for c in asked.mechanism.candidates] == [float(n) for n in asked.numbers]


@pytest.mark.parametrize(
    ("epsilon", "cap", "says"), [("1/1000", 10, "--epsilon 0.001"), ("1", 1, "--largest-cap 1: is below")]
)
def test_numbers_that_cannot_be_right_are_refused(epsilon: str, cap: int, says: str) -> None:
    with pytest.raises(ConfigurationError, match=says):
        questions_of(configured(), epsilon=Fraction(epsilon), quantile=Fraction(19, 20), largest_cap=cap)
    assert tune.USERS_SHARE < 1


def test_one_key_for_all_records_leaves_no_cap_to_choose() -> None:
    total = settings_with(input={"key": []}, columns=COLUMNS)
    half = {"epsilon": Fraction(1), "quantile": Fraction(1, 2)}
    asked = questions_of(total, **half)
    assert [question.columns for question in asked.quantiles] == [("bytes", "mean")]
    assert asked.quantiles[0].mechanism.epsilon == Fraction(9, 10)
    with pytest.raises(ConfigurationError, match="there is no cap and no bound to recommend"):
        questions_of(settings_with(input={"key": []}, columns=COLUMNS[:1]), **half)
