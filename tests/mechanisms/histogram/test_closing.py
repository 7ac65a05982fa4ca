"""The joint test at the last trigger, against its definition in fractions, and what breaks where it is broken.

A key is named if more than minimum_users users weigh it and closing statistic + lambda * matched filter reaches the level, the same
for every key: also for those that the stream never saw, or whose gate in the stream is shut. Each planted defect names keys of one
user more often than the failure probabilities allow, or follows exact counts.
"""

import math
from collections.abc import Callable
from fractions import Fraction
from typing import Any

import mpmath
import numpy as np
import pytest
from scipy import stats

from susurrus.mechanisms.errors import ConfigurationError
from susurrus.mechanisms.histogram.bounding import UserKeys
from susurrus.mechanisms.histogram.user_lists import ListWeights
from tests.mechanisms.histogram.closing_cases import (
    ONE,
    PAID,
    USERS,
    Bools,
    Filter,
    Ints,
    at_the_end,
    closing,
    drawn,
    failures_at,
    level,
    lists_of,
    names,
    stream_noise,
    sums_of,
    window,
)
from tests.samples import samples

STRATEGIES = {
    "defaults": closing(triggers=100, epsilon=6.0, delta=1e-9, max_records=36),
    "one trigger": closing(triggers=1),
    "two triggers": closing(triggers=2, minimum_users=3),
    "several columns": closing(
        (USERS, PAID), triggers=12, max_records=20, max_records_per_key=3, minimum_users=2, lag=2, keys=12
    ),
    "one key each": closing(triggers=12, epsilon=8.0, delta=0.4, keys=1, ranked_keys=1),
    "a heavy filter": closing(triggers=12, filter_weight=5.0, gamma=0.5),
    "no filter": closing(triggers=12, filter_weight=0.0),
}


@pytest.fixture(params=STRATEGIES.values(), ids=STRATEGIES.keys(), scope="module")
def strategy(request: pytest.FixtureRequest) -> Any:
    return request.param


def tail(z: Any) -> Any:
    """P(a standard normal number is at least z), of the working precision."""
    return mpmath.erfc(z / mpmath.sqrt(2)) / 2


class TestLevel:
    def test_is_boundary_and_quantile_rounded_up(self, strategy: Any) -> None:
        exact = level(strategy, Filter.of(strategy))
        with mpmath.workdps(60):
            assert exact <= strategy.look.level <= exact * (1 + mpmath.mpf(10) ** -6)

    def test_no_user_passes_with_more_than_the_share_whatever_its_keys(self, strategy: Any) -> None:
        """By the number of its keys at the boundary, the exact tails of all of them together; for the dearest user hardly less."""
        passed = failures_at(strategy, Filter.of(strategy), mpmath.mpf(strategy.look.level))
        share = strategy.guarantee.delta_selection / 2
        assert max(passed) <= share
        assert max(passed) > share * (1 - 1e-6)

    def test_heights_are_what_a_user_can_add_to_the_filter_by_each_rank(self, strategy: Any) -> None:
        """At every trigger of arrival, and at the worst of them hardly less."""
        filtered = Filter.of(strategy)
        heights = strategy.look.filter_heights.tolist()
        assert len(heights) == strategy.lists.keys
        for found, exact in zip(
            heights, [*filtered.heights, *[Fraction(0)] * len(heights)][: len(heights)], strict=True
        ):
            assert exact <= Fraction(found) <= exact * Fraction(10**9 + 1, 10**9)

    def test_known_levels(self) -> None:
        """Of a hundred triggers, in users who bring a key once and have no other: by the share of mu^2 that is kept for them."""
        constants = {"triggers": 100, "epsilon": 6.0, "delta": 1e-9, "max_records": 36}
        levels = [
            closing(unknown_share=share, filter_weight=0.7, **constants).look.level for share in (0.05, 0.13, 0.4)
        ]
        assert levels == pytest.approx([34.05, 23.67, 17.64], abs=0.01)


