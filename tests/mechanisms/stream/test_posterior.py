"""The Kalman and the dense form are one posterior; the mixture is the weighted posterior; state survives packing."""

from fractions import Fraction

import numpy as np
import pytest

from susurrus.mechanisms.kalman import BlockBank, BlockBanks, Filtered, mixture_weights
from susurrus.mechanisms.stream.posterior import (
    FIT_LIMIT,
    MOST,
    WIDENING,
    BlockNoise,
    Deviations,
    block_models,
    posterior,
    spreads,
    widened,
)

MODELS = block_models(256, 0.1)
TREES = [BlockNoise(4, 18.0, 30.0), BlockNoise(4, 9.0, 60.0), BlockNoise(1, 1.0, 5.0), BlockNoise(4, 18.0, 30.0)]


def released(seed: int) -> np.ndarray:
    rng = np.random.default_rng(seed)
    return 12 + np.cumsum(rng.normal(size=13)) + rng.normal(scale=4, size=13)


def step(bank: BlockBank, block: float, tree: BlockNoise, *, opens_tree: bool) -> Filtered:
    return bank.step(block, own=tree.own, new_common=tree.common if opens_tree else None)


def kalman(z: np.ndarray) -> tuple[list[Filtered], BlockBank]:
    bank, seen = BlockBank(MODELS), []
    for tree in TREES:
        for block in range(tree.blocks):
            seen.append(step(bank, float(z[len(seen)]), tree, opens_tree=block == 0))
    return seen, bank


@pytest.mark.parametrize("seed", range(3))
def test_kalman_equals_the_dense_posterior_of_every_running_sum(seed):
    z = released(seed)
    seen, _ = kalman(z)
    prefix = np.tril(np.ones((13, 13)))
    mean, std = posterior(MODELS, z, TREES, prefix, np.arange(1, 14))
    np.testing.assert_allclose([f.sum for f in seen], mean, rtol=1e-8)
    np.testing.assert_allclose([f.standard_error for f in seen], std, rtol=1e-6)


def test_the_dense_posterior_is_gaussian_conditioning():
    """One model at a time, against S (S + C)^-1 written out."""
    z = released(0)
    C = np.zeros((13, 13))
    place = 0
    for tree in TREES:
        C[place : place + tree.blocks, place : place + tree.blocks] = tree.matrix()
        place += tree.blocks
    k, w = 9, np.arange(13.0)
    means, variances, evidence = [], [], []
    for model in range(MODELS.count):
        S = MODELS.covariance(model, 13)
        G = (S + C)[:k, :k]
        gain = S[:, :k] @ np.linalg.inv(G)
        centred = z[:k] - MODELS.mean
        means.append(w @ (MODELS.mean + gain @ centred))
        variances.append(w @ (S - gain @ S[:k]) @ w)
        evidence.append(-0.5 * centred @ np.linalg.solve(G, centred) - 0.5 * np.linalg.slogdet(G)[1])
    p = mixture_weights(np.array(evidence))
    mean, std = posterior(MODELS, z, TREES, w[None], np.array([k]))
    assert mean[0] == pytest.approx(p @ means)
    assert std[0] ** 2 == pytest.approx(p @ (np.array(variances) + np.array(means) ** 2) - (p @ means) ** 2, rel=1e-6)


def test_later_blocks_do_not_change_an_earlier_answer():
    z = released(1)
    changed = z.copy()
    changed[9:] += 1000
    w = np.ones((1, 13))
    assert posterior(MODELS, z, TREES, w, np.array([9]))[0] == posterior(MODELS, changed, TREES, w, np.array([9]))[0]


def test_state_survives_packing():
    _, state = kalman(released(1))
    again = BlockBank.unpack(state.pack(), MODELS)
    np.testing.assert_array_equal(again.numbers, state.numbers)
    assert again.pack() == state.pack()


def test_banks_stepped_together_are_to_the_last_bit_what_each_is_alone():
    """Also where some come back from the store, whose numbers lie in another order in memory."""
    rng = np.random.default_rng(3)
    alone, together = [BlockBank(MODELS) for _ in range(9)], [BlockBank(MODELS) for _ in range(9)]
    for _ in range(40):
        some = int(rng.integers(1, 10))
        blocks, own = rng.normal(MODELS.mean, 9, some), rng.uniform(1, 40, some)
        common = np.where(rng.random(some) < 0.3, -rng.uniform(0, 0.05, some), np.nan)
        banks = BlockBanks(together)
        jump = rng.choice([0.0, 50.0], some)
        sums, errors, _ = banks.step(blocks, own=own, new_common=common, jump=jump)
        banks.give_back()
        for place in range(some):
            new_common = None if np.isnan(common[place]) else float(common[place])
            seen = alone[place].step(
                float(blocks[place]), own=float(own[place]), new_common=new_common, jump=float(jump[place])
            )
            assert (seen.sum, seen.standard_error) == (sums[place], errors[place])
        assert [bank.pack() for bank in together] == [bank.pack() for bank in alone]
        chosen = int(rng.integers(9))
        together[chosen] = BlockBank.unpack(together[chosen].pack(), MODELS)


