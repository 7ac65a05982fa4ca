"""The closing measurement: whole lists weighed within their norm, accounted beside the stream, and distinguished from broken ones.

Whatever is public, one user's weights may not exceed what the noise at the last trigger was made for. Three broken rules
do: `unscaled`, every key that counts weighs 1; `uncut`, keys beyond the cut weigh as much as those before it; `unshrunk`,
public keys weigh their units however long the list is.
"""

import math
from collections.abc import Callable, Sequence
from fractions import Fraction
from itertools import pairwise, permutations, product
from typing import Any

import mpmath
import numpy as np
import numpy.typing as npt
import pytest
from scipy import stats

from susurrus.mechanisms.accounting import delta_gaussian
from susurrus.mechanisms.errors import ConfigurationError
from susurrus.mechanisms.histogram import closing as module
from susurrus.mechanisms.histogram.bounding import UserKeys
from susurrus.mechanisms.histogram.factored import Factored
from susurrus.mechanisms.histogram.plan import Column, Plan
from susurrus.mechanisms.histogram.ranked import ranked_design
from susurrus.mechanisms.histogram.registry import build_strategy, plan_of
from susurrus.mechanisms.histogram.strategy import Increments, Step
from susurrus.mechanisms.histogram.user_lists import KNEE, ListSums, ListWeights, public_units
from susurrus.mechanisms.noise import NoiseSource, WindowNoise

VISITS = Column(name="visits", kind="count")
USERS = Column(name="users", kind="users")
PAID = Column(name="paid", kind="sum", bound=50)
ONE = 1 << 20
SLACK = Fraction(1 - 1e-12)
"""What floating-point square roots are reduced by before they are rounded down."""

Ints = npt.NDArray[np.int64]


def plan(columns: tuple[Column, ...] = (VISITS,), strategy: Any = "closing", **changes: Any) -> Plan:
    fields: dict[str, Any] = {"triggers": 3, "epsilon": 2.0, "delta": 1e-6, "max_records": 8} | changes
    return plan_of(strategy=strategy, columns=columns, **fields)


def closing(columns: tuple[Column, ...] = (VISITS,), **changes: Any) -> Any:
    return build_strategy(plan(columns, **changes))


def window(name: str = "p") -> WindowNoise:
    return NoiseSource(b"c" * 32, epoch=b"e", config=b"c", pipeline=name).window(0)