def mixed(strategy: Any, size: int) -> tuple[Ints, Ints, Ints, Ints]:
    """(the stream's users, their weight by trigger, users with closing weight, closing weight) of keys near every test.

    By number modulo 6: steady; in one burst; never in the stream; gate of the stream shut, but for weight; gate of the lists shut;
    a billion users at the last trigger, whose filter 64 bits do not hold.
    """
    rng, T, gate = np.random.default_rng(3), strategy.plan.triggers, strategy.plan.minimum_users
    kind = np.arange(size) % 6
    filtered = rng.uniform(0, 1.2, size) * strategy.selector.matched_level[-1]
    filtered[kind == 2] = 0
    steady = np.repeat(filtered[:, None] / T, T, axis=1)
    burst = np.zeros((size, T))
    burst[np.arange(size), rng.integers(0, T, size)] = filtered
    weight = np.where((kind == 1)[:, None], burst, steady)
    weight[kind == 5, -1] = 10**9
    users = np.where(kind == 3, gate, gate + 1 + rng.integers(0, 50, size)) * (kind != 2)
    listed = np.where(kind == 4, gate, gate + 1 + rng.integers(0, 50, size))
    deviation = math.hypot(
        strategy.look.unknown_sigma, strategy.look.filter_weight * float(strategy.selector.matched_std[-1])
    )
    missing = strategy.look.level - strategy.look.filter_weight * filtered + rng.normal(0, 1.5, size) * deviation
    # In units of 2^-20; the stream's weights are multiples of 2^8 of them.
    return users, (weight * 2**12).astype(np.int64) << 8, listed, np.maximum(missing * ONE, 0).astype(np.int64)


class TestDecisions:
    SIZE = 1200

    def test_are_those_of_the_definition_for_every_sort_of_key(self, strategy: Any) -> None:
        """Statistic and filter in fractions, with every draw from its address."""
        size = self.SIZE // (8 if strategy.plan.triggers > 12 else 1)
        users, weight, listed, closing_weight = mixed(strategy, size)
        lists, noise, keys = lists_of(listed, closing_weight), window(), names(size)
        step = at_the_end(strategy, lists, users=users, weight=weight)
        alone = at_the_end(strategy, lists, users=users, weight=weight, stream=True).published
        filtered = Filter.of(strategy)
        z = stream_noise(strategy, keys, noise).tolist()
        f = drawn(strategy, "unknown", strategy.look.unknown_sigma, keys, noise)
        closing_part = [Fraction(int(total), ONE) for total in closing_weight + f]
        filter_part = [filtered.of_key(strategy, row, z[i]) for i, row in enumerate(weight.tolist())]
        weighed = Fraction(strategy.look.filter_weight)
        joint = np.array([float(s + weighed * m) for s, m in zip(closing_part, filter_part, strict=True)])
        exact = float(level(strategy, filtered))
        assert np.abs(joint / exact - 1).min() > 1e-5, "no key so near that rounding decides"
        passes = (listed > strategy.plan.minimum_users) & (joint >= exact)
        assert step.published.tolist() == (alone | passes).tolist()
        kind = np.arange(size) % 6
        for sort in (0, 1, 2, 3):
            of = (kind == sort) & ~alone
            assert passes[of].any(), f"sort={sort}: the lists must find some"
            assert not passes[of].all(), f"sort={sort}: the lists must not find all"
        assert (joint[kind == 4] >= exact).any(), "some keys are held back by nothing but their gate"
        # Rows of new keys go on with the statistics that named them, and no other rows do.
        pooled = step.pooled_rows
        assert pooled is not None
        assert pooled.index.tolist() == np.flatnonzero(step.published).tolist()
        assert pooled.evidence[:, 0].tolist() == step.estimates[pooled.index, strategy.counting[0]].tolist()
        assert pooled.evidence[:, 1].tolist() == [int(closing_part[i] * ONE) for i in pooled.index.tolist()]
        expected = [float(filter_part[i] * ONE) for i in pooled.index.tolist()]
        assert pooled.evidence[:, 2].tolist() == pytest.approx(expected, rel=1e-14, abs=1.01)
        assert not pooled.evidence[:, 3].any()

    def test_never_with_the_gate_shut(self, strategy: Any) -> None:
        """However large noise, weight and filter."""
        gate, T = strategy.plan.minimum_users, strategy.plan.triggers
        listed = np.arange(60) % (gate + 2)
        weight = np.zeros((60, T), np.int64)
        weight[:, 0] = 10**7 * ONE
        step = at_the_end(strategy, lists_of(listed, np.full(60, 10**7 * ONE)), weight=weight)
        assert step.published.tolist() == (listed > gate).tolist()
        assert step.states.selected.tolist() == step.published.tolist()
        assert (step.due == np.where(step.published, 0, T + 1)).all()

    def test_do_not_depend_on_the_gate_of_the_stream(self, strategy: Any) -> None:
        """With lists, weight and noise as they are: whether the last user came that the stream's gate asks for shows nowhere."""
        _, weight, listed, closing_weight = mixed(strategy, 400)
        weight[np.arange(400) % 6 == 5] = 0
        lists, gate = lists_of(listed, closing_weight), strategy.plan.minimum_users
        shut, opened = (at_the_end(strategy, lists, users=np.full(400, n), weight=weight) for n in (gate, gate + 1))
        alone = at_the_end(strategy, lists, users=np.full(400, gate + 1), weight=weight, stream=True).published
        assert shut.published[~alone].tolist() == opened.published[~alone].tolist()
        assert shut.published.any()


