"""The guarantee of `toeplitz` and `closing`, recomputed from public constants and attacked by neighbours.

Nothing here uses accounting.py: costs are added up over explicit users, in fractions, and delta with mpmath.
"""

import math
from collections import defaultdict
from dataclasses import replace
from fractions import Fraction
from itertools import product
from typing import Any

import mpmath
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from susurrus.mechanisms.errors import ConfigurationError
from susurrus.mechanisms.histogram.bounding import UserKeys
from susurrus.mechanisms.histogram.plan import Column, Plan
from susurrus.mechanisms.histogram.ranked import UNIT_BITS
from susurrus.mechanisms.histogram.registry import build_strategy, plan_of
from susurrus.mechanisms.histogram.strategy import Increments
from susurrus.mechanisms.histogram.user_lists import ListSums
from susurrus.mechanisms.noise import NoiseSource
from tests.mechanisms.histogram.closing_cases import Filter, failures_at
from tests.mechanisms.histogram.dense_matrices import decoding_rows, entry, strategy_matrix
from tests.reference import NO_LAST_LOOK

VISITS = Column(name="visits", kind="count")
USERS = Column(name="users", kind="users")
BYTES = Column(name="bytes", kind="sum", bound=50)


def plan(strategy: Any, columns: tuple[Column, ...], **changes: Any) -> Plan:
    fields: dict[str, Any] = {"triggers": 6, "epsilon": 2.0, "delta": 1e-6, "max_records": 6} | changes
    return plan_of(strategy=strategy, columns=columns, **fields)


PLANS = {
    "one mechanism": plan("toeplitz", (VISITS,)),
    "one mechanism, capped keys": plan("toeplitz", (VISITS, USERS), max_keys=4),
    "records per key": plan("toeplitz", (VISITS,), max_records_per_key=4),
    "columns": plan("toeplitz", (VISITS, USERS, BYTES), max_records_per_key=4, max_keys=3, minimum_users=5),
    "sum only": plan("toeplitz", (BYTES,), selection_share=0.3),
    "declared only": plan("toeplitz", (BYTES, VISITS), max_records_per_key=2, discover=False),
    "declared, one mechanism": plan("toeplitz", (VISITS,), discover=False),
    "declared, sum only": plan("toeplitz", (BYTES,), discover=False),
    "no last look": plan("closing", (VISITS,), ranked_keys=3, max_records=9, **NO_LAST_LOOK),
    "no last look, columns": plan(
        "closing", (USERS, VISITS, BYTES), ranked_keys=20, max_records_per_key=3, minimum_users=2, lag=2, **NO_LAST_LOOK
    ),
    "no last look, sum only, short prior": plan(
        "closing", (BYTES,), ranked_keys=5, max_records_per_key=2, prior=(1.0, 0.5), **NO_LAST_LOOK
    ),
    "closing": plan("closing", (VISITS,), ranked_keys=3, max_records=9, keys=3),
    "closing columns": plan(
        "closing", (USERS, BYTES), ranked_keys=2, max_records_per_key=3, minimum_users=2, lag=2, public_share=0.02
    ),
    "weights": plan(
        "toeplitz",
        (replace(VISITS, weight=3.0), USERS, replace(BYTES, weight=0.5)),
        max_records_per_key=4,
        max_keys=3,
    ),
    "weights, declared": plan(
        "toeplitz", (replace(USERS, weight=2.0), replace(BYTES, weight=7.0)), max_records_per_key=2, discover=False
    ),
    "weights, no last look": plan(
        "closing",
        (replace(VISITS, weight=0.3), replace(BYTES, weight=20.0)),
        ranked_keys=3,
        max_records_per_key=3,
        **NO_LAST_LOOK,
    ),
    "weights, closing": plan(
        "closing",
        (replace(USERS, weight=5.0), VISITS, replace(BYTES, weight=0.7)),
        ranked_keys=2,
        max_records_per_key=3,
        lag=2,
    ),
    "closing, one trigger": plan("closing", (VISITS, USERS), triggers=1, max_records=4),
}


@pytest.fixture(params=PLANS.values(), ids=PLANS.keys(), scope="module")
def strategy(request: pytest.FixtureRequest) -> Any:
    return build_strategy(request.param)


def column_square(factorization: Any, trigger: int = 1) -> Fraction:
    column = [entry(factorization, row, trigger - 1) for row in range(factorization.triggers)]
    return sum((each * each for each in column), Fraction(0))


