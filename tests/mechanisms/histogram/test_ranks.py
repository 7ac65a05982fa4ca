"""Ranks that follow the output: every transcript keeps a user within the norm the noise was made for, a broken rule does not.

The broken rule, here `give_back`, returns a rank to its user once the key is public. Each key by itself would still be
weighed by the distribution, only one rank would be given more than once.
"""

import math
from dataclasses import replace
from fractions import Fraction
from itertools import product
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from susurrus.mechanisms.accounting import delta_gaussian
from susurrus.mechanisms.histogram.bounding import Bounded, UserKeys
from susurrus.mechanisms.histogram.plan import Column
from susurrus.mechanisms.histogram.registry import build_strategy, plan_of
from susurrus.mechanisms.histogram.strategy import Increments
from susurrus.mechanisms.noise import NoiseSource
from tests.reference import NO_LAST_LOOK

VISITS = Column(name="visits", kind="count")
ZERO = Fraction(0)


def stream(**changes: Any) -> Any:
    """`closing` without its last look: ranks, and values within a ledger."""
    fields: dict[str, Any] = {"triggers": 3, "epsilon": 2.0, "delta": 1e-6, "max_records": 6} | changes
    return build_strategy(plan_of(strategy="closing", columns=(VISITS,), **fields, **NO_LAST_LOOK))


def close(
    strategy: Any,
    trigger: int,
    user: npt.NDArray[np.int32],
    key: npt.NDArray[np.int32],
    state: UserKeys,
    public: npt.NDArray[np.bool_],
    *,
    give_back: bool,
) -> Bounded:
    """The real caps and ranks; public: bool[all keys]."""
    if give_back:
        state = replace(state, unranked=state.unranked | public[state.key])
    now = np.full(len(state.kept), trigger, np.int32)
    bounded: Bounded = strategy.bounding.close(user, key, now, state, public[key])
    return bounded


def exact_column(factorization: Any, trigger: int) -> list[Fraction]:
    """C e_t."""
    column = [Fraction(n, 1 << factorization.bits) for n in factorization.numerators]
    return [ZERO] * (trigger - 1) + column[: factorization.triggers - trigger + 1]


def column_squares(strategy: Any) -> list[Fraction]:
    """|C e_t|^2."""
    factorization = strategy.selector.factorization
    return [sum((c * c for c in exact_column(factorization, t + 1)), ZERO) for t in range(factorization.triggers)]


def made_for(strategy: Any) -> Fraction:
    """What sigma is derived from: each rank once, at its worst trigger."""
    columns = column_squares(strategy)
    rows = strategy.bounding.weights.tolist()
    return sum((max(Fraction(w, 1 << 20) ** 2 * c for w, c in zip(row, columns, strict=True)) for row in rows), ZERO)


