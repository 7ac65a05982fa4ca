"""The tree's arithmetic against dense linear algebra and exact fractions."""

from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from susurrus.mechanisms.histogram import tree


def incidence(leaves: int) -> np.ndarray:
    """int[nodes, leaves]: row of a node's number = the leaves it sums; built from the definition."""
    rows = []
    for end in range(1, leaves + 1):
        level = 0
        while end % 2**level == 0:
            row = np.zeros(leaves, dtype=np.int64)
            row[end - 2**level : end] = 1
            rows.append(row)
            level += 1
    return np.array(rows)


@pytest.mark.parametrize("leaves", [1, 2, 3, 7, 8, 13, 16, 100])
def test_nodes_are_the_complete_dyadic_blocks_in_post_order(leaves):
    A = incidence(leaves)
    assert tree.nodes(leaves) == len(A)
    assert tree.levels(leaves) == A.sum(axis=0).max()
    for level in range(leaves.bit_length()):
        for end in range(1 << level, leaves + 1, 1 << level):
            row = A[tree.node_number(level, end)]
            assert row.sum() == 1 << level
            assert row[end - 1] == 1


@pytest.mark.parametrize("leaves", [1, 2, 3, 6, 8, 21, 32])
def test_the_estimate_is_the_least_squares_one_and_unbiased(leaves):
    A = incidence(leaves)
    coefficients = tree.prefix_noise(np.eye(len(A), dtype=np.int64) * 2**40, leaves) / 2.0**40  # [nodes, leaves]
    for leaf in range(1, leaves + 1):
        ones = np.arange(leaves) < leaf
        assert coefficients[:, leaf - 1] @ A == pytest.approx(ones.astype(float))
        used = A[: tree.nodes(leaf), :leaf].astype(float)
        best = np.ones(leaf) @ np.linalg.inv(used.T @ used) @ np.ones(leaf)
        assert float(tree.prefix_variance(leaf)) == pytest.approx(best)
        assert (coefficients[:, leaf - 1] ** 2).sum() == pytest.approx(best)
        assert not coefficients[tree.nodes(leaf) :, leaf - 1].any(), "an estimate used a node of the future"


def test_known_factors_of_the_tree():
    """Largest and last factor sqrt(levels) * std at T = 100 and 1000, from an independent computation."""
    for leaves, largest, last in [(100, 5.15, 3.33), (1000, 7.28, 5.52)]:
        factor = np.sqrt(tree.levels(leaves)) * tree.prefix_std(leaves)
        assert factor.max() == pytest.approx(largest, abs=0.006)
        assert factor[-1] == pytest.approx(last, abs=0.006)


def test_one_leaf_has_noise():
    assert tree.levels(1) == 1
    assert tree.prefix_std(1)[0] == 1.0


@given(st.integers(1, 70), st.integers(0, 2**32))
def test_float_path_is_within_its_bound_of_the_exact_one(leaves, seed):
    noise = np.random.default_rng(seed).integers(-(2**34), 2**34, (3, tree.nodes(leaves)))
    got = tree.prefix_noise(noise, leaves)
    for row in range(3):
        for leaf in {1, leaves, (leaves + 1) // 2}:
            exact = tree.prefix_noise_exact(noise[row], leaf)
            assert abs(Fraction(float(got[row, leaf - 1])) - exact) <= tree.relative_error(leaves) * float(
                np.abs(noise).max()
            )


@given(st.integers(1, 70), st.integers(0, 2**32))
def test_the_last_prefix_and_smaller_trees_agree_bit_for_bit(leaves, seed):
    noise = np.random.default_rng(seed).integers(-(2**34), 2**34, (4, tree.nodes(leaves)))
    whole = tree.prefix_noise(noise, leaves)
    for leaf in {1, leaves, leaves // 2 + 1}:
        assert np.array_equal(tree.last_prefix_noise(noise, leaf), whole[:, leaf - 1])
        assert np.array_equal(tree.prefix_noise(noise, leaf)[:, :], whole[:, :leaf])
        assert np.array_equal(tree.prefix_noise(noise[1:2], leaves)[0], whole[1])
