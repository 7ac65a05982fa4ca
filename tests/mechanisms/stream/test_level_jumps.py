"""Jumps of the level: found where they are, seldom where there is none, and never missed by the cheap bound."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from susurrus.mechanisms.kalman import BlockBank
from susurrus.mechanisms.stream.level_jumps import GAIN, OpenTree, jump_variances, suspected
from susurrus.mechanisms.stream.posterior import FIT_LIMIT, BlockNoise, block_models, posterior
from tests.samples import samples

MODELS = block_models(256, 1.0)
TREE = BlockNoise(16, 40.0, 30.0)
ROOT = np.linalg.cholesky(TREE.matrix())


def after(trees: int, rng: np.random.Generator, level: float = 60.0) -> tuple[BlockBank, np.ndarray]:
    """The filter behind some trees of a steady level, and their blocks."""
    bank, blocks = BlockBank(MODELS), []
    for _ in range(trees):
        for place, block in enumerate(level + ROOT @ rng.normal(size=16)):
            bank.step(float(block), own=TREE.own, new_common=None if place else TREE.common)
            blocks.append(block)
    return bank, np.array(blocks)


def opened(before: BlockBank, levels: np.ndarray, rng: np.random.Generator) -> OpenTree:
    blocks = levels + (ROOT @ rng.normal(size=16))[: len(levels)]
    return OpenTree(before, blocks, TREE.own, TREE.common, 0.0)


@pytest.mark.statistical
@pytest.mark.parametrize("at", [0, 3, 9])
def test_a_jump_is_found_where_it_was(at):
    found = []
    for seed in range(20):
        rng = np.random.default_rng(seed)
        tree = opened(after(4, rng)[0], np.where(np.arange(16) < at, 60.0, 120.0), rng)
        jumped = tree.jumped(tree.current())
        assert jumped is not None
        found.append(jumped.first <= at <= jumped.last)
        level, error = jumped.bank.level()
        assert abs(level - 120) < 4 * error + 1e-9
        assert jumped.fit < FIT_LIMIT
    assert np.mean(found) >= 0.9


@pytest.mark.statistical
def test_a_steady_level_seldom_jumps():
    jumps = 0
    trees = samples(300)
    for seed in range(trees):
        rng = np.random.default_rng(1000 + seed)
        tree = opened(after(2, rng)[0], np.full(16, 60.0), rng)
        jumps += tree.jumped(tree.current()) is not None
    assert jumps <= 3


@settings(max_examples=60, deadline=None)
@given(seed=st.integers(0, 10_000), at=st.integers(0, 15), size=st.floats(-50, 50), known=st.integers(1, 16))
def test_the_cheap_bound_misses_no_jump(seed, at, size, known):
    rng = np.random.default_rng(seed)
    before, _ = after(2, rng)
    tree = opened(before, (60.0 + size * (np.arange(16) >= at))[:known], rng)
    if tree.jumped(tree.current()) is None:
        return
    blocks = np.zeros((1, 16))
    blocks[0, :known] = tree.blocks
    level = np.array([before.level()[0]])
    assert suspected(blocks, np.array([known]), level, np.array([TREE.own]), np.array([TREE.common])).all()


def test_the_filter_with_a_jump_is_the_dense_posterior():
    rng = np.random.default_rng(2)
    before, earlier = after(2, rng)
    tree = opened(before, np.where(np.arange(16) < 6, 60.0, 130.0), rng)
    jumped = tree.jumped(tree.current())
    assert jumped is not None
    first, last, filtered = jumped.first, jumped.last, jumped.filtered
    jumps = np.concatenate([np.zeros(32), jump_variances(16, first, last, MODELS.level)])
    z = np.concatenate([earlier, tree.blocks])
    mean, std = posterior(MODELS, z, [TREE] * 3, np.ones((1, 48)), np.array([48]), jumps=jumps)
    assert mean[0] == pytest.approx(filtered.sum, rel=1e-8)
    assert std[0] == pytest.approx(filtered.standard_error, rel=1e-6)


def test_the_covariance_of_a_jump_at_one_of_several_places():
    """Variance V / k at each of k places is the covariance of one jump of variance V at a place drawn from them."""
    count, first, last, level = 6, 1, 4, 8.0
    variances = jump_variances(count, first, last, level)
    behind = np.cumsum(variances)
    drawn = np.zeros((count, count))
    for place in range(first, last + 1):
        step = (np.arange(count) >= place).astype(float)
        drawn += level * np.outer(step, step) / (last + 1 - first)
    np.testing.assert_allclose(np.minimum(behind[:, None], behind[None, :]), drawn)


def test_a_jump_needs_the_evidence_that_is_asked_for():
    rng = np.random.default_rng(5)
    tree = opened(after(4, rng)[0], np.where(np.arange(16) < 8, 60.0, 120.0), rng)
    without = tree.current()
    jumped = tree.jumped(without)
    assert jumped is not None
    assert jumped.bank.evidence() > without.evidence() + GAIN - 4  # the window's evidence is an average of its places'