def shift(factorization: Any, x: dict[int, Fraction]) -> Fraction:
    """|C x|^2 for increments by trigger."""
    y = [Fraction(0)] * factorization.triggers
    for trigger, value in x.items():
        for t in range(trigger - 1, factorization.triggers):
            y[t] += entry(factorization, t, trigger - 1) * value
    return sum((v * v for v in y), Fraction(0))


def published_mechanisms(strategy: Any) -> dict[int, Column]:
    """Values in use and one column that each of them measures."""
    return {source: column for column, source in zip(strategy.plan.columns, strategy.source, strict=True)}


def without_knapsack(strategy: Any) -> Fraction:
    """The costliest user of `closing`: all ranks, all values and both lists, which one user can have together.

    Of the values: the dearest that the real caps admit among users who try, at any trigger, the same key or another one each time.
    """
    p: Plan = strategy.plan
    columns = [column_square(strategy.selector.factorization, t) for t in range(1, p.triggers + 1)]
    ranks = [
        max(Fraction(w, 1 << 20) ** 2 * c for w, c in zip(row, columns, strict=True)) for row in weights_of(strategy)
    ]
    cost = sum(ranks, Fraction(0)) / Fraction(strategy.selector.sigma) ** 2
    most, many = Fraction(0), 4 * p.max_records
    for first, repeats in product(range(1, p.triggers + 1), (1, 2, p.max_records_per_key)):
        user, state = np.zeros(many, np.int32), UserKeys.empty(1)
        brought: dict[int, dict[int, Fraction]] = defaultdict(dict)
        for trigger in range(first, p.triggers + 1):
            key = (np.arange(many) // repeats).astype(np.int32)
            got = strategy.bounding.close(user, key, np.array([trigger], np.int32), state, np.zeros(many, np.bool_))
            state = got.state
            for k in np.unique(key[got.kept]).tolist():
                brought[k][trigger] = Fraction(int((got.kept & (key == k)).sum()))
        total = Fraction(0)
        for source, column in published_mechanisms(strategy).items():
            value = strategy.values[source]
            for x in brought.values():
                x = {min(x): Fraction(1)} if value.mechanism == "users" else x
                full = {t: n * (1 if value.mechanism == "users" else column.bound) for t, n in x.items()}
                total += shift(value.factorization, full) / Fraction(value.sigma) ** 2
        most = max(most, total)
    mine = Fraction(strategy.guarantee.mu) ** 2 * Fraction(p.parameters.value_share)
    assert mine * (1 - Fraction(1, 10**6)) <= most <= mine
    return cost + most + (dearest_lists(strategy, 2 * p.parameters.keys) if strategy.lists else Fraction(0))


def weights_of(strategy: Any) -> list[list[int]]:
    rows: list[list[int]] = strategy.bounding.weights.tolist()
    return rows


def dearest_lists(strategy: Any, most: int) -> Fraction:
    """Of so many keys that are not public and so many public ones with unit 1, for which the norms are charged apart."""
    best = [Fraction(0), Fraction(0)]
    for length in range(1, most + 1):
        for place, (unit, sigma) in enumerate(
            ((0, strategy.look.unknown_sigma), (1 << 20, strategy.look.public_sigma))
        ):
            weights = strategy.lists.weigh(np.array([0, length]), np.full(length, unit, np.int64))[place]
            cost = sum(w * w for w in weights.tolist()) / (Fraction(sigma) * (1 << 20)) ** 2
            best[place] = max(best[place], cost)
    return sum(best, Fraction(0))


def knapsack(strategy: Any) -> Fraction:
    """The costliest user of `toeplitz`: over all records of each key, records at the first trigger, full values."""
    p: Plan = strategy.plan
    selector, values = strategy.selector, published_mechanisms(strategy)

    def key_cost(records: int) -> Fraction:
        total = Fraction(0)
        used = dict(values)
        if selector is not None:
            used[0] = USERS  # the selection statistic of toeplitz is the users mechanism, published or not
        for source, column in used.items():
            value = strategy.values[source]
            counts_users = value.mechanism == "users"
            size = 1 if counts_users else records * column.bound
            total += column_square(value.factorization) * size**2 / Fraction(value.sigma) ** 2
        return total

    most = p.max_records if p.max_keys is None else min(p.max_keys, p.max_records)
    best: dict[int, Fraction] = {0: Fraction(0)}
    overall = Fraction(0)
    for _ in range(most):
        grown: dict[int, Fraction] = {}
        for used, cost in best.items():
            for records in range(1, min(p.max_records_per_key, p.max_records - used) + 1):
                candidate = cost + key_cost(records)
                grown[used + records] = max(grown.get(used + records, Fraction(0)), candidate)
        best = grown
        overall = max([overall, *best.values()])
    return overall


def test_the_costliest_user_costs_what_the_guarantee_says_and_no_more(strategy: Any) -> None:
    mu_squared = Fraction(strategy.guarantee.mu) ** 2
    worst = without_knapsack(strategy) if strategy.plan.strategy == "closing" else knapsack(strategy)
    assert worst <= mu_squared
    assert worst >= mu_squared * (1 - Fraction(1, 10**6) - Fraction(2, 100) * (strategy.bounding.weights is not None))


def test_delta_is_not_exceeded_and_hardly_wasted(strategy: Any) -> None:
    guarantee, p = strategy.guarantee, strategy.plan
    with mpmath.workdps(60):
        m, e = mpmath.mpf(guarantee.mu), mpmath.mpf(p.epsilon)
        gaussian = mpmath.ncdf(m / 2 - e / m) - mpmath.exp(e) * mpmath.ncdf(-m / 2 - e / m)
        failures = mpmath.mpf(0)
        if strategy.selector is not None:
            keys = strategy.describe()["keys_per_user"]
            one_test = mpmath.erfc(mpmath.mpf(strategy.selector.quantile) / mpmath.sqrt(2)) / 2
            failures = keys * 2 * p.triggers * one_test
            if strategy.lists is not None:
                failures += max(failures_at(strategy, Filter.of(strategy), mpmath.mpf(strategy.look.level)))
        assert p.delta * (1 - 1e-6) < gaussian + failures <= p.delta
        assert abs(failures - guarantee.delta_selection) <= 1e-6 * p.delta
        assert abs(gaussian - guarantee.delta_gaussian) <= 1e-6 * p.delta


def test_thresholds_are_those_of_the_formula(strategy: Any) -> None:
    """(mu + 1) * boundary height + z * std, rounded up; the matched filter likewise, its height over all paths."""
    selector, p = strategy.selector, strategy.plan
    if selector is None:
        pytest.skip("no selection")
    weights = strategy.bounding.weights
    height = [Fraction(1)] * p.triggers if weights is None else [Fraction(int(w), 1 << 20) for w in weights[0]]
    f = selector.factorization
    b, c = decoding_rows(f), strategy_matrix(f)
    g = [Fraction(int(v)) for v in selector._filter]
    grid = Fraction(1, 1 << selector.noise_bits)
    with mpmath.workdps(40):
        for t in range(1, p.triggers + 1):
            std = mpmath.mpf(selector.sigma) * mpmath.sqrt(float(sum(x * x for x in b[t - 1])))
            level = (p.minimum_users + 1) * float(max(height[:t])) + mpmath.mpf(selector.quantile) * std
            unit = 2.0**selector.decoder.fraction_bits
            threshold = int(selector._threshold[t - 1])
            assert level + 0.5 / unit <= threshold / unit < level * (1 + 1e-9) + 2.6 / unit
            paths = [height[r] * sum(g[s] * c[s][r] for s in range(r, t)) for r in range(t)]
            noise = mpmath.mpf(selector.quantile * selector.sigma) * mpmath.sqrt(float(sum(x * x for x in g[:t])))
            level = (p.minimum_users + 1) * float(max(paths)) + noise
            matched = int(selector._filter_threshold[t - 1]) * float(grid)
            assert level * (1 - 1e-12) <= matched <= level * (1 + 1e-5)


RECORDS = st.lists(
    st.tuples(st.integers(1, 6), st.integers(0, 4), st.integers(0, 6), st.integers(-50, 50)), min_size=1, max_size=60
)  # (trigger, user, key, value)
PUBLIC = st.lists(st.sets(st.integers(0, 6)), min_size=6, max_size=6)
"""Public keys by trigger, only heeded where there is a lag: any sets, as an adversary would wish the output to be."""


POPULARITY = (1, 1, 1, 2, 10, 1 << 20, 3)


def contributions(
    strategy: Any, records: list[tuple[int, int, int, int]], public: list[set[int]]
) -> dict[tuple[str, int], dict[int, int]]:
    """(mechanism, key) -> increments by trigger, through the real caps; "gate" counts users with positive weight."""
    out: dict[tuple[str, int], dict[int, int]] = defaultdict(lambda: defaultdict(int))
    state = UserKeys.empty(5)
    for trigger in range(1, strategy.plan.triggers + 1):
        rows = sorted([r for r in records if r[0] == trigger], key=lambda r: r[1])
        user, key = (np.array([r[i] for r in rows], np.int32) for i in (1, 2))
        known = None if strategy.bounding.lag is None else np.isin(key, sorted(public[trigger - 1]))
        got = strategy.bounding.close(user, key, np.full(5, trigger, np.int32), state, known)
        state = got.state
        for i, (_, _, k, value) in enumerate(rows):
            out["selection", k][trigger] += int(got.weight[i])
            out["gate", k][trigger] += int(got.weight[i] > 0)
            out["users", k][trigger] += int(got.first[i])
            out["count", k][trigger] += int(got.kept[i])
            out["sum", k][trigger] += value if got.kept[i] else 0
    if strategy.lists is not None:
        # Units as units have: anything from 1 to 2^20, whatever is published.
        unit = np.array([k in public[trigger - 1] for k in range(7)]) * (((1 << 20) - 1) // np.array(POPULARITY) + 1)
        weights = strategy.lists.weigh(state.indptr, unit[state.key])
        for kind, put in zip(("closing/unknown", "closing/public"), weights, strict=True):
            for k, w in zip(state.key.tolist(), put.tolist(), strict=True):
                out[kind, k][trigger] += w
                out["closing gate", k][trigger] += kind == "closing/unknown" and w > 0
    return out


def cost_of_a_user(
    strategy: Any, records: list[tuple[int, int, int, int]], user: int, public: list[set[int]]
) -> Fraction:
    """The squared shift of all mechanisms by one user's records, in standard deviations of their noise; gates are checked, too."""
    with_user = contributions(strategy, records, public)
    without = contributions(strategy, [r for r in records if r[1] != user], public)
    keys = {key for _, key in with_user}

    def difference(kind: str, key: int) -> dict[int, int]:
        a, b = with_user[kind, key], without[kind, key]
        return {t: a[t] - b[t] for t in {*a, *b}}

    cost = Fraction(0)
    selector = strategy.selector
    for key in keys:
        if selector is not None:
            x = {t: Fraction(v, 1 << 20) for t, v in difference("selection", key).items()}
            assert all(v * 2**UNIT_BITS % 1 == 0 for v in x.values()), "weights must be on the noise grid"
            cost += shift(selector.factorization, x) / Fraction(selector.sigma) ** 2
        for source, column in published_mechanisms(strategy).items():
            value = strategy.values[source]
            if value.mechanism == "users":
                if selector is not None and strategy.bounding.weights is None:
                    continue  # the same release as the selection statistic
                kind = "users"
            else:
                kind = column.kind
            x = {t: Fraction(v) for t, v in difference(kind, key).items()}
            cost += shift(value.factorization, x) / Fraction(value.sigma) ** 2
    if strategy.lists is not None:
        for kind, sigma in (
            ("closing/unknown", strategy.look.unknown_sigma),
            ("closing/public", strategy.look.public_sigma),
        ):
            moved = [sum(difference(kind, key).values()) for key in keys]
            cost += sum(n * n for n in moved) / (Fraction(sigma) * 2**20) ** 2
        opened = [sum(difference("closing gate", key).values()) for key in keys]
        assert all(gate in (0, 1) for gate in opened)
        assert sum(opened) <= strategy.plan.parameters.keys
    gates = [sum(difference("gate", key).values()) for key in keys]
    assert all(gate in (0, 1) for gate in gates)
    assert sum(gates) <= strategy.describe()["keys_per_user"]
    return cost


@settings(max_examples=60, deadline=None)
@given(records=RECORDS, user=st.integers(0, 4), public=PUBLIC)
def test_removing_one_user_moves_the_mechanisms_at_most_by_their_sensitivity(
    strategy: Any, records: list[tuple[int, int, int, int]], user: int, public: list[set[int]]
) -> None:
    assert cost_of_a_user(strategy, records, user, public) <= Fraction(strategy.guarantee.mu) ** 2


@pytest.mark.parametrize(("keys", "own"), [(20, NO_LAST_LOOK), (8, {})])
def test_weights_use_the_whole_column(keys: int, own: dict[str, Any]) -> None:
    """A late key weighs more, by just what its shorter column saves; never more than the sensitivity allows."""
    strategy: Any = build_strategy(plan("closing", (VISITS,), triggers=40, max_records=32, ranked_keys=keys, **own))
    f, weights = strategy.selector.factorization, strategy.bounding.weights
    full = column_square(f)
    worst = sum(
        max(Fraction(int(w), 1 << 20) ** 2 * column_square(f, t) for t, w in enumerate(row, 1)) for row in weights
    )
    assert full * Fraction(98, 100) < worst <= full
    assert (np.diff(weights, axis=0) <= 0).all()
    assert (np.diff(weights, axis=1) >= 0).all()
    assert weights[0, -1] / weights[0, 0] == pytest.approx(math.sqrt(full), rel=2e-3)


def test_selection_and_values_share_a_budget_where_they_cannot_both_be_attacked() -> None:
    """At 8 records per key the joint worst case is 36/64 of the sum of the two, so the noise is a quarter smaller."""
    p = plan("toeplitz", (VISITS,), max_records=32, max_records_per_key=8)
    strategy: Any = build_strategy(p)
    separately = math.sqrt(32 * strategy.values[0].factorization.col2 / 0.5) / strategy.guarantee.mu
    assert strategy.values[0].sigma / separately == pytest.approx(math.sqrt(36 / 64), rel=1e-6)


def test_known_thresholds() -> None:
    """epsilon 6, delta 1e-9, 32 keys per user: 92 users at the last of 100 triggers, 83 if they come steadily."""
    p = plan("toeplitz", (VISITS,), triggers=100, epsilon=6.0, delta=1e-9, max_records=32)
    described = build_strategy(p).describe()["selection"]
    assert described["threshold_last"] == pytest.approx(92.5, abs=0.1)
    assert described["matched_threshold_last"] == pytest.approx(83.3, abs=0.1)


class TestPlan:
    @pytest.mark.parametrize(
        ("field", "value"),
        [
            ("triggers", 0),
            ("epsilon", 0.0),
            ("epsilon", math.inf),
            ("delta", 0.0),
            ("delta", 1.0),
            ("max_records", 0),
            ("max_records_per_key", 7),
            ("max_keys", 0),
            ("minimum_users", -1),
            ("gaussian_delta_fraction", 1.0),
            ("selection_share", 0.0),
            ("columns", ()),
            ("columns", (VISITS, VISITS)),
            ("columns", (Column(name="x", kind="count", bound=2),)),
            ("columns", (Column(name="x", kind="sum", bound=0),)),
            ("strategy", "laplace"),
        ],
    )
    def test_refusals_name_the_field(self, field: str, value: Any) -> None:
        fields: dict[str, Any] = {"strategy": "toeplitz", "columns": (VISITS,), field: value}
        with pytest.raises(ConfigurationError, match=field):
            plan(fields.pop("strategy"), fields.pop("columns"), **fields)

    @pytest.mark.parametrize(
        ("field", "value"),
        [
            ("gamma", 1.0),
            ("ranked_keys", 0),
            ("prior", (0.5, 0.6)),
            ("prior", ()),
            ("lag", 0),
            ("unknown_share", 0.0),  # with a share for the public keys: half a last look
            ("public_share", 0.0),
            ("unknown_share", -0.1),
            ("public_share", 1.0),
            ("keys", 0),
        ],
    )
    def test_refusals_name_the_parameter(self, field: str, value: Any) -> None:
        with pytest.raises(ConfigurationError, match=field):
            plan("closing", (VISITS,), **{field: value})

    def test_digest_changes_with_every_field(self) -> None:
        base = plan("toeplitz", (VISITS,))
        others = [
            plan("toeplitz", (VISITS,), **{field: value})
            for field, value in {
                "triggers": 7,
                "epsilon": 2.5,
                "delta": 2e-6,
                "max_records": 7,
                "max_records_per_key": 2,
                "max_keys": 3,
                "minimum_users": 1,
                "discover": False,
                "gaussian_delta_fraction": 0.6,
                "selection_share": 0.6,
            }.items()
        ]
        others += [
            plan("closing", (VISITS,)),
            plan("closing", (VISITS,), lag=2),
            plan("closing", (VISITS,), gamma=0.7),
            plan("closing", (VISITS,), prior=(1.0,)),
            plan("closing", (VISITS,), ranked_keys=3),
            plan("closing", (VISITS,), **NO_LAST_LOOK),
            plan("closing", (VISITS,), unknown_share=0.2),
            plan("closing", (VISITS,), public_share=0.2),
            plan("closing", (VISITS,), keys=12),
            plan("closing", (VISITS,), filter_weight=0.6),
            plan("toeplitz", (USERS,)),
            plan("toeplitz", (BYTES,)),
        ]
        assert len({base.digest(), *(other.digest() for other in others)}) == len(others) + 1
        assert base.digest() == plan("toeplitz", (VISITS,)).digest()
        assert len(base.digest()) == 32

    def test_digest_is_pinned(self) -> None:
        assert plan("toeplitz", (VISITS,)).digest().hex()[:16] == "f53e14c69129481d"

    @pytest.mark.parametrize("own", [{}, NO_LAST_LOOK], ids=["closing", "no last look"])
    def test_weights_need_something_to_select(self, own: dict[str, Any]) -> None:
        with pytest.raises(ConfigurationError, match=r"closing.*discover"):
            build_strategy(plan("closing", (VISITS,), discover=False, **own))

    @pytest.mark.parametrize(
        ("strategy", "column", "changes"),
        [
            ("closing", VISITS, {"epsilon": 0.001}),
            ("closing", VISITS, {"epsilon": 0.001, **NO_LAST_LOOK}),
            ("closing", VISITS, {"epsilon": 0.01, "gamma": 0.9, **NO_LAST_LOOK}),
            ("closing", VISITS, {"epsilon": 0.05, "gamma": 0.9, "discovery_share": 0.02, **NO_LAST_LOOK}),
            ("dp-sqlp", VISITS, {"epsilon": 1e-4}),
            ("dp-sqlp", VISITS, {"epsilon": 0.005, "max_records": 65_536}),
            # Nodes on a grid coarser than the data's would show the low bits of exact sums.
            (
                "dp-sqlp",
                Column(name="paid", kind="sum", bound=10**6),
                {"epsilon": 0.05, "max_records": 2_000},
            ),
        ],
    )
    def test_noise_that_cannot_be_drawn_is_refused_at_the_start(
        self, strategy: str, column: Column, changes: dict[str, Any]
    ) -> None:
        """A release that halts at the first key whose gate opens would tell when the first user brought one."""
        with pytest.raises(ConfigurationError, match="noise: scale="):
            build_strategy(plan(strategy, (column,), **({"triggers": 96, "delta": 1e-9, "max_records": 32} | changes)))

    @pytest.mark.parametrize(
        ("strategy", "own", "too_noisy"),
        [
            ("toeplitz", {}, ()),
            ("closing", {}, (1e-4, 0.003, 0.004)),
            ("closing", NO_LAST_LOOK, (1e-4, 0.003, 0.004)),
            ("dp-sqlp", {}, (1e-4,)),
        ],
        ids=["toeplitz", "closing", "no last look", "dp-sqlp"],
    )
    @pytest.mark.parametrize("epsilon", [1e-4, 0.003, 0.004, 0.02, 0.1, 100.0])
    def test_what_can_be_built_can_be_drawn(
        self, strategy: str, own: dict[str, Any], too_noisy: tuple[float, ...], epsilon: float
    ) -> None:
        given = plan(strategy, (VISITS, BYTES), triggers=96, delta=1e-9, max_records=32, epsilon=epsilon, **own)
        if epsilon in too_noisy:
            with pytest.raises(ConfigurationError, match="noise: scale="):
                build_strategy(given)
            return
        built = build_strategy(given)
        noise = NoiseSource(b"s" * 32, epoch=b"e", config=b"c", pipeline="p").window(0)
        many = np.array([1, 10**6], np.int64)
        lists = ListSums(users=many, weight=many << 20, public_weight=many, unit=many)
        increments = Increments(users=many, weight=many << 20, sums=np.stack([many, many], axis=1), lists=lists)
        keys, states, undeclared = [b"a", b"b"], built.empty(2), np.zeros(2, np.bool_)
        for trigger in (1, 2, 96):
            states = built.step(trigger, keys, states, increments, noise, undeclared).states

    def test_the_sentence_has_the_numbers(self) -> None:
        sentence = build_strategy(plan("toeplitz", (VISITS,))).guarantee.sentence()
        assert "e^2" in sentence
        assert "1e-06" in sentence
