"""Counts by bucket: norms, decoding, noise and steps, against dense matrices and exact fractions."""

import itertools
import math
from collections.abc import Iterator
from fractions import Fraction
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from susurrus.mechanisms.calendar import Trigger
from susurrus.mechanisms.errors import ConfigurationError
from susurrus.mechanisms.histogram import cells as module
from susurrus.mechanisms.histogram.cells import Cells, bucket_exponent, covariances, rank_variances
from susurrus.mechanisms.histogram.factorization import FIXED, Factorization
from susurrus.mechanisms.histogram.plan import Column, Plan
from susurrus.mechanisms.histogram.registry import build_strategy, plan_of
from susurrus.mechanisms.histogram.sparse import pack_counts, unpack_counts
from susurrus.mechanisms.histogram.strategy import Increments
from susurrus.mechanisms.noise import NoiseSource, WindowNoise
from tests.mechanisms.histogram.dense_matrices import decoding_rows, float_matrix, strategy_matrix
from tests.mechanisms.histogram.test_step import lists_for
from tests.reference import NO_LAST_LOOK

USERS = Column(name="users", kind="users")
BYTES = Column(name="bytes", kind="sum", bound=50)
LATENCY = Column(name="latency/buckets", kind="cells", buckets=6)
SIZES = [(1, 2), (3, 4), (6, 5), (4, 16), (2, 33)]


def window(name: str = "p") -> WindowNoise:
    return NoiseSource(b"k" * 32, epoch=b"e", config=b"c", pipeline=name).window(0)


def column_of(cells: Cells, trigger: int, bucket: int) -> list[Fraction]:
    """The column of C_time (x) C_bucket of one record; both from 0 on."""
    time, over = strategy_matrix(cells.factorization), strategy_matrix(cells.over_buckets)
    return [row[trigger] * inner[bucket] for row in time for inner in over]


@pytest.mark.parametrize(("triggers", "buckets"), SIZES)
def test_the_decoder_inverts_the_strategy_matrix(triggers: int, buckets: int) -> None:
    cells = Cells("x", triggers=triggers, buckets=buckets, cost=0.5)
    for factorization in (cells.factorization, cells.over_buckets):
        c = strategy_matrix(factorization)
        for row in range(factorization.triggers):
            numerators, denominator = factorization.row_exact(row + 1)
            product = [
                sum((Fraction(numerators[k], denominator) * c[k][column] for k in range(row + 1)), Fraction(0))
                for column in range(factorization.triggers)
            ]
            assert product == [Fraction(int(column <= row)) for column in range(factorization.triggers)]
    # So (B (x) B) (C (x) C) = A (x) A: the Kronecker product of the products.


@pytest.mark.parametrize(("triggers", "buckets"), SIZES[:3])
def test_no_two_records_move_the_release_by_more_than_their_cost(triggers: int, buckets: int) -> None:
    cells = Cells("x", triggers=triggers, buckets=buckets, cost=0.25)
    places = list(itertools.product(range(triggers), range(buckets)))
    columns = {place: column_of(cells, *place) for place in places}
    unit = Fraction(0.25) * Fraction(cells.sigma) ** 2
    worst = {}
    for number in (1, 2):
        squares = []
        for chosen in itertools.combinations_with_replacement(places, number):
            together = [sum(values) for values in zip(*(columns[place] for place in chosen), strict=True)]
            squares.append(sum((value * value for value in together), Fraction(0)))
        worst[number] = max(squares)
    assert worst[1] <= unit
    assert worst[2] <= 4 * unit
    # Both bounds are met: two records of one bucket at the first trigger.
    assert float(worst[1] / unit) == pytest.approx(1, abs=1e-9)
    assert float(worst[2] / unit) == pytest.approx(4, abs=4e-9)