def costliest(strategy: Any, *, give_back: bool) -> Fraction:
    """max sum over keys of |C dx_k|^2 over a trigger for each of four keys and the sets of public keys of any transcript.

    What is published stays published; each key may become public at the second or third trigger, or never. Each
    combination is a user with four keys of its own.
    """
    cases = np.array(list(product(product((1, 2, 3), repeat=4), product((2, 3, 4), repeat=4))))
    arrival, since = cases[:, 0].ravel(), cases[:, 1].ravel()
    weight = np.zeros(len(arrival), np.int64)
    state = UserKeys.empty(len(cases))
    for trigger in range(1, 4):
        key = np.flatnonzero(arrival == trigger).astype(np.int32)
        got = close(strategy, trigger, key // 4, key, state, since <= trigger, give_back=give_back)
        state, weight[key] = got.state, got.weight
    columns = column_squares(strategy)
    distinct = np.unique(np.stack([arrival, weight], axis=1).reshape(-1, 8), axis=0).reshape(-1, 4, 2)
    return max(sum(Fraction(w, 1 << 20) ** 2 * columns[t - 1] for t, w in user) for user in distinct.tolist())


@pytest.mark.parametrize("ranked", [1, 2, 3])
def test_no_transcript_makes_a_user_cost_more_than_the_noise_was_made_for(ranked: int) -> None:
    strategy = stream(ranked_keys=ranked)
    worst = costliest(strategy, give_back=False)
    assert made_for(strategy) * Fraction(999, 1000) < worst <= made_for(strategy)


@pytest.mark.parametrize("ranked", [1, 2, 3])
def test_a_rank_given_back_when_its_key_is_public_costs_more(ranked: int) -> None:
    strategy = stream(ranked_keys=ranked)
    assert costliest(strategy, give_back=True) > made_for(strategy) * Fraction(3, 2)


def privacy_loss(strategy: Any, *, present: bool, trials: int, give_back: bool) -> npt.NDArray[np.float64]:
    """ln of how much more likely the noisy vectors are with what was (user present) or without what was not (absent).

    At every other trigger the user brings one new key, and so many others bring it that it is named with probability
    about one half; a crowd at the next trigger has it named for sure. A trial is a copy with a user and keys of its own.
    """
    selector, T = strategy.selector, strategy.plan.triggers
    crowds, K = range(1, T, 2), T // 2
    names = [b"%d" % code for code in range(trials * K)]
    noise = NoiseSource(b"a" * 32, epoch=b"e", config=b"c", pipeline="p" if present else "q").window(0)
    states, state = strategy.empty(len(names)), UserKeys.empty(trials)
    published = np.zeros(len(names), np.bool_)
    shift = np.zeros((len(names), T))
    user, copy = np.arange(trials, dtype=np.int32), np.arange(trials, dtype=np.int32) * K
    for trigger in range(1, T + 1):
        number = (trigger - 1) // 2
        key = (copy + number).astype(np.int32)
        one = int(strategy.bounding.weights[0, trigger - 1])
        crowd = np.zeros(len(names), np.int64)
        crowd[key] = round(float(selector.level[trigger - 1]) * 2**20 / one) * (10 if trigger not in crowds else 1)
        weight = crowd * one
        if trigger in crowds:
            got = close(strategy, trigger, user, key, state, published, give_back=give_back)
            state = got.state
            weight[key] += got.weight * present
            column = np.array([float(c) for c in exact_column(selector.factorization, trigger)])
            shift[key] += got.weight[:, None] * 2.0**-20 * column
        given = Increments(users=crowd, weight=weight, sums=crowd[:, None])
        step = strategy.step(trigger, names, states, given, noise, np.zeros(len(names), np.bool_))
        states, published = step.states, published | step.published
    labels = noise.labels(strategy._selection_mechanism, names)
    z = noise.normal(labels, 1, T, sigma=selector.sigma, bits=selector.noise_bits) * 2.0**-selector.noise_bits
    sign = 1 if present else -1
    loss = ((2 * sign * z + shift) * shift).sum(axis=1) / (2 * selector.sigma**2)
    return loss.reshape(trials, K).sum(axis=1)


@pytest.mark.parametrize("give_back", [False, True])
@pytest.mark.parametrize("present", [True, False])
def test_the_noisy_vectors_hold_their_delta_and_a_rank_given_back_breaks_it(present: bool, give_back: bool) -> None:
    """delta(eps) = E[max(0, 1 - e^(eps - loss))] of everything selection draws on, for both directions of neighbours."""
    strategy = stream(triggers=8, epsilon=2.0, delta=0.2, ranked_keys=1, discovery_share=0.9)
    mu = math.sqrt(made_for(strategy)) / strategy.selector.sigma
    epsilon = 1.0
    loss = privacy_loss(strategy, present=present, trials=4000, give_back=give_back)
    sample = np.maximum(0.0, -np.expm1(epsilon - loss))
    estimate, error = sample.mean(), sample.std() / math.sqrt(len(sample))
    claim = delta_gaussian(mu, epsilon)
    if give_back:
        assert estimate > 2 * claim
    else:
        assert abs(estimate - claim) < 5 * error, "the user spends the rank in every transcript, so the claim is tight"
