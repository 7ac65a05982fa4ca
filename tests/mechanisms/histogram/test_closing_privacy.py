"""The privacy loss of stream, closing rows and public rows together, sampled in both directions; broken weights exceed it."""

import math
from fractions import Fraction
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from susurrus.mechanisms.accounting import delta_gaussian
from susurrus.mechanisms.histogram.bounding import UserKeys
from susurrus.mechanisms.histogram.strategy import Increments
from susurrus.mechanisms.histogram.user_lists import ListWeights
from tests.mechanisms.histogram.closing_cases import ONE, closing, drawn, window
from tests.mechanisms.histogram.test_closing_accounting import list_costs, rank_cost
from tests.mechanisms.histogram.test_closing_lists import BROKEN, Rule
from tests.samples import samples

FAMOUS, OBSCURE = 15, 16
"""Keys of the user that were declared, and that no other user brings."""


def privacy_loss(strategy: Any, *, present: bool, trials: int, rule: Rule) -> npt.NDArray[np.float64]:
    """ln of how much more likely the noisy vectors are with what was (user present) or without what was not (absent).

    Before the last trigger as in test_ranks.py: at every other trigger one new key, named with probability about one
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
        ("unknown", "public"), (strategy.look.unknown_sigma, strategy.look.public_sigma), weights, strict=True
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
        discovery_share=0.3,
        unknown_share=0.35,
        public_share=0.3,
        keys=6,
    )
    mu = math.sqrt(rank_cost(strategy, 1) + sum(list_costs(strategy)))
    epsilon = 1.0
    real: Rule = ListWeights.weigh
    loss = privacy_loss(strategy, present=present, trials=samples(2500), rule=BROKEN.get(rule, real))
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