# Failure probabilities, and defects that exceed them.

CERTAIN, DOUBT = -25.0, -8.0


def exceeds(hits: int, trials: int, beta: float) -> float:
    """Log of the p-value of the hypothesis that so many of these trials succeed with probability at most beta each."""
    return float(stats.binom.logsf(hits - 1, trials, beta))


def share(strategy: Any) -> float:
    """beta_f."""
    return float(strategy.guarantee.delta_selection / 2 / strategy.lists.keys)


def found(strategy: Any, lists: Any, **given: Any) -> Bools:
    """bool[k]: named by lists, not by the stream; where the joint test fails, this is what names the key."""
    named: Bools = at_the_end(strategy, lists, **given).published
    return named & ~at_the_end(strategy, lists, **given, stream=True).published


class TestBoundary:
    """Keys of one user, and as many others as the gates still keep shut; brought when it is worst."""

    KEYS = samples(12_000)

    def hits(self, strategy: Any) -> int:
        filtered, T = Filter.of(strategy), strategy.plan.triggers
        users = np.full(self.KEYS, strategy.plan.minimum_users + 1)
        worst = max(range(T), key=lambda r: filtered.gains[r] * int(strategy.bounding.weights[0, r]))
        weight = np.zeros((self.KEYS, T), np.int64)
        weight[:, worst] = users * strategy.bounding.weights[0, worst]
        return int(found(strategy, lists_of(users, users * ONE), users=users, weight=weight).sum())

    @staticmethod
    def strategy(**changes: Any) -> Any:
        fields: dict[str, Any] = {"triggers": 6, "epsilon": 8.0, "delta": 0.3, "keys": 1, "ranked_keys": 1} | changes
        return closing(**fields)

    @pytest.mark.statistical
    @pytest.mark.parametrize("minimum_users", [0, 3])
    def test_is_named_at_most_beta(self, minimum_users: int) -> None:
        strategy = self.strategy(minimum_users=minimum_users)
        assert exceeds(self.hits(strategy), self.KEYS, share(strategy)) > DOUBT

    @pytest.mark.statistical
    @pytest.mark.parametrize("minimum_users", [0, 3])
    def test_is_named_more_often_without_the_height_of_the_filter(self, minimum_users: int) -> None:
        strategy = self.strategy(minimum_users=minimum_users)
        strategy.look.level -= (minimum_users + 1) * strategy.look.filter_weight * float(Filter.of(strategy).height)
        assert exceeds(self.hits(strategy), self.KEYS, share(strategy)) < CERTAIN

    @pytest.mark.statistical
    def test_is_named_more_often_without_the_height_of_the_lists(self) -> None:
        strategy = self.strategy()
        strategy.look.level -= 1
        assert exceeds(self.hits(strategy), self.KEYS, share(strategy)) < CERTAIN

    @pytest.mark.statistical
    def test_is_named_more_often_without_the_noise_of_the_filter(self) -> None:
        """sigma_f alone under the root."""
        strategy = self.strategy()
        both = math.hypot(
            strategy.look.unknown_sigma, strategy.look.filter_weight * math.sqrt(Filter.of(strategy).variance)
        )
        strategy.look.level -= strategy.look.quantile * (both - strategy.look.unknown_sigma)
        assert exceeds(self.hits(strategy), self.KEYS, share(strategy)) < CERTAIN

    @staticmethod
    def many(**changes: Any) -> Any:
        return TestBoundary.strategy(keys=6, ranked_keys=6, max_records=6, **changes)

    def users_hit(self, strategy: Any, keys: int) -> int:
        """Users of whom any of so many keys is named that nobody else brings, each when that is worst for its rank."""
        filtered, T = Filter.of(strategy), strategy.plan.triggers
        users = self.KEYS // keys
        weights = strategy.bounding.weights[:keys]
        worst = [max(range(T), key=lambda r: filtered.gains[r] * int(row[r])) for row in weights]
        weight = np.zeros((users * keys, T), np.int64)
        for rank, when in enumerate(worst):
            weight[rank::keys, when] = weights[rank, when]
        own = np.full(users * keys, math.isqrt(ONE**2 // keys))
        brought = np.ones(users * keys, np.int64)
        named = found(strategy, lists_of(brought, own), users=brought, weight=weight)
        return int(named.reshape(users, keys).any(axis=1).sum())

    @pytest.mark.statistical
    @pytest.mark.parametrize("keys", [1, 2, 6])
    @pytest.mark.parametrize("epsilon", [1.0, 8.0], ids=["many keys are worst", "one key is worst"])
    def test_no_user_is_named_with_more_than_the_share_of_all_its_keys(self, epsilon: float, keys: int) -> None:
        strategy = self.many(epsilon=epsilon)
        whole = strategy.guarantee.delta_selection / 2
        assert exceeds(self.users_hit(strategy, keys), self.KEYS // keys, whole) > DOUBT

    @pytest.mark.statistical
    def test_a_level_for_one_key_alone_is_too_low(self) -> None:
        """The planted defect: as if a user had one key."""
        strategy = self.many(epsilon=1.0)
        whole, filtered = strategy.guarantee.delta_selection / 2, Filter.of(strategy)
        levels = np.linspace(0, strategy.look.level, 200)
        alone = [float(failures_at(strategy, filtered, mpmath.mpf(each))[0]) for each in levels]
        strategy.look.level = float(levels[np.searchsorted(-np.array(alone), -whole)])
        assert exceeds(self.users_hit(strategy, 6), self.KEYS // 6, whole) < CERTAIN

    @pytest.mark.statistical
    def test_a_level_as_if_every_key_had_the_lowest_rank_is_too_low(self) -> None:
        strategy = self.many()
        look = strategy.look
        heights = look.filter_heights
        look.level -= float(look.filter_weight * (heights[0] - heights[-1]) + 1 - 6**-0.5)
        whole = strategy.guarantee.delta_selection / 2
        assert exceeds(self.users_hit(strategy, 1), self.KEYS, whole) < CERTAIN


Measure = Callable[[Any, Ints, Ints], tuple[Ints, Ints]]
"""(strategy, indptr of the lists, the luck of each of their keys) -> users and weight per key."""


def in_order(strategy: Any, indptr: Ints, luck: Ints) -> tuple[Ints, Ints]:
    weight, _ = strategy.lists.weigh(indptr, np.zeros(len(luck), np.int64))
    return (weight > 0).astype(np.int64), weight


def by_luck(strategy: Any, indptr: Ints, luck: Ints) -> tuple[Ints, Ints]:
    """The list cut by weight: keys of which the stream's noise promised most come first."""
    order = np.lexsort((-luck, np.repeat(np.arange(len(indptr) - 1), np.diff(indptr))))
    users, weight = np.empty_like(luck), np.empty_like(luck)
    users[order], weight[order] = in_order(strategy, indptr, luck)
    return users, weight


def gate_before_cut(strategy: Any, indptr: Ints, luck: Ints) -> tuple[Ints, Ints]:
    """Keys behind the cut are counted, though they weigh nothing. Without any gate it is the same."""
    return np.ones(len(luck), np.int64), in_order(strategy, indptr, luck)[1]


class TestLongLists:
    """A user with many keys that nobody else brings, each as the others: at most `keys` of them may be named, beta_f each."""

    USERS, KEYS = samples(200), 200

    def hits(self, measure: Measure) -> tuple[int, int, float]:
        """(keys named, keys that may be named, the probability of each)."""
        strategy = closing(triggers=6, epsilon=0.5, delta=0.3, keys=4, ranked_keys=4)
        size = self.USERS * self.KEYS
        z = stream_noise(strategy, names(size), window()).astype(np.float64)
        luck = (z * strategy.selector._filter).sum(axis=1).astype(np.int64)
        users, weight = measure(strategy, np.arange(self.USERS + 1) * self.KEYS, luck)
        return int(found(strategy, lists_of(users, weight)).sum()), self.USERS * 4, share(strategy)

    @pytest.mark.statistical
    def test_cut_in_order_have_no_more_chances_than_they_pay_for(self) -> None:
        assert exceeds(*self.hits(in_order)) > DOUBT

    @pytest.mark.statistical
    @pytest.mark.parametrize("measure", [by_luck, gate_before_cut])
    def test_cut_otherwise_have_more(self, measure: Measure) -> None:
        assert exceeds(*self.hits(measure)) < CERTAIN


class TestOneOrder:
    """A key with a rank in the stream must be weighed at the end: else a key at the boundary holds the stream's whole crowd."""

    COPIES, CROWD, RANKS = samples(20_000), 15, 6

    def named(self, *, keys: int, present: bool) -> tuple[int, int, float]:
        """(keys named, keys, beta_f), where a crowd has the key as its last rank and one more user, if present, as its first.

        Through the real ranks and weights of lists. Every copy has keys and users of its own, so one stands for all of them.
        """
        strategy = closing(
            triggers=6, epsilon=1.0, delta=0.3, keys=self.RANKS, ranked_keys=self.RANKS, prior=(1.0,) * self.RANKS
        )
        strategy.lists = ListWeights(keys=keys, max_keys=1 << 16)
        # Key 0 is the one that counts; the others fill the ranks before it, one row of keys per user of the crowd.
        lists = [[*range(1 + u * self.RANKS, (u + 1) * self.RANKS), 0] for u in range(self.CROWD)]
        lists += [[0]] if present else []
        user = np.repeat(np.arange(len(lists)), [len(each) for each in lists]).astype(np.int32)
        key = np.concatenate(lists).astype(np.int32)
        none = np.zeros(len(key), np.bool_)
        state = UserKeys.empty(len(lists))
        got = strategy.bounding.close(user, key, np.ones(len(lists), np.int32), state, none)
        weight = np.zeros((self.COPIES, 6), np.int64)
        weight[:, 0] = got.weight[key == 0].sum()
        users = np.full(self.COPIES, (got.weight[key == 0] > 0).sum())
        unit = np.zeros(1 + key.max(), np.int64)
        sums = sums_of(strategy.lists, [np.array(each) for each in lists], unit)
        put = lists_of(np.full(self.COPIES, sums.users[0]), np.full(self.COPIES, sums.weight[0]))
        return int(found(strategy, put, users=users, weight=weight).sum()), self.COPIES, share(strategy)

    @pytest.mark.statistical
    def test_lists_that_keep_every_rank_have_open_gates_on_both_sides(self) -> None:
        without, with_user = (self.named(keys=self.RANKS, present=present)[0] for present in (False, True))
        assert without > self.COPIES / 20, "the key is named without the user, too"
        assert with_user > without / 2

    @pytest.mark.statistical
    def test_shorter_lists_have_a_boundary_key_with_a_crowd_in_its_filter(self) -> None:
        """Cf < Cs: without the user the gate is shut; with the user the crowd names the key."""
        assert self.named(keys=2, present=False)[0] == 0
        assert exceeds(*self.named(keys=2, present=True)) < CERTAIN

    @pytest.mark.parametrize("reverse", [False, True])
    def test_every_rank_is_weighed_at_the_end_if_lists_are_in_order(self, reverse: bool) -> None:
        """Whatever is public since when, and whatever the ledger drops. reverse: planted, lists cut from the other end."""
        rng, users, T = np.random.default_rng(1), 300, 6
        strategy = closing(triggers=T, ranked_keys=3, keys=3, max_records=2)
        since = rng.integers(1, 3 * T, (users, 12))
        state, stream, dropped = UserKeys.empty(users), np.zeros((users, 12), np.int64), 0
        for trigger in range(1, T + 1):
            user = np.repeat(np.arange(users, dtype=np.int32), rng.integers(0, 4, users))
            key = rng.integers(0, 12, len(user)).astype(np.int32)
            got = strategy.bounding.close(
                user, key, np.full(users, trigger, np.int32), state, since[user, key] < trigger
            )
            state, dropped = got.state, dropped + int((got.listed & ~got.kept).sum())
            np.add.at(stream, (user, key), got.weight)
        owner = np.repeat(np.arange(users), np.diff(state.indptr))
        unit = np.where(since[owner, state.key] < T, ONE, 0)
        order = np.lexsort((-np.arange(len(owner)), owner)) if reverse else np.arange(len(owner))
        weight = np.empty(len(owner), np.int64)
        weight[order] = strategy.lists.weigh(state.indptr, unit[order])[0]
        ranked = (stream[owner, state.key] > 0) & (unit == 0)
        assert dropped > 100
        assert (weight[ranked] > 0).all() != reverse

    def test_they_are_refused(self) -> None:
        with pytest.raises(ConfigurationError, match=r"keys=5: must be at least ranked_keys=6"):
            closing(keys=5, ranked_keys=6)


def one_user_decides(without: Bools, with_user: Bools, mu: float) -> bool:
    """Whether these two runs differ by more than mu-GDP allows one user; a frequency below ten runs is taken for ten."""
    least = 10 / len(without)
    return bool(stats.norm.ppf(with_user.mean()) > stats.norm.ppf(max(without.mean(), least)) + mu)


@pytest.mark.statistical
def test_a_joint_test_for_keys_of_the_stream_only_would_follow_one_user() -> None:
    """Many lists have the key, beyond every rank; one more user has it as a rank and opens the gate of the stream.

    No gate of the lists is at its boundary, so no failure probability pays for a difference. Planted: keys whose gate in the stream
    is shut are not tested.
    """
    strategy, size, listed = closing(triggers=6, epsilon=2.0), 2000, 36
    named, planted = [], []
    for present in (0, 1):
        weight = np.zeros((size, 6), np.int64)
        weight[:, 0] = present * strategy.bounding.weights[0, 0]
        lists = lists_of(np.full(size, listed + present), np.full(size, (listed + present) * ONE))
        named.append(found(strategy, lists, users=np.full(size, present), weight=weight))
        planted.append(named[-1] & (present > strategy.plan.minimum_users))
    assert 0.05 < named[0].mean() < 0.95, "neither all nor none, or nothing could be seen"
    assert not one_user_decides(named[0], named[1], strategy.guarantee.mu)
    assert one_user_decides(planted[0], planted[1], strategy.guarantee.mu)