PLANS = {
    "toeplitz": plan_of(
        strategy="toeplitz", triggers=3, epsilon=2.0, delta=1e-6, columns=(USERS, BYTES, LATENCY), max_records=4,
        max_records_per_key=2,
    ),
    "toeplitz, cells alone": plan_of(
        strategy="toeplitz", triggers=4, epsilon=2.0, delta=1e-6, columns=(LATENCY,), max_records=3, discover=False
    ),
    "closing": plan_of(
        strategy="closing", triggers=5, epsilon=2.0, delta=1e-6, columns=(USERS, LATENCY), max_records=4,
        max_records_per_key=2, ranked_keys=2,
    ),
    "closing, no last look": plan_of(
        strategy="closing", triggers=5, epsilon=2.0, delta=1e-6, columns=(LATENCY,), max_records=4, ranked_keys=2,
        **NO_LAST_LOOK,
    ),
}  # fmt: skip


def first_square(mechanism: Any) -> Fraction:
    """|C e_1|^2 of a mechanism, both factors of cells."""

    def of(factorization: Factorization) -> Fraction:
        return sum((Fraction(n, 1 << factorization.bits) ** 2 for n in factorization.numerators), Fraction(0))

    square = of(mechanism.factorization)
    return square * of(mechanism.over_buckets) if isinstance(mechanism, Cells) else square


def costliest_user(plan: Plan) -> tuple[float, float]:
    """(mu^2 of the costliest user by enumeration of records per key at the first trigger, what the values may cost)."""
    strategy: Any = build_strategy(plan)
    bounds = {strategy.source[i]: column.bound for i, column in enumerate(plan.columns)}
    per_key = per_square = Fraction(0)
    for index, mechanism in enumerate(strategy.values):
        cost = Fraction(bounds.get(index, 1)) ** 2 * first_square(mechanism) / Fraction(mechanism.sigma) ** 2
        if mechanism.mechanism == "users":
            per_key += cost
        else:
            per_square += cost
    worst = Fraction(0)
    for records in range(1, plan.max_records + 1):
        for split in _splits(records, plan.max_records_per_key):
            worst = max(worst, sum((per_key + per_square * r * r for r in split), Fraction(0)))
    mu2 = strategy.guarantee.mu**2
    if plan.strategy == "closing":
        # Records at the first trigger cost the ledger most: as many as the capacity, one to a key.
        worst = plan.max_records * (per_key + per_square)
        mu2 *= plan.parameters.value_share  # type: ignore[attr-defined]
    return float(worst), mu2


def _splits(records: int, most: int) -> Iterator[list[int]]:
    if records == 0:
        yield []
    for first in range(1, min(records, most) + 1):
        for rest in _splits(records - first, most):
            yield [first, *rest]


@pytest.mark.parametrize("plan", PLANS.values(), ids=PLANS.keys())
def test_the_costliest_user_costs_what_the_guarantee_says(plan: Plan) -> None:
    worst, allowed = costliest_user(plan)
    assert worst <= allowed
    assert worst == pytest.approx(allowed, rel=1e-6)


def test_a_norm_of_the_buckets_that_is_forgotten_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    def forgetful(self: Cells, mechanism: str, **constants: Any) -> None:
        real(self, mechanism, **constants)
        self.sigma /= math.sqrt(self.over_buckets.col2)

    real = Cells.__init__
    monkeypatch.setattr(Cells, "__init__", forgetful)
    worst, allowed = costliest_user(PLANS["toeplitz, cells alone"])
    assert worst > 1.05 * allowed


@pytest.mark.parametrize("seed", range(3))
def test_a_user_within_the_ledger_stays_within_the_share(seed: int) -> None:
    """Random users of `closing`, through its caps, in any buckets and at any triggers."""
    strategy: Any = build_strategy(PLANS["closing"])
    ledger, rng = strategy.bounding.ledger, np.random.default_rng(seed)
    users, cells = strategy.values
    time, over = (float_matrix(f) for f in (cells.factorization, cells.over_buckets))
    of_users = float_matrix(users.factorization)
    for _ in range(200):
        triggers = np.sort(rng.integers(0, 5, 12))
        keys, buckets = rng.integers(0, rng.integers(1, 5), 12), rng.integers(0, 6, 12)
        spent, charged = np.zeros(4, np.int64), np.zeros(1, np.int64)
        kept = []
        for at in range(12):
            root = ledger.roots[triggers[at : at + 1]]
            free = np.array([sum(keys[i] == keys[at] for i in kept) < 2])
            fits, cost = ledger.admit(
                np.zeros(1, np.int32), root, keys[at : at + 1], np.zeros(1, np.int64), spent, charged, free
            )
            if fits[0]:
                kept.append(at)
                spent[keys[at]] += root[0]
                charged += cost
        total = 0.0
        for key in range(4):
            mine = [i for i in kept if keys[i] == key]
            x = np.zeros((5, 6))
            for i in mine:
                x[triggers[i], buckets[i]] += 1
            total += float(((time @ x @ over.T) ** 2).sum()) / cells.sigma**2
            if mine:
                total += float((of_users[:, triggers[mine[0]]] ** 2).sum()) / users.sigma**2
        assert total <= strategy.guarantee.mu**2 * strategy.plan.parameters.value_share