@pytest.mark.statistical
def test_level_data_are_averaged_and_the_error_bar_holds():
    rng = np.random.default_rng(0)
    tree = BlockNoise(16, 40.0, 30.0)
    root = np.linalg.cholesky(tree.matrix())
    errors, claimed = [], []
    for _ in range(40):
        z = 10.0 + np.concatenate([root @ rng.normal(size=16) for _ in range(4)])
        w = np.zeros((1, 64))
        w[0, 20:27] = 1
        mean, std = posterior(MODELS, z, [tree] * 4, w, np.array([64]))
        errors.append(mean[0] - 70)
        claimed.append(std[0])
    plain = w[0] @ np.kron(np.eye(4), tree.matrix()) @ w[0]
    assert np.mean(np.square(errors)) < plain / 4
    assert 0.4 < np.mean(np.square(errors)) / np.mean(np.square(claimed)) < 2.0


def test_shrinkage_follows_the_data():
    deviations = Deviations.for_node(256, 0.1)
    quiet = deviations.evidence(np.array(100 * 20.0), 100, 20.0)
    loud = deviations.evidence(np.array(100 * 120.0), 100, 20.0)
    assert deviations.shrinkage(quiet, 20.0, 1.0)[0] < 0.3
    assert 0.7 < deviations.shrinkage(loud, 20.0, 1.0)[0] < 0.95
    # Twice the sum: the same factor, four times the variance.  And nothing of nothing.
    factor, variance = deviations.shrinkage(loud, 20.0, 1.0)
    assert deviations.shrinkage(loud, 80.0, 4.0) == (pytest.approx(factor), pytest.approx(4 * variance))
    assert deviations.shrinkage(loud, 0.0, 0.0)[1] == pytest.approx(0.0)


def test_the_spreads_are_those_of_the_sums():
    """Against the covariances of centred independent and walking deviations, written out in fractions."""
    nodes, place = 4, Fraction(5, 2)
    weights = [Fraction(1), Fraction(1), place - 2, Fraction(0)]
    centred = [weight - sum(weights) / nodes for weight in weights]
    independent = sum(weight**2 for weight in centred)
    # The walk's steps are independent: node i has the steps up to i.
    of_walk = sum(sum(centred[step:]) ** 2 for step in range(nodes))
    all_nodes = sum(
        sum((Fraction(int(node >= step)) - Fraction(nodes - step, nodes)) ** 2 for node in range(nodes))
        for step in range(nodes)
    )
    found = spreads(nodes, np.array([float(place), 0.0, float(nodes)]))
    assert found[0].tolist() == pytest.approx([float(independent), 0.0, 0.0])
    assert found[1].tolist() == pytest.approx([float(of_walk * (nodes - 1) / all_nodes), 0.0, 0.0])


@pytest.mark.statistical
def test_errors_of_partial_blocks_hold_where_levels_move_in_runs():
    """Half a block lies above its mean and half below.  For independent deviations, as tried last, the error is too small."""
    rng = np.random.default_rng(1)
    deviations, noise, blocks = Deviations.for_node(256, 0.1), 50.0, 256
    runs = np.repeat([3.0, -3.0], 8)
    drawn = runs + (noise**0.5 * rng.normal(size=(blocks, 16))) @ (np.eye(16) - 1 / 16)
    evidence = deviations.evidence(np.array((drawn**2).sum()), 15 * blocks, noise)
    independent, walk = (each[0] for each in spreads(16, np.array([8.0])))
    part = drawn[:, :8].sum(axis=1)

    def covered(spread: float) -> float:
        factor, variance = deviations.shrinkage(evidence, noise * independent, spread)
        return float((np.abs(factor * part - 24.0) < 1.96 * variance**0.5).mean())

    assert covered(walk) > 0.8
    assert covered(independent) < 0.3


def test_errors_are_widened_by_the_fit_and_not_without_end():
    widths = widened(np.full(4, 10.0), np.array([0.0, FIT_LIMIT, 2 * FIT_LIMIT, 100 * FIT_LIMIT]))
    assert widths.tolist() == pytest.approx([10 * WIDENING] * 2 + [10 * WIDENING * 2**0.5, 10 * WIDENING * MOST])


def test_the_error_of_a_long_running_sum_keeps_its_digits():
    """After thousands of large blocks the sum's square has no digits left for a variance."""
    models = block_models(65_536, 100.0)
    tree = BlockNoise(16, 40.0, 30.0)
    bank, level = BlockBank(models), models.mean
    stds = []
    for number in range(3_000):
        block = level + float(np.random.default_rng(number).normal()) * 6
        stds.append(step(bank, block, tree, opens_tree=number % 16 == 0).standard_error)
    # A tree's blocks share their noise, and trees are independent: the sum's error grows like the root of their number.
    assert stds[-1] == pytest.approx(stds[749] * 2, rel=0.1)
