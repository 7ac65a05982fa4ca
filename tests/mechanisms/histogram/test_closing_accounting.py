"""What `closing` costs, recomputed from `describe()` by other means than the code's: fractions, and Gaussian tails of 60 digits.

The second half does so over the range of parameters that an operator may choose: each plan is built, or refused with advice.
"""

import math
from collections.abc import Iterator
from fractions import Fraction
from itertools import product
from typing import Any

import mpmath
import numpy as np
import pytest

from susurrus.mechanisms.errors import ConfigurationError
from susurrus.mechanisms.histogram import closing_parameters
from susurrus.mechanisms.histogram.bounding import MAX_LISTED_KEYS, UserKeys
from susurrus.mechanisms.histogram.cells import Cells
from susurrus.mechanisms.histogram.plan import Column
from susurrus.mechanisms.histogram.registry import build_strategy
from tests.mechanisms.histogram.closing_cases import (
    ONE,
    PAID,
    USERS,
    VISITS,
    Filter,
    closing,
    column_squares,
    failures_at,
    plan,
)
from tests.reference import NO_LAST_LOOK

PLANS = {
    "defaults": plan(),
    "one record": plan(max_records=1),
    "few keys": plan(max_records=3, keys=2, ranked_keys=2, triggers=5),
    "many keys": plan(max_records=100, keys=64, discovery_share=0.2, unknown_share=0.5, public_share=0.2),
    "gate": plan((USERS,), max_records=20, minimum_users=5, delta=1e-9, epsilon=6.0),
    "columns": plan((USERS, PAID), max_records=20, max_records_per_key=3, minimum_users=2, lag=2),
    "loose": plan(epsilon=8.0, delta=0.4, keys=1, ranked_keys=1),
    "unequal delta": plan(gaussian_delta_fraction=0.9, unknown_share=0.01, public_share=0.01),
    "no last look": plan(discovery_share=0.5, **NO_LAST_LOOK),
    "no last look, sum only": plan((PAID,), max_records=10, max_records_per_key=2, ranked_keys=20, **NO_LAST_LOOK),
}


@pytest.fixture(params=PLANS.values(), ids=PLANS.keys(), scope="module")
def strategy(request: pytest.FixtureRequest) -> Any:
    return build_strategy(request.param)


def rank_cost(strategy: Any, ranks: int) -> Fraction:
    """Squared shift of the selection statistic by a user's first ranks, each at its worst trigger, over sigma^2."""
    columns = column_squares(strategy.selector.factorization)
    rows = strategy.bounding.weights.tolist()[:ranks]
    squares = [max(Fraction(w, ONE) ** 2 * c for w, c in zip(row, columns, strict=True)) for row in rows]
    return sum(squares, Fraction(0)) / Fraction(strategy.selector.sigma) ** 2


def value_cost(strategy: Any) -> Fraction:
    """The costliest admissible user by the definition: all of max_records at the first trigger, one for each key and full size."""
    cost = Fraction(0)
    for value in strategy.values:
        bound = max(
            column.bound
            for column, source in zip(strategy.plan.columns, strategy.source, strict=True)
            if strategy.values[source] is value
        )
        square = column_squares(value.factorization)[0] * bound**2
        if isinstance(value, Cells):
            square *= column_squares(value.over_buckets)[0]
        cost += strategy.plan.max_records * square / Fraction(value.sigma) ** 2
    return cost