def exact(cells: Cells, z: npt.NDArray[np.int64], trigger: int, bucket: int) -> int:
    """RN of the decoded noise of one row, in fractions; trigger and bucket from 1 on."""
    time, over = decoding_rows(cells.factorization), decoding_rows(cells.over_buckets)
    value = sum(
        (time[trigger - 1][s] * over[bucket - 1][i] * int(z[s, i]) for s in range(trigger) for i in range(bucket)),
        Fraction(0),
    )
    return math.floor(value / (1 << cells.noise_bits) + Fraction(1, 2))


@pytest.mark.parametrize(("triggers", "buckets"), SIZES)
def test_noise_is_rounded_as_fractions_are(triggers: int, buckets: int) -> None:
    cells = Cells("x", triggers=triggers, buckets=buckets, cost=1e-3)
    z = np.random.default_rng(5).normal(0, cells.sigma * 2.0**cells.noise_bits, (8, triggers, buckets)).astype(np.int64)
    got = cells.rounded(z, 1, triggers)
    for row, t, j in itertools.product(range(len(z)), range(triggers), range(buckets)):
        wanted = exact(cells, z[row], t + 1, j + 1)
        assert got[row, t, j] == wanted
        assert cells.exactly(z[row].tolist(), t + 1, j + 1) == wanted
        assert cells.rationally(z[row].tolist(), t + 1, j + 1) == wanted
    assert (
        cells.rounded(z[:, : triggers - 1], triggers - 1, triggers - 1) == got[:, [triggers - 2]]
    ).all() or triggers == 1


def near_ties(cells: Cells, rows: int) -> npt.NDArray[np.int64]:
    """Noise whose decoded value at the last place is closer to a half-integer than float64 can tell: see test_rounding.py."""
    time, over = cells.factorization, cells.over_buckets
    T, B = time.triggers, over.triggers
    rng = np.random.default_rng(6)
    z = rng.normal(0, 2000 * 2.0**cells.noise_bits, (rows, T, B)).astype(np.int64)
    steps = np.arange(1 << 20, dtype=np.uint64)

    def rest(noise: npt.NDArray[np.int64]) -> int:
        return sum(
            time.decoder_fixed[T - 1 - s] * sum(over.decoder_fixed[B - 1 - i] * int(noise[s, i]) for i in range(B))
            for s in range(T)
        )

    for noise in z:
        noise[-1, -1] = 0
        shift = 2 * FIXED - 64
        start = np.uint64((rest(noise) >> shift) & ((1 << 64) - 1))
        step = np.uint64(((time.decoder_fixed[8] * over.decoder_fixed[0]) >> shift) & ((1 << 64) - 1))
        distance = np.abs((start + step * steps).view(np.int64).astype(np.float64))
        noise[-9, -1] += int(distance.argmin())
        whole = (rest(noise) + (1 << (2 * FIXED - 1))) >> (2 * FIXED)
        unit = 1 << cells.noise_bits
        noise[-1, -1] = unit // 2 - whole % unit
    return z


def test_near_ties_are_rounded_as_fractions_are(monkeypatch: pytest.MonkeyPatch) -> None:
    cells = Cells("x", triggers=12, buckets=6, cost=1e-3)
    z = near_ties(cells, 6)
    wanted = [exact(cells, noise, 12, 6) for noise in z]
    assert cells.rounded(z, 12, 12)[:, 0, -1].tolist() == wanted
    # Float64 alone errs: the nearest integer is one off in some of them.
    monkeypatch.setattr(Cells, "exactly", lambda self, z, trigger, bucket: 0)
    decided = cells.rounded(z, 12, 12)[:, 0, -1]
    assert (decided == 0).all()  # all of them were handed to exact integers