def root(square: Fraction) -> int:
    """floor(sqrt(square))."""
    return math.isqrt(square.numerator // square.denominator)


def slowly(units: Sequence[int], *, keys: int, max_keys: int) -> tuple[list[int], list[int]]:
    """The weights of one list, from the definition."""
    counted = [i for i, unit in enumerate(units) if unit == 0][: min(keys, max_keys)]
    each = ONE if len(counted) <= 2 else root(Fraction(2 * ONE**2, len(counted)) * SLACK**2)
    square, most = sum(unit**2 for unit in units), min(6, max_keys) * ONE**2
    public = list(units) if square <= most else [root(Fraction(u * u * most, square) * SLACK**2) for u in units]
    return [each if i in counted else 0 for i in range(len(units))], public


def weigh(lists: ListWeights, users: Sequence[Sequence[int]]) -> list[tuple[list[int], list[int]]]:
    """The real weights, list by list."""
    indptr = np.cumsum([0, *(len(user) for user in users)])
    weight, public = lists.weigh(indptr, np.array([unit for user in users for unit in user], np.int64))
    return [(weight[a:b].tolist(), public[a:b].tolist()) for a, b in pairwise(indptr.tolist())]


def random_lists(users: int, longest: int) -> list[list[int]]:
    """Lists of all lengths, with few and with many keys that are not public; the longest of one kind come last."""
    generator = np.random.default_rng(5)
    out = []
    for user in range(users):
        length = (0, 1, 2, longest)[user] if user < 4 else int(generator.integers(0, longest + 1) ** generator.random())
        unit = generator.choice([1, ONE, ONE - 1, *generator.integers(1, ONE, 4)], length)
        out.append(np.where(generator.random(length) < generator.choice([0, 0.1, 0.9, 1]), 0, unit).tolist())
    return [*out, [0] * longest, [ONE] * longest]


SIZES = [(1, 5), (2, 1000), (3, 40), (16, 40), (16, 3), (1000, 1000)]


class TestListWeights:
    @pytest.mark.parametrize(("keys", "max_keys"), SIZES)
    def test_equal_those_of_a_slow_loop_over_users(self, keys: int, max_keys: int) -> None:
        users = random_lists(150, max_keys)
        lists = ListWeights(keys=keys, max_keys=max_keys)
        got = weigh(lists, users)
        assert got == [slowly(user, keys=keys, max_keys=max_keys) for user in users]
        assert all(sum(w > 0 for w in weight) <= lists.keys <= keys for weight, _ in got)
        assert all(sum(w * w for w in weight) <= lists.unknown_square <= 2 * ONE**2 for weight, _ in got)
        assert all(sum(w * w for w in public) <= lists.public_square <= 6 * ONE**2 for _, public in got)
        # The bounds are reached, or noise would be wasted.
        assert max(sum(w * w for w in weight) for weight, _ in got) == lists.unknown_square
        assert max(sum(w * w for w in public) for _, public in got) > lists.public_square * (1 - 1e-5)

    @pytest.mark.parametrize(("keys", "max_keys"), SIZES)
    def test_another_users_list_changes_nothing(self, keys: int, max_keys: int) -> None:
        users = random_lists(40, max_keys)
        lists = ListWeights(keys=keys, max_keys=max_keys)
        together = weigh(lists, users)
        for removed in range(0, 42, 3):
            assert weigh(lists, users[:removed] + users[removed + 1 :]) == together[:removed] + together[removed + 1 :]
        assert weigh(lists, users[::-1]) == together[::-1]

    def test_the_order_of_a_list_decides_who_counts_and_nothing_else(self) -> None:
        lists = ListWeights(keys=2, max_keys=10)
        given = [0, ONE, 0, 700_000, 0, ONE, ONE, ONE, ONE, ONE]
        weight, public = (dict(zip("abcdefghij", values, strict=True)) for values in weigh(lists, [given])[0])
        generator = np.random.default_rng(1)
        for _ in range(30):
            order = generator.permutation(10).tolist()
            again, shown = weigh(lists, [[given[i] for i in order]])[0]
            assert shown == [public["abcdefghij"[i]] for i in order]
            counted = [i for i in order if given[i] == 0][:2]
            assert again == [ONE if i in counted else 0 for i in order]
        assert [name for name, value in weight.items() if value] == ["a", "c"]

    @pytest.mark.parametrize("keys", [1, 2, 3, 4])
    def test_all_lists_and_all_public_sets_of_five_keys(self, keys: int) -> None:
        """In exact integers; the units differ by key, as published estimates do."""
        unit = (ONE, 900_000, 1, ONE, 400_000)
        orders = [order for length in range(6) for order in permutations(range(5), length)]
        users = [
            [unit[key] * (key in public) for key in order]
            for public in map(set, _subsets(range(5)))
            for order in orders
        ]
        lists = ListWeights(keys=keys, max_keys=5)
        got = weigh(lists, users)
        assert got == [slowly(user, keys=keys, max_keys=5) for user in users]
        assert max(sum(w * w for w in weight) for weight, _ in got) == lists.unknown_square
        assert max(sum(w > 0 for w in weight) for weight, _ in got) == keys

    @pytest.mark.parametrize("keys", [2, 3, 8])
    def test_all_lists_of_up_to_eight_keys_with_three_units(self, keys: int) -> None:
        """Long enough that public keys have to share the norm; each broken rule exceeds it."""
        users = [units for length in range(9) for units in product((0, 700_000, ONE), repeat=length)]
        lists = ListWeights(keys=keys, max_keys=8)
        got = weigh(lists, users)
        assert got == [slowly(user, keys=keys, max_keys=8) for user in users]
        assert max(sum(w * w for w in weight) for weight, _ in got) == lists.unknown_square
        squares = [sum(w * w for w in public) for _, public in got]
        assert lists.public_square * (1 - 1e-5) < max(squares) <= lists.public_square
        for rule in BROKEN:
            weight, public = BROKEN[rule](lists, np.array([0, 8, 16]), np.repeat([0, ONE], 8))
            worst = (int((weight**2).sum()) > lists.unknown_square, int((public**2).sum()) > lists.public_square)
            expected = {"unscaled": (keys > 2, False), "uncut": (keys < 8, False), "unshrunk": (False, True)}
            assert worst == expected[rule]

    def test_sums_that_leave_sixty_four_bits_do_not_touch_a_list(self) -> None:
        """As millions of users bring them together; larger units than there are, so that fewer users are enough."""
        users = [[1 << 28] * (1 + user % 8) for user in range(1000)]
        assert sum(unit**2 for user in users for unit in user) > 1 << 64
        assert weigh(ListWeights(keys=3, max_keys=8), users) == [slowly(user, keys=3, max_keys=8) for user in users]

    def test_no_user_and_no_key(self) -> None:
        lists = ListWeights(keys=3, max_keys=5)
        nothing = np.zeros(0, np.int64)
        for users in (0, 3):
            weight, public = lists.weigh(np.zeros(users + 1, np.int64), nothing)
            assert len(weight) == len(public) == 0


def _subsets(of: range) -> list[tuple[int, ...]]:
    return [tuple(key for key in of if mask >> key & 1) for mask in range(1 << len(of))]


Rule = Callable[[ListWeights, Ints, Ints], tuple[Ints, Ints]]


def unscaled(lists: ListWeights, indptr: Ints, unit: Ints) -> tuple[Ints, Ints]:
    weight, public = lists.weigh(indptr, unit)
    return np.where(weight > 0, ONE, 0), public


def uncut(lists: ListWeights, indptr: Ints, unit: Ints) -> tuple[Ints, Ints]:
    weight, public = lists.weigh(indptr, unit)
    most = np.array([weight[a:b].max(initial=0) for a, b in pairwise(indptr.tolist())])
    return np.where(unit == 0, np.repeat(most, np.diff(indptr)), 0), public


def unshrunk(lists: ListWeights, indptr: Ints, unit: Ints) -> tuple[Ints, Ints]:
    return lists.weigh(indptr, unit)[0], unit


BROKEN: dict[str, Rule] = {"unscaled": unscaled, "uncut": uncut, "unshrunk": unshrunk}


class TestUnits:
    def test_fall_with_the_cube_root_of_the_estimate(self) -> None:
        """In exact integers: u = floor(2^20 (60 / estimate)^(1/3)). A unit that differs by one would not replay."""
        estimates = np.concatenate([np.arange(1, 20_000), 60 * np.arange(1, 400) ** 3])
        got = public_units(estimates)
        for estimate, unit in zip(np.maximum(estimates, KNEE).tolist(), got.tolist(), strict=True):
            assert unit**3 * estimate <= KNEE * ONE**3 < (unit + 1) ** 3 * estimate

    def test_are_one_up_to_the_knee_whatever_noise_made_of_the_estimate(self) -> None:
        low = np.array([-(1 << 62), -1_000_000, -1, 0, 1, KNEE - 1, KNEE])
        assert public_units(low).tolist() == [ONE] * len(low)
        assert public_units(np.array([KNEE + 1]))[0] < ONE

    def test_never_rise_and_never_vanish(self) -> None:
        """A unit of 0 would turn a public key into one that is not."""
        estimates = np.unique(np.concatenate([np.arange(-50, 5000), np.geomspace(5000, 2**62, 3000).astype(np.int64)]))
        got = public_units(estimates)
        assert (np.diff(got) <= 0).all()
        assert got[0] == ONE
        assert got[-1] == public_units(np.array([2**63 - 1]))[0] >= 1

    def test_no_key(self) -> None:
        assert public_units(np.zeros(0, np.int64)).tolist() == []


# Accounting


PLANS = {
    "defaults": plan(),
    "one record": plan(max_records=1),
    "few keys": plan(max_records=3, keys=2, triggers=5),
    "many keys": plan(max_records=100, keys=64, unknown_share=0.6, public_share=0.3),
    "gate": plan((USERS,), max_records=20, minimum_users=5, delta=1e-9, epsilon=6.0),
    "columns": plan((USERS, PAID), max_records=20, max_records_per_key=3, minimum_users=2, lag=2, selection_share=0.3),
    "loose": plan(epsilon=8.0, delta=0.4, keys=1),
    "unequal delta": plan(gaussian_delta_fraction=0.9, unknown_share=0.01, public_share=0.01),
}


@pytest.fixture(params=PLANS.values(), ids=PLANS.keys(), scope="module")
def strategy(request: pytest.FixtureRequest) -> Any:
    return build_strategy(request.param)


def column_squares(factorization: Any) -> list[Fraction]:
    """|C e_t|^2."""
    column = [Fraction(n, 1 << factorization.bits) for n in factorization.numerators]
    return [sum((c * c for c in column[: len(column) - t]), Fraction(0)) for t in range(len(column))]


def rank_cost(strategy: Any, ranks: int) -> Fraction:
    """Squared shift of the selection statistic by a user's first ranks, each at its worst trigger, over sigma^2."""
    columns = column_squares(strategy.selector.factorization)
    rows = strategy.bounding.weights.tolist()[:ranks]
    squares = [max(Fraction(w, ONE) ** 2 * c for w, c in zip(row, columns, strict=True)) for row in rows]
    return sum(squares, Fraction(0)) / Fraction(strategy.selector.sigma) ** 2


def stream_cost(strategy: Any) -> Fraction:
    """The costliest user of the stream: all ways to spread max_records over keys, values at the first trigger."""
    p, best = strategy.plan, Fraction(0)
    counted = {source for source in strategy.source if strategy.values[source].mechanism == "users"}
    most: dict[int, int] = {0: 0}  # records used -> largest sum of squared records per key
    for keys in range(1, p.max_records + 1):
        grown: dict[int, int] = {}
        for used, squares in most.items():
            for records in range(1, min(p.max_records_per_key, p.max_records - used) + 1):
                grown[used + records] = max(grown.get(used + records, 0), squares + records**2)
        most = grown
        if not most:
            break
        cost = rank_cost(strategy, keys)
        for column, source in zip(p.columns, strategy.source, strict=True):
            value = strategy.values[source]
            size = keys if source in counted else max(most.values()) * column.bound**2
            cost += size * column_squares(value.factorization)[0] / Fraction(value.sigma) ** 2
        best = max(best, cost)
    return best


def closing_costs(strategy: Any) -> tuple[Fraction, Fraction]:
    """Squared shifts of both closing measurements by the costliest lists, over sigma^2."""
    p = strategy.plan
    lists = [
        slowly([0] * length, keys=p.parameters.keys, max_keys=p.max_records)[0] for length in range(p.max_records + 1)
    ]
    squares = max(sum(w * w for w in weight) for weight in lists), min(6, p.max_records) * ONE**2
    sigmas = Fraction(strategy.unknown_sigma), Fraction(strategy.public_sigma)
    return Fraction(squares[0]) / (sigmas[0] * ONE) ** 2, Fraction(squares[1]) / (sigmas[1] * ONE) ** 2


class TestAccounting:
    def test_everything_together_costs_the_budget_and_no_more(self, strategy: Any) -> None:
        mu2, p = Fraction(strategy.guarantee.mu) ** 2, strategy.plan
        stream, (unknown, public) = stream_cost(strategy), closing_costs(strategy)
        assert mu2 * Fraction(999, 1000) <= stream + unknown + public <= mu2
        for cost, share in ((unknown, p.parameters.unknown_share), (public, p.parameters.public_share)):
            assert mu2 * Fraction(share) * (1 - Fraction(1, 10**6)) <= cost <= mu2 * Fraction(share)
        assert Fraction(strategy.describe()["mu"]) ** 2 >= (stream + unknown + public) * (1 - Fraction(1, 10**9))
        assert strategy.describe()["mu"] <= strategy.guarantee.mu

    def test_described_is_what_is_used(self, strategy: Any) -> None:
        p, described = strategy.plan, strategy.describe()["closing"]
        assert described == {
            "unknown_share": p.parameters.unknown_share,
            "public_share": p.parameters.public_share,
            "keys": min(p.parameters.keys, p.max_records),
            "unknown_sigma": strategy.unknown_sigma,
            "public_sigma": strategy.public_sigma,
            "unknown_square": strategy.lists.unknown_square / 2.0**40,
            "public_square": strategy.lists.public_square / 2.0**40,
            "threshold": strategy.level,
            "quantile": strategy.quantile,
        }

    def test_delta_is_not_exceeded_and_hardly_wasted(self, strategy: Any) -> None:
        guarantee, p, described = strategy.guarantee, strategy.plan, strategy.describe()
        with mpmath.workdps(60):
            m, e = mpmath.mpf(guarantee.mu), mpmath.mpf(p.epsilon)
            gaussian = mpmath.ncdf(m / 2 - e / m) - mpmath.exp(e) * mpmath.ncdf(-m / 2 - e / m)

            def tail(quantile: float) -> Any:
                return mpmath.erfc(mpmath.mpf(quantile) / mpmath.sqrt(2)) / 2

            stream = described["keys_per_user"] * 2 * p.triggers * tail(strategy.selector.quantile)
            last = described["closing"]["keys"] * tail(described["closing"]["quantile"])
            assert p.delta * (1 - 1e-6) < gaussian + stream + last <= p.delta
            assert abs(stream / last - 1) < 1e-6, "each has half of what is for selection"

    def test_the_threshold_is_the_boundary_and_the_quantile_rounded_up(self, strategy: Any) -> None:
        beta = strategy.guarantee.delta_selection / 2 / strategy.describe()["closing"]["keys"]
        assert strategy.quantile >= stats.norm.isf(beta) * (1 - 1e-12)
        with mpmath.workdps(50):
            noise = mpmath.mpf(strategy.quantile) * mpmath.mpf(strategy.unknown_sigma)
            level = (strategy.plan.minimum_users + 1 + noise) * ONE
            assert level + 0.5 <= strategy._threshold < level * (1 + 1e-9) + 2

    def test_known_thresholds(self) -> None:
        """Users a key needs at the last of a hundred triggers, by the share of mu^2 that is kept for them."""
        p = {"triggers": 100, "epsilon": 6.0, "delta": 1e-9, "max_records": 40}
        levels = [closing(unknown_share=share, **p).level for share in (0.15, 0.3, 0.6)]
        assert levels == pytest.approx([26.31, 18.89, 13.65], abs=0.01)


# The step at the last trigger


def nothing(strategy: Any, size: int, lists: ListSums | None = None) -> Increments:
    none = np.zeros(size, np.int64)
    return Increments(users=none, weight=none, sums=np.zeros((size, len(strategy.plan.columns)), np.int64), lists=lists)


def sums_of(lists: ListWeights, users: Sequence[Ints], unit: Ints) -> ListSums:
    """What these users' lists of keys 0..k-1 add to each key, where unit is int64[k]."""
    key = np.concatenate([*users, np.zeros(0, np.int64)])
    weight, public = lists.weigh(np.cumsum([0, *map(len, users)]), unit[key])
    totals = [np.bincount(key, weights=w, minlength=len(unit)).astype(np.int64) for w in (weight > 0, weight, public)]
    return ListSums(users=totals[0], weight=totals[1], public_weight=totals[2], unit=unit)


def at_the_end(strategy: Any, lists: ListSums, *, declared: bool = False, name: str = "p") -> Step:
    """The last trigger for keys never seen before, which no user brings now: the stream has nothing to go by."""
    size = len(lists.unit)
    keys = [b"%d" % i for i in range(size)]
    step: Step = strategy.step(
        strategy.plan.triggers,
        keys,
        strategy.empty(size),
        nothing(strategy, size, lists),
        window(name),
        np.full(size, declared),
    )
    return step


def on_unknown(users: Ints, weight: Ints) -> ListSums:
    none = np.zeros(len(users), np.int64)
    return ListSums(users=users, weight=weight, public_weight=none, unit=none)


def drawn(strategy: Any, name: str, sigma: float, keys: Sequence[bytes], noise: WindowNoise) -> Ints:
    """The noise of a closing measurement, by its address."""
    labels = noise.labels(f"closing/{name}/{strategy.plan.digest().hex()}", keys)
    last = strategy.plan.triggers
    draws: Ints = noise.normal(labels, last, last, sigma=sigma, bits=20)[:, 0]
    return draws


BETA, KEYS = 0.1, 20_000
CERTAIN, DOUBT = -25.0, -8.0


def exceeds(hits: int, beta: float = BETA) -> float:
    """Log of the p-value of the hypothesis that a key is named with probability at most beta."""
    return float(stats.binom.logsf(hits - 1, KEYS, beta))


class TestSelection:
    @staticmethod
    def boundary(strategy: Any) -> int:
        """How many keys are named that one user put weight 1 on, and as many others as the gate still keeps closed."""
        users = np.full(KEYS, strategy.plan.minimum_users + 1)
        return int(at_the_end(strategy, on_unknown(users, users * ONE)).published.sum())

    @pytest.mark.parametrize("minimum_users", [0, 1, 40])
    def test_never_with_the_gate_closed(self, minimum_users: int) -> None:
        """However large the noise and the weight: what no other user brought is not even drawn for."""
        strategy = closing(epsilon=1.0, minimum_users=minimum_users)
        users = np.arange(2000) % (minimum_users + 1)
        step = at_the_end(strategy, on_unknown(users, np.full(2000, 10**6 * ONE)))
        assert not step.published.any()
        assert (step.due == strategy.plan.triggers + 1).all()
        opened = at_the_end(strategy, on_unknown(users + 1, np.full(2000, 10**6 * ONE)))
        assert opened.published.tolist() == (users == minimum_users).tolist()
        assert opened.states.selected.tolist() == opened.changed.tolist() == opened.published.tolist()
        assert (opened.due == np.where(opened.published, 0, strategy.plan.triggers + 1)).all()

    def test_is_the_noisy_weight_against_the_threshold(self) -> None:
        strategy = closing(epsilon=4.0, delta=1e-3, minimum_users=1)
        generator = np.random.default_rng(2)
        users = generator.integers(0, 40, 3000)
        weight = users * ONE - generator.integers(0, ONE, 3000) * users
        noisy = weight + drawn(strategy, "unknown", strategy.unknown_sigma, [b"%d" % i for i in range(3000)], window())
        level = 2 + stats.norm.isf(strategy.guarantee.delta_selection / 2 / 8) * strategy.unknown_sigma
        expected = (noisy >= level * ONE) & (users > 1)
        assert at_the_end(strategy, on_unknown(users, weight)).published.tolist() == expected.tolist()
        assert 100 < expected.sum() < 2900

    @pytest.mark.statistical
    @pytest.mark.parametrize("minimum_users", [0, 3])
    def test_a_boundary_key_is_named_at_most_beta(self, minimum_users: int) -> None:
        strategy = closing(epsilon=8.0, delta=4 * BETA, keys=1, minimum_users=minimum_users)
        hits = self.boundary(strategy)
        assert exceeds(hits) > DOUBT
        assert hits > BETA * KEYS * 0.9, "one test, so the bound is tight"

    @pytest.mark.statistical
    def test_without_the_boundary_height_beta_is_exceeded(self) -> None:
        """Forgetting the +1: a threshold made for a key without the user."""
        strategy = closing(epsilon=8.0, delta=4 * BETA, keys=1)
        strategy._threshold -= ONE
        assert exceeds(self.boundary(strategy)) < CERTAIN

    @pytest.mark.statistical
    def test_without_the_share_of_each_key_beta_is_exceeded(self) -> None:
        """Eight keys of a user count, and each would be given what is there for all of them."""
        strategy = closing(epsilon=8.0, delta=0.8, keys=8)
        beta = strategy.guarantee.delta_selection / 2 / 8
        assert exceeds(self.boundary(strategy), beta) > DOUBT
        strategy._threshold = math.ceil((1 + stats.norm.isf(8 * beta) * strategy.unknown_sigma) * ONE)
        assert exceeds(self.boundary(strategy), beta) < CERTAIN


# Privacy loss of all noisy vectors

FAMOUS, OBSCURE = 15, 16
"""Keys of the user that were declared, and that no other user brings."""


def privacy_loss(strategy: Any, *, present: bool, trials: int, rule: Rule) -> npt.NDArray[np.float64]:
    """ln of how much more likely the noisy vectors are with what was (user present) or without what was not (absent).

    Before the last trigger as in test_adaptive.py: at every other trigger one new key, named with probability about one
    half, and for sure at the next. Whether the last of them is public when lists are weighed is thus left to noise. At the
    last trigger the user has brought these, the famous and the obscure keys. A trial is a copy with a user and keys of
    its own.
    """
    selector, T = strategy.selector, strategy.plan.triggers
    crowds, K = range(1, T, 2), T // 2
    names = [b"%d" % code for code in range(trials * K)]
    noise = window("present" if present else "absent")
    states, state = strategy.empty(len(names)), UserKeys.empty(trials)
    published = np.zeros(len(names), np.bool_)
    shift = np.zeros((len(names), T))
    user, copy = np.arange(trials, dtype=np.int32), np.arange(trials, dtype=np.int32) * K
    column = np.array([float(Fraction(n, 1 << selector.factorization.bits)) for n in selector.factorization.numerators])
    for trigger in range(1, T):
        key = copy + (trigger - 1) // 2
        one = int(strategy.bounding.weights[0, trigger - 1])
        crowd = np.zeros(len(names), np.int64)
        crowd[key] = round(float(selector.level[trigger - 1]) * 2**20 / one) * (10 if trigger not in crowds else 1)
        weight = crowd * one
        if trigger in crowds:
            now = np.full(trials, trigger, np.int32)
            got = strategy.bounding.close(user, key, now, state, published[key])
            state = got.state
            weight[key] += got.weight * present
            shift[key, trigger - 1 :] += got.weight[:, None] * 2.0**-20 * column[: T - trigger + 1]
        given = Increments(users=crowd, weight=weight, sums=crowd[:, None])
        step = strategy.step(trigger, names, states, given, noise, np.zeros(len(names), np.bool_))
        states, published = step.states, published | step.published
    assert 0.1 < published[copy + K - 1].mean() < 0.9
    labels = noise.labels(strategy._selection_mechanism, names)
    z = noise.normal(labels, 1, T, sigma=selector.sigma, bits=selector.noise_bits) * 2.0**-selector.noise_bits
    sign = 1 if present else -1
    loss = ((2 * sign * z + shift) * shift).sum(axis=1).reshape(trials, K).sum(axis=1) / (2 * selector.sigma**2)
    others = np.tile(np.repeat([ONE, 0], [FAMOUS, OBSCURE]), (trials, 1))
    unit = np.concatenate([np.where(published.reshape(trials, K), ONE, 0), others], axis=1)
    weights = rule(strategy.lists, np.arange(trials + 1) * unit.shape[1], unit.ravel())
    for measure, sigma, put in zip(
        ("unknown", "public"), (strategy.unknown_sigma, strategy.public_sigma), weights, strict=True
    ):
        rows = np.flatnonzero(put)
        z = drawn(strategy, measure, sigma, [b"%d of user" % i for i in rows.tolist()], noise) / ONE
        x = put[rows] / ONE
        loss += np.bincount(rows // unit.shape[1], weights=(2 * sign * z + x) * x, minlength=trials) / (2 * sigma**2)
    return loss


@pytest.mark.statistical
@pytest.mark.parametrize("rule", ["weighed", *BROKEN])
@pytest.mark.parametrize("present", [True, False])
def test_stream_and_lists_hold_their_delta_together_and_broken_weights_do_not(present: bool, rule: str) -> None:
    """delta(eps) = E[max(0, 1 - e^(eps - loss))] of everything selection draws on, for both directions of neighbours."""
    strategy = closing(
        triggers=8,
        delta=0.2,
        ranked_keys=1,
        max_records=64,
        selection_share=0.9,
        unknown_share=0.4,
        public_share=0.3,
        keys=6,
    )
    mu = math.sqrt(rank_cost(strategy, 1) + sum(closing_costs(strategy)))
    epsilon = 1.0
    real: Rule = ListWeights.weigh
    loss = privacy_loss(strategy, present=present, trials=2500, rule=BROKEN.get(rule, real))
    sample = np.maximum(0.0, -np.expm1(epsilon - loss))
    estimate, error = sample.mean(), sample.std() / math.sqrt(len(sample))
    claim = delta_gaussian(mu, epsilon)
    if rule == "weighed":
        assert abs(estimate - claim) < 5 * error, (
            "the user spends everything in every transcript, so the claim is tight"
        )
    else:
        assert estimate > 1.3 * claim
        assert estimate - claim > 10 * error


# Estimates


class Scene:
    """Keys at the last trigger: declared ones, some of them public since long, and others that only lists can find."""

    SIZE = 300

    def __init__(self, columns: tuple[Column, ...] = (USERS, PAID), **changes: Any) -> None:
        generator = np.random.default_rng(8)
        fields = {"triggers": 4, "epsilon": 6.0, "delta": 1e-4, "max_records": 24, "keys": 5} | changes
        self.strategy = closing(columns, max_records_per_key=1 if VISITS in columns else 3, **fields)
        self.keys = [b"key-%d" % i for i in range(self.SIZE)]
        self.declared = np.arange(self.SIZE) % 3 < 2
        popular = generator.integers(-5, 5000, self.SIZE)
        self.unit = np.where(np.arange(self.SIZE) % 3 == 1, public_units(popular), 0)
        self.unit[1] = 1  # the least there is, and not none
        # The last thirty keys no user brings.
        lists = [generator.permutation(self.SIZE - 30)[: generator.integers(0, 25)] for _ in range(3000)]
        self.lists = sums_of(self.strategy.lists, lists, self.unit)
        users = np.bincount(np.concatenate(lists), minlength=self.SIZE)
        paid = np.where(users > 0, generator.integers(-500, 500, self.SIZE), 0)
        sums = [paid if column.kind == "sum" else users for column in columns]
        self.sums = np.stack(sums, axis=1)

    def step(self, strategy: Any = None, rows: Any = None, *, noise: WindowNoise | None = None, **changes: Any) -> Step:
        """The last trigger of these rows, whose users the stream gave no weight."""
        strategy, rows = strategy or self.strategy, np.arange(self.SIZE) if rows is None else rows
        none = np.zeros(len(rows), np.int64)
        given = {field: getattr(self.lists, field)[rows] for field in ("users", "weight", "public_weight", "unit")}
        increments = Increments(users=none, weight=none, sums=self.sums[rows], lists=ListSums(**given))
        result: Step = strategy.step(
            strategy.plan.triggers,
            [self.keys[i] for i in rows.tolist()],
            strategy.empty(len(rows)),
            increments,
            noise or window(),
            changes.get("declared", self.declared)[rows],
        )
        return result

    def stream(self) -> Any:
        """The stream by itself, with the same constants and the same noise."""
        p, budget = self.strategy.plan, self.strategy.guarantee
        own = p.parameters
        design = ranked_design(
            p,
            own,
            mu_square=budget.mu**2 * (1 - own.unknown_share - own.public_share),
            delta_selection=budget.delta_selection / 2,
            lag=own.lag,
        )
        return Factored(p, budget, design)


class TestEstimates:
    @pytest.mark.parametrize("columns", [(USERS, PAID), (VISITS, USERS), (PAID, VISITS)])
    def test_are_means_of_stream_and_lists_by_inverse_variance(self, columns: tuple[Column, ...]) -> None:
        """Every draw from its address, every mean in fractions."""
        scene = Scene(columns)
        strategy, step, noise, T = scene.strategy, scene.step(), window(), scene.strategy.plan.triggers
        found = step.published & ~scene.declared
        assert step.published[scene.declared].all()
        assert 10 < found.sum() < (~scene.declared).sum()
        closings = {
            name: drawn(strategy, name, sigma, scene.keys, noise).tolist()
            for name, sigma in (("unknown", strategy.unknown_sigma), ("public", strategy.public_sigma))
        }
        suspected = 0
        for index, column in enumerate(columns):
            value = strategy.values[strategy.source[index]]
            f = value.factorization
            labels = noise.labels(f"{value.mechanism}/{strategy.plan.digest().hex()}", scene.keys)
            z = noise.normal(labels, 1, T, sigma=value.sigma, bits=f.bits).tolist()
            row2 = sum((Fraction(n, 1 << (f.bits * k)) ** 2 for k, n in enumerate(f.decoder_exact[:T])), Fraction(0))
            stream2 = Fraction(value.sigma) ** 2 * row2 + Fraction(1, 12)
            for i in np.flatnonzero(step.published).tolist():
                stream = int(scene.sums[i, index]) + value.decoder.rationally(z[i], T)
                if column.kind == "sum":
                    assert step.estimates[i, index] == stream
                    assert step.std_errors[i, index] == pytest.approx(math.sqrt(stream2), rel=1e-9)
                    continue
                unit = int(scene.unit[i])
                if unit:
                    total, sigma = int(scene.lists.public_weight[i]) + closings["public"][i], strategy.public_sigma
                else:
                    total, sigma = int(scene.lists.weight[i]) + closings["unknown"][i], strategy.unknown_sigma
                again, again2 = Fraction(total, unit or ONE), (Fraction(sigma) * ONE / (unit or ONE)) ** 2
                # Three deviations below the stream's, it is taken for short lists' rest, and counts for less.
                bias = max(max(stream - again, 0) ** 2 - 9 * (stream2 + again2), 0)
                suspected += bias > 0
                share = stream2 / (stream2 + again2 + bias)
                mean = stream * (1 - share) + again * share
                assert abs(int(step.estimates[i, index]) - mean) <= 0.5 + 1e-6
                expected = math.sqrt((1 - share) ** 2 * stream2 + share**2 * again2 + Fraction(1, 12))
                assert step.std_errors[i, index] == pytest.approx(expected, rel=1e-9)
        assert suspected > 5
        hidden = ~step.published
        assert not step.estimates[hidden].any()
        assert not step.std_errors[hidden].any()

    def test_are_better_than_the_streams_wherever_users_weigh_anything(self) -> None:
        """With a unit of 1 of 2^20 the mean is the stream's, rounded once more."""
        scene = Scene()
        step, value = scene.step(), scene.strategy.values[0]
        errors, usual = step.std_errors[:, 0], step.published & (scene.unit != 1)
        assert (errors[usual] < value.std[-1]).all()
        assert errors[usual].min() < value.std[-1] * 0.8
        assert errors[1] == pytest.approx(math.sqrt(value.std[-1] ** 2 + 1 / 12))

    def test_of_public_keys_that_no_user_brought_are_noise_all_the_same(self) -> None:
        """Noise only where there are users would tell that there are."""
        scene = Scene()
        step, alone = scene.step(), scene.step(scene.stream())
        untouched = scene.declared & (scene.unit > 0) & (scene.lists.public_weight == 0)
        assert untouched.sum() >= 10
        assert (step.estimates[untouched, 0] != alone.estimates[untouched, 0]).any()
        assert len(set(step.estimates[untouched, 0].tolist())) > 1

    @pytest.mark.statistical
    def test_spread_as_their_standard_errors_say_around_the_truth(self) -> None:
        """Keys of users with short lists: many alike, by unit, some brought by no user."""
        strategy, each = closing((VISITS, PAID), epsilon=1.0, triggers=4), 4000
        unit = np.repeat([0, *public_units(np.array([0, 700, 200_000])).tolist()], each)
        truth = np.tile([0, 1, 60, 5000], each)
        step = strategy.step(
            4,
            [b"%d" % i for i in range(len(unit))],
            strategy.empty(len(unit)),
            Increments(
                users=truth * 0,
                weight=truth * 0,
                sums=np.stack([truth, truth], axis=1),
                lists=ListSums(
                    users=np.where(unit == 0, truth, 0),
                    weight=np.where(unit == 0, truth * ONE, 0),
                    public_weight=truth * unit,
                    unit=unit,
                ),
            ),
            window(),
            np.ones(len(unit), np.bool_),
        )
        error = (step.estimates - truth[:, None]) / step.std_errors
        for value in np.unique(unit).tolist():
            of = error[unit == value]
            assert (abs(of.mean(axis=0)) < 5 / math.sqrt(each)).all()
            assert (abs(of.std(axis=0) - 1) < 5 / math.sqrt(2 * each)).all()
        # Measured with more of the norm is measured better, and the other column by the stream alone.
        assert (np.diff([step.std_errors[unit == value, 0][0] for value in np.unique(unit)[1:]]) < 0).all()
        assert len(np.unique(step.std_errors[:, 1])) == 1


class TestStream:
    def test_rows_before_the_last_trigger_are_the_streams(self) -> None:
        """And at the last one, what is not counted by lists; lists before it are not asked for."""
        scene = Scene()
        strategy, stream, size = scene.strategy, scene.stream(), scene.SIZE
        generator = np.random.default_rng(4)
        here, there, noise = strategy.empty(size), stream.empty(size), window()
        none = np.zeros(size, np.bool_)
        for trigger in range(1, 5):
            users = generator.poisson(np.arange(size) % 30)
            rank = generator.integers(0, len(strategy.bounding.weights), size)
            given = {
                "users": users,
                "weight": users * strategy.bounding.weights[rank, trigger - 1],
                "sums": np.stack([users, users * 7], axis=1),
            }
            lists = scene.lists if trigger == 4 else None
            ours = strategy.step(trigger, scene.keys, here, Increments(**given, lists=lists), noise, none)
            alone = stream.step(trigger, scene.keys, there, Increments(**given), noise, none)
            if trigger < 4:
                for field in ("changed", "due", "published", "estimates", "std_errors"):
                    assert np.array_equal(getattr(ours, field), getattr(alone, field))
                assert strategy.pack(ours.states) == stream.pack(alone.states)
                assert 0 < alone.published.sum() < size
                here, there = ours.states, alone.states
        assert (ours.published >= alone.published).all()
        assert (ours.published & ~alone.published).any()
        shown = alone.published
        assert np.array_equal(ours.estimates[shown, 1], alone.estimates[shown, 1])
        assert (ours.estimates[shown, 0] != alone.estimates[shown, 0]).any()

    def test_results_do_not_depend_on_chunks_order_and_replays(self) -> None:
        scene = Scene()
        whole = scene.step()
        generator = np.random.default_rng(9)
        for parts in (1, 7, 100):
            shared = window()
            for rows in np.array_split(generator.permutation(scene.SIZE), parts):
                for noise in (shared, None):
                    part = scene.step(rows=rows, noise=noise)
                    for field in ("changed", "due", "published", "estimates", "std_errors"):
                        assert np.array_equal(getattr(part, field), getattr(whole, field)[rows])
                    packed = scene.strategy.pack(whole.states.take(rows))
                    assert scene.strategy.pack(part.states) == packed

    def test_another_plan_and_another_window_have_other_noise(self) -> None:
        scene, other = Scene(), Scene(keys=6)
        shown = scene.declared & (scene.unit > 0)
        results = [
            s.step(noise=window(name)).estimates[shown, 0] for s, name in ((scene, "p"), (scene, "q"), (other, "p"))
        ]
        assert all((a != b).mean() > 0.3 for a, b in zip(results, [*results[1:], results[0]], strict=True))


class TestErrors:
    @pytest.mark.parametrize(
        ("columns", "changes"), [((PAID,), {}), ((VISITS, PAID), {"max_records_per_key": 2})], ids=["sum", "records"]
    )
    def test_a_column_must_count_users(self, columns: tuple[Column, ...], changes: dict[str, Any]) -> None:
        with pytest.raises(ConfigurationError, match=r'"closing".*users'):
            closing(columns, **changes)
        assert closing((*columns, USERS), **changes).counting == (len(columns),)

    def test_something_must_be_left_for_the_stream(self) -> None:
        with pytest.raises(ConfigurationError, match=r"unknown_share=0.75.*public_share=0.25"):
            closing(unknown_share=0.75, public_share=0.25)
        closing(unknown_share=0.75, public_share=0.2)

    @pytest.mark.parametrize(
        ("field", "value"),
        [
            ("keys", 0),
            ("keys", (1 << 20) + 1),
            ("unknown_share", 0.0),
            ("public_share", 1.0),
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

    def test_the_last_trigger_wants_lists(self) -> None:
        strategy = closing()
        begun = strategy.step(2, [b"k"], strategy.empty(1), nothing(strategy, 1), window(), np.ones(1, np.bool_))
        with pytest.raises(ValueError, match="lists"):
            strategy.step(3, [b"k"], begun.states, nothing(strategy, 1), window(), np.ones(1, np.bool_))


class TestDigest:
    CHANGES = ({"unknown_share": 0.31}, {"public_share": 0.11}, {"keys": 17})

    def test_every_parameter_and_every_fixed_constant_change_it(self, monkeypatch: pytest.MonkeyPatch) -> None:
        digests = [plan(**change).digest() for change in ({}, *self.CHANGES, {"lag": 2}, {"strategy": "adaptive"})]
        assert plan().digest() == digests[0]
        monkeypatch.setattr(module, "CONSTANTS", (*module.CONSTANTS[:-1], 0.5))
        digests.append(plan().digest())
        assert len(set(digests)) == len(digests)