def list_costs(strategy: Any) -> tuple[Fraction, Fraction]:
    """Squared shifts of both closing measurements by the costliest lists, over sigma^2: k w(k)^2, and 6. 0 without a last look."""
    described = strategy.describe().get("closing")
    if described is None:
        return Fraction(0), Fraction(0)
    unknown = max(Fraction(k * (math.isqrt(ONE**2 // k)) ** 2, ONE**2) for k in range(1, described["keys"] + 1))
    return unknown / Fraction(described["unknown_sigma"]) ** 2, Fraction(6) / Fraction(described["public_sigma"]) ** 2


def failures(strategy: Any) -> tuple[Any, Any, Any]:
    """(delta of the Gaussians, of the stream's tests, of the joint test), of the working precision."""
    described = strategy.describe()
    m, e = mpmath.mpf(strategy.guarantee.mu), mpmath.mpf(strategy.plan.epsilon)
    gaussian = mpmath.ncdf(m / 2 - e / m) - mpmath.exp(e) * mpmath.ncdf(-m / 2 - e / m)

    def tail(quantile: float) -> Any:
        return mpmath.erfc(mpmath.mpf(quantile) / mpmath.sqrt(2)) / 2

    stream = described["keys_per_user"] * 2 * strategy.plan.triggers * tail(described["selection"]["quantile"])
    last = described.get("closing")
    joint = max(failures_at(strategy, Filter.of(strategy), mpmath.mpf(last["threshold"]))) if last else mpmath.mpf(0)
    return gaussian, stream, joint


def check_costs(strategy: Any) -> None:
    """The four shares are met and not exceeded; a user can have the dearest of each at once, so they add up."""
    mu2, p = Fraction(strategy.guarantee.mu) ** 2, strategy.plan.parameters
    costs = rank_cost(strategy, p.ranked_keys), value_cost(strategy), *list_costs(strategy)
    shares = p.discovery_share, p.value_share, p.unknown_share, p.public_share
    for cost, share in zip(costs, shares, strict=True):
        assert mu2 * Fraction(share) * (1 - Fraction(1, 10**6)) <= cost
    assert sum(costs) <= mu2


def check_delta(strategy: Any) -> None:
    with mpmath.workdps(60):
        gaussian, stream, last = failures(strategy)
        assert strategy.plan.delta * (1 - 1e-6) < gaussian + stream + last <= strategy.plan.delta
        if strategy.plan.parameters.last_look:
            assert abs(stream / last - 1) < 1e-6, "each has half of what is for selection"
        else:
            assert last == 0, "the stream has all that is for selection"


class TestAccounting:
    def test_everything_together_costs_the_budget_and_no_more(self, strategy: Any) -> None:
        check_costs(strategy)

    def test_delta_is_not_exceeded_and_hardly_wasted(self, strategy: Any) -> None:
        check_delta(strategy)

    def test_the_constants_are_those_that_were_studied(self) -> None:
        """Before any seed of the evidence was run."""
        described = closing(triggers=100, epsilon=6.0, delta=1e-9, max_records=36).describe()
        assert described["shares"] == {"selection": 0.4, "values": pytest.approx(0.42), "unknown": 0.13, "public": 0.05}
        assert described["keys_per_user"] == 10
        prior = np.array(described["weights_first_trigger"])
        assert prior[1:] / prior[:-1] == pytest.approx(np.full(9, 0.7), abs=0.01)
        assert described["closing"]["filter_weight"] == pytest.approx(0.7, abs=0.001)
        assert described["closing"]["unknown_square"] == 1

    def test_described_is_what_is_used(self, strategy: Any) -> None:
        described, selector = strategy.describe(), strategy.selector
        assert described["mu"] == strategy.guarantee.mu
        assert described["most_records"] == strategy.bounding.ledger.most_records
        if not strategy.plan.parameters.last_look:
            assert "closing" not in described
            return
        assert described["closing"] == {
            "keys": strategy.lists.keys,
            "unknown_sigma": strategy.look.unknown_sigma,
            "public_sigma": strategy.look.public_sigma,
            "unknown_square": strategy.lists.unknown_square / 2.0**40,
            "public_square": strategy.lists.public_square / 2.0**40,
            "filter_weight": strategy.look.filter_weight,
            "filter_height": float(selector.matched_height[-1]),
            "filter_heights": strategy.look.filter_heights.tolist(),
            "filter_std": float(selector.matched_std[-1]),
            "threshold": strategy.look.level,
            "quantile": strategy.look.quantile,
        }
        assert strategy.lists.keys == strategy.plan.parameters.keys

    @pytest.mark.parametrize("seed", range(4))
    def test_no_admitted_user_costs_more_than_the_share_of_values(self, strategy: Any, seed: int) -> None:
        """Many users at random through the real caps, with exact squared norms; some fill their ledger to the last record."""
        p, rng, users = strategy.plan, np.random.default_rng(seed), 40
        T, m = p.triggers, p.max_records_per_key
        state = UserKeys.empty(users)
        kept: dict[tuple[int, int], list[int]] = {}
        for trigger in range(1, T + 1):
            size = rng.integers(1, 3 * p.max_records + 2, users)
            user = np.repeat(np.arange(users, dtype=np.int32), size)
            # A user brings few keys often, or many.
            key = (rng.integers(0, 1 << 30, len(user)) % (3 + 10 * user)).astype(np.int32)
            now = np.full(users, trigger, np.int32)
            got = strategy.bounding.close(user, key, now, state, rng.random(len(user)) < 0.3)
            state = got.state
            for u, k in zip(user[got.kept].tolist(), key[got.kept].tolist(), strict=True):
                kept.setdefault((u, k), []).append(trigger)
        worst = Fraction(0)
        for u in range(users):
            cost = Fraction(0)
            for (owner, _), triggers in kept.items():
                if owner == u:
                    assert len(triggers) <= m
                    cost += self._of_pair(strategy, tuple(triggers))
            worst = max(worst, cost)
        mine = Fraction(strategy.guarantee.mu) ** 2 * Fraction(p.parameters.value_share)
        assert mine * Fraction(9, 10) < worst <= mine * (1 + Fraction(1, 10**15))
        assert int(state.charged.max()) <= strategy.bounding.ledger.limit

    @staticmethod
    def _of_pair(strategy: Any, triggers: tuple[int, ...]) -> Fraction:
        """Squared shift of all values by records of full size at these triggers, on one key."""
        cost, T = Fraction(0), strategy.plan.triggers
        for index, value in enumerate(strategy.values):
            counts = value.mechanism == "users"
            bound = max(c.bound for c, s in zip(strategy.plan.columns, strategy.source, strict=True) if s == index)
            c = value.factorization.numerators
            when = triggers[:1] if counts else triggers
            rows = [sum(c[s - t] for t in when if s >= t) for s in range(1, T + 1)]
            square = Fraction(sum(x * x for x in rows), 1 << (2 * value.factorization.bits))
            cost += square * bound**2 / Fraction(value.sigma) ** 2
        return cost


# The range of parameters

COLUMNS: tuple[tuple[Column, ...], ...] = ((VISITS,), (USERS, PAID), (USERS, VISITS, PAID))
TRIGGERS = (1, 2, 3, 10, 100, 2048)


def grid(triggers: int) -> Iterator[dict[str, Any]]:
    """Every combination for short windows; fewer for the longest, which takes a second each."""
    epsilons = (0.5, 1.0, 2.0, 6.0, 10.0) if triggers < 1000 else (0.5, 10.0)
    records = (4, 36, 200) if triggers < 1000 else (4, 200)
    for epsilon, most, per_key in product(epsilons, records, (1, 2, 4) if triggers < 1000 else (4,)):
        for columns in COLUMNS if triggers < 1000 else COLUMNS[-1:]:
            if columns != (VISITS,) or per_key == 1:
                yield {
                    "columns": columns,
                    "triggers": triggers,
                    "epsilon": epsilon,
                    "delta": 1e-9,
                    "max_records": most,
                    "max_records_per_key": per_key,
                }


def check_numbers(strategy: Any) -> None:
    """Finite, on their grids and within 64 bits; lists as long as the ledger lets them be."""
    selector, ledger, T = strategy.selector, strategy.bounding.ledger, strategy.plan.triggers
    for levels in (selector.level, selector.matched_level, np.array([strategy.look.level])):
        assert np.isfinite(levels).all()
        assert (levels > 1).all()
    for thresholds in (selector._threshold, selector._filter_threshold):
        assert thresholds.min() > 0
        assert thresholds.max() < 1 << 61
    for value in strategy.values:
        assert np.isfinite(value.std).all()
        assert (np.diff(value.std) >= 0).all()
    for value in strategy.values:
        first, *_, last = column_squares(value.factorization) * 2
        most = strategy.plan.max_records * first / last
        assert most * Fraction(99, 100) - 1 < ledger.most_records <= most
    assert strategy.plan.max_records <= ledger.most_records <= MAX_LISTED_KEYS
    assert ledger.roots.shape == (T,)
    assert (np.diff(ledger.roots) <= 0).all()
    assert strategy.look.unknown_sigma > 0.1


class TestRange:
    @pytest.mark.parametrize("triggers", TRIGGERS)
    def test_every_plan_is_built_within_its_budget(self, triggers: int) -> None:
        for constants in grid(triggers):
            strategy = closing(**constants)
            check_numbers(strategy)
            check_delta(strategy)
            if triggers <= 10 or constants["max_records"] == 36:
                check_costs(strategy)

    @pytest.mark.parametrize("triggers", TRIGGERS)
    def test_what_cannot_be_built_is_refused_with_advice(self, triggers: int) -> None:
        """Below the range: noise that no grid holds."""
        with pytest.raises(ConfigurationError, match=r"=.*(raise|lower|use) "):
            closing((USERS, PAID), triggers=triggers, epsilon=1e-4, delta=1e-12, max_records=200)

    def test_a_ledger_that_admits_more_keys_than_a_list_holds_is_refused(self) -> None:
        closing(triggers=100, max_records=20_000)
        with pytest.raises(ConfigurationError, match=r"max_records=40000.*lower it"):
            closing(triggers=100, max_records=40_000)

    @pytest.mark.parametrize("triggers", TRIGGERS)
    @pytest.mark.parametrize("unknown_share", [0.05, 0.13, 0.4])
    def test_the_filter_has_the_weight_with_which_a_typical_key_stands_out_most(
        self, triggers: int, unknown_share: float
    ) -> None:
        """A user adds .66 to the filter for each 1 that it adds to the closing statistic."""
        strategy: Any = closing(triggers=triggers, unknown_share=unknown_share)
        noise = strategy.look.unknown_sigma, float(strategy.selector.matched_std[-1])

        def deviations(weight: float) -> float:
            return (1 + 0.66 * weight) / math.hypot(noise[0], weight * noise[1])

        best = deviations(strategy.look.filter_weight)
        assert all(deviations(strategy.look.filter_weight * factor) < best for factor in (0.9, 0.99, 1.01, 1.1))

    @pytest.mark.parametrize("triggers", TRIGGERS)
    def test_the_end_finds_a_steady_key_with_fewer_users_than_the_stream_would(self, triggers: int) -> None:
        """Otherwise the share of the end were better spent on the stream: it is for windows of one trigger."""
        strategy: Any = closing(triggers=triggers, epsilon=6.0, delta=1e-9, max_records=36)
        selector = strategy.selector
        first = strategy.bounding.weights[0] / ONE
        gains = selector._gain[-1] / selector._gain[-1].mean()
        by_stream = min(selector._filter_threshold[-1] / selector._gain[-1].mean() / 2**12, selector.level[-1])
        signal = float((gains * first).mean())
        users = strategy.look.level / (1 + strategy.look.filter_weight * signal)
        assert users < by_stream / signal


class TestErrors:
    @pytest.mark.parametrize(
        ("columns", "changes"), [((PAID,), {}), ((VISITS, PAID), {"max_records_per_key": 2})], ids=["sum", "records"]
    )
    def test_a_column_must_count_users(self, columns: tuple[Column, ...], changes: dict[str, Any]) -> None:
        with pytest.raises(ConfigurationError, match=r'"closing".*users'):
            closing(columns, **changes)
        assert closing((*columns, USERS), **changes).counting == (len(columns),)

    def test_something_must_be_left_for_the_values(self) -> None:
        with pytest.raises(ConfigurationError, match=r"discovery_share=0.4.*unknown_share=0.5.*public_share=0.1"):
            closing(unknown_share=0.5, public_share=0.1)
        closing(unknown_share=0.5, public_share=0.05)

    def test_the_share_of_other_strategies_is_refused(self) -> None:
        with pytest.raises(ConfigurationError, match=r"selection_share=0.3.*discovery_share"):
            closing(selection_share=0.3)

    @pytest.mark.parametrize(
        ("field", "value"),
        [
            ("keys", 0),
            ("keys", (1 << 16) + 1),
            ("unknown_share", 0.0),
            ("public_share", 1.0),
            ("discovery_share", 0.0),
            ("filter_weight", -0.1),
            ("filter_weight", math.nan),
        ],
    )
    def test_refusals_name_the_field(self, field: str, value: Any) -> None:
        with pytest.raises(ConfigurationError, match=field):
            plan(**{field: value})

    def test_there_must_be_something_to_discover(self) -> None:
        with pytest.raises(ConfigurationError, match=r"closing.*discover"):
            closing(discover=False)

    def test_noise_that_cannot_be_drawn_is_refused_at_the_start(self) -> None:
        with pytest.raises(ConfigurationError, match="noise: scale="):
            closing(epsilon=0.001, delta=1e-9, public_share=1e-14)


class TestDigest:
    CHANGES = (
        {"discovery_share": 0.41},
        {"unknown_share": 0.31},
        {"public_share": 0.11},
        {"keys": 17},
        {"filter_weight": 0.8},
        {"ranked_keys": 9},
    )

    def test_every_parameter_and_every_fixed_constant_change_it(self, monkeypatch: pytest.MonkeyPatch) -> None:
        digests = [plan(**change).digest() for change in ({}, *self.CHANGES, {"lag": 2})]
        assert plan().digest() == digests[0]
        constants = closing_parameters.CONSTANTS
        for place in range(len(constants)):
            changed = (*constants[:place], "other", *constants[place + 1 :])
            with monkeypatch.context() as patch:
                patch.setattr(closing_parameters, "CONSTANTS", changed)
                digests.append(plan().digest())
        assert len(set(digests)) == len(digests)