def test_one_more_trigger_or_bucket_changes_no_noise_before_it() -> None:
    cells = Cells("x", triggers=6, buckets=5, cost=0.01)
    keys = [b'"a"', b'"b"', b"7"]
    full = [cells.noise(t, "x", keys, window()) for t in range(1, 7)]
    forgetting = window()
    forgetting.memory_bytes = 0
    for t in (6, 2, 1, 4):
        assert (cells.noise(t, "x", keys, forgetting) == full[t - 1]).all()
        assert (cells.noise(t, "x", keys[1:2], forgetting) == full[t - 1][1:2]).all()
        assert (cells.noise(t, "x", keys[::-1], window()) == full[t - 1][::-1]).all()


@pytest.mark.statistical
def test_noise_has_the_covariances_that_intervals_use() -> None:
    cells = Cells("x", triggers=4, buckets=8, cost=0.01)
    keys = [b"%d" % i for i in range(40_000)]
    drawn = cells.noise(3, "x", keys, window()).astype(np.float64)
    assert (np.abs(drawn.mean(axis=0)) < 4.5 * cells.std[2] / 200).all()
    assert drawn.std(axis=0) == pytest.approx(cells.std[2], rel=0.02)
    wanted = covariances(8) / covariances(8)[-1, -1] * (cells.std[2, -1] ** 2 - 1 / 12)
    assert np.cov(drawn.T) == pytest.approx(wanted, abs=0.03 * wanted.max())
    share = 0.3
    ranks = drawn[:, :-1] - share * drawn[:, -1:]
    assert ranks.var(axis=0) == pytest.approx(rank_variances(wanted, share), rel=0.04)


@pytest.mark.statistical
def test_noises_of_two_triggers_have_the_covariance_that_rolling_views_use() -> None:
    cells = Cells("x", triggers=4, buckets=8, cost=0.01)
    noise, keys = window("two"), [b"%d" % i for i in range(30_000)]
    first, last = (cells.noise(trigger, "x", keys, noise).astype(np.float64) for trigger in (2, 4))
    found = (first * last).mean(axis=0)
    assert found == pytest.approx(cells.covariance(Trigger(2), Trigger(4)), rel=0.06)
    assert cells.covariance(Trigger(3), Trigger(3)) == pytest.approx(cells.std[2] ** 2 - 1 / 12, rel=1e-6)


def test_the_exponent_is_chosen_by_a_public_formula() -> None:
    for buckets in (2, 3, 8, 32, 64):
        noise = {}
        for exponent in module.EXPONENTS:
            factorization = module.power(buckets, exponent, module.BUCKET_BITS)
            b = factorization.decoder
            matrix = np.array([[b[j - i] if j >= i else 0 for i in range(buckets)] for j in range(buckets)])
            half = matrix[:-1] - 0.5 * matrix[-1]
            noise[exponent] = math.sqrt(factorization.col2) * np.sqrt((half**2).sum(axis=1)).mean()
        assert bucket_exponent(buckets) == min(noise, key=noise.__getitem__)


@pytest.mark.parametrize("name", ["toeplitz", "closing"])
def test_steps_are_exact_and_depend_on_nothing_else(name: str) -> None:
    """Against running counts and fractions; with chunks, storage, forgetting and another order of keys."""
    plan = PLANS[name]
    strategy: Any = build_strategy(plan)
    place = plan.places[-1]
    keys = [b"%d" % i for i in range(12)]
    declared = np.arange(12) % 2 == 0
    rng = np.random.default_rng(3)
    noise, forgetting = window(), window()
    forgetting.memory_bytes = 0
    states, other = strategy.empty(12), strategy.empty(12)
    counts = np.zeros((12, 6), np.int64)
    cells = strategy.values[-1]
    mechanism = f"{cells.mechanism}/{plan.digest().hex()}"
    z = noise.normal(
        noise.labels(mechanism, keys), 1, plan.triggers * 6, sigma=cells.sigma, bits=cells.noise_bits
    ).reshape(12, plan.triggers, 6)
    order = np.argsort([7 * i % 12 for i in range(12)])
    for trigger in range(1, plan.triggers + 1):
        users = rng.integers(0, 30, 12)
        sums = np.zeros((12, plan.width), np.int64)
        sums[:, 0] = users
        sums[np.arange(12), place.start + rng.integers(0, 6, 12)] = users
        counts += sums[:, place]
        increments = Increments(users=users, weight=users << 20, sums=sums, lists=lists_for(strategy, trigger, 12))
        step = strategy.step(trigger, keys, states, increments, noise, declared)
        states = strategy.unpack(strategy.pack(step.states))
        for row in np.flatnonzero(step.published).tolist():
            for j in range(6):
                wanted = int(counts[row, : j + 1].sum()) + exact(cells, z[row], trigger, j + 1)
                assert step.estimates[row, place][j] == wanted
            assert (step.std_errors[row, place] == cells.std[trigger - 1]).all()
        pieces = []
        for part in (order[:5], order[5:]):
            some = strategy.step(
                trigger,
                [keys[i] for i in part.tolist()],
                other.take(part),
                Increments(
                    users=users[part], weight=(users << 20)[part], sums=sums[part],
                    lists=None if increments.lists is None else increments.lists.take(part),
                ),
                forgetting,
                declared[part],
            )  # fmt: skip
            assert (some.estimates == step.estimates[part]).all()
            assert (some.published == step.published[part]).all()
            pieces.append(some.states)
        other = type(other).concatenate(pieces).take(np.argsort(order))


def test_the_store_has_the_buckets_that_are_not_empty() -> None:
    counts = np.zeros((3, 300), np.int64)
    counts[0, [0, 299]], counts[2, 7] = (1, -(2**60)), 5
    rows = pack_counts(counts, [b"a", b"", b"rest"])
    assert list(map(len, rows)) == [3 + 20 + 1, 3, 3 + 10 + 4]
    back, rest = unpack_counts(rows, 300)
    assert (back == counts).all()
    assert rest == [b"a", b"", b"rest"]
    assert unpack_counts([], 4)[0].shape == (0, 4)
    for bad in ([b"\1" + rows[0][1:]], [rows[0][:9]], [b""], [b"\2"]):
        with pytest.raises(ValueError, match="layout"):
            unpack_counts(bad, 300)
    with pytest.raises(ValueError, match="more buckets"):
        unpack_counts(rows, 200)


@pytest.mark.parametrize(
    ("columns", "said"),
    [
        ((LATENCY, USERS), "cells come after all others"),
        ((Column(name="x", kind="cells", buckets=1),), "buckets=1: must be 2"),
        ((Column(name="x", kind="count", buckets=2),), "1 for others"),
        ((Column(name="x", kind="cells", buckets=257),), "must be 2 to 256"),
    ],
)
def test_plans_that_cannot_be(columns: tuple[Column, ...], said: str) -> None:
    with pytest.raises(ConfigurationError, match=said):
        plan_of(strategy="toeplitz", triggers=3, epsilon=1.0, delta=1e-6, columns=columns, max_records=1)


def test_dp_sqlp_has_no_counts_by_bucket() -> None:
    plan = plan_of(strategy="dp-sqlp", triggers=3, epsilon=1.0, delta=1e-6, columns=(LATENCY,), max_records=1)
    with pytest.raises(ConfigurationError, match="use closing or toeplitz"):
        build_strategy(plan)


def test_digests_of_other_plans_do_not_know_of_buckets() -> None:
    assert "buckets" not in str(plan_of(
        strategy="toeplitz", triggers=3, epsilon=1.0, delta=1e-6, columns=(USERS, BYTES), max_records=1
    ).published())  # fmt: skip
    digests = {
        plan_of(
            strategy="toeplitz", triggers=3, epsilon=1.0, delta=1e-6, max_records=1,
            columns=(Column(name="x", kind="cells", buckets=buckets),),
        ).digest()
        for buckets in (4, 5)
    }  # fmt: skip
    assert len(digests) == 2
