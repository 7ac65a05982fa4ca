"""Consistent noise equals least squares, online equals offline (ToPS Theorem C.1), variances are what they say."""

import math
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from susurrus.mechanisms.errors import ConfigurationError
from susurrus.mechanisms.noise import NoiseSource, WindowNoise
from susurrus.mechanisms.stream.addresses import GRID
from susurrus.mechanisms.stream.hierarchy import Hierarchy, choose_smoothing
from tests.samples import samples


def noise() -> WindowNoise:
    return NoiseSource(b"s" * 32, epoch=b"e", config=b"c", pipeline="p").window(0)


def node_matrix(hierarchy: Hierarchy) -> np.ndarray:
    """One row per node, leaves first: which leaves it covers."""
    rows = []
    for layer in range(hierarchy.layers):
        size = hierarchy.fanout**layer
        rows.extend(np.arange(hierarchy.leaves) // size == node for node in range(hierarchy.leaves // size))
    return np.array(rows, dtype=float)


HIERARCHIES = [
    Hierarchy(fanout=2, layers=5, leaf=1, shares=(0.2,) * 5),
    Hierarchy(fanout=4, layers=3, leaf=4, shares=(1 / 3,) * 3),
    Hierarchy(fanout=16, layers=2, leaf=256, shares=(0.35, 0.65)),
    Hierarchy(fanout=3, layers=4, leaf=1, shares=(0.1, 0.2, 0.3, 0.4)),
    Hierarchy(fanout=16, layers=1, leaf=16, shares=(1.0,)),
]


@pytest.mark.parametrize("hierarchy", HIERARCHIES, ids=str)
class TestConsistency:
    def test_online_release_equals_offline_least_squares(self, hierarchy):
        """Theorem C.1: value sums plus consistent noise = weighted least squares of all noisy nodes, to 1e-12."""
        rng = np.random.default_rng(3)
        raw = hierarchy.draw(noise(), [b"a", b"b"], 0, 40, 0.5)
        M = node_matrix(hierarchy)
        weight = np.concatenate(
            [np.full(hierarchy.leaves // hierarchy.fanout**k, share) for k, share in enumerate(hierarchy.shares)]
        )
        for tree in range(2):
            leaves = rng.integers(0, 40 * hierarchy.leaf, hierarchy.leaves).astype(float)
            noisy = M @ leaves + np.concatenate([layer[tree] for layer in raw]) / GRID
            offline = np.linalg.lstsq(M * weight[:, None], noisy * weight, rcond=None)[0]
            online = leaves + hierarchy.consistent(raw)[tree] / GRID
            np.testing.assert_allclose(online, offline, rtol=0, atol=1e-12 * np.abs(noisy).max())

    def test_rounding_is_the_floor_of_the_exact_fraction_plus_a_half(self, hierarchy):
        raw = hierarchy.draw(noise(), [b"a"], 1, 3, 0.9)
        exact = hierarchy.exact([layer[0] for layer in raw])
        assert hierarchy.rounded(raw)[0].tolist() == [math.floor(x + Fraction(1, 2)) for x in exact]

    def test_a_tie_is_decided_exactly(self, hierarchy):
        """Noise that is exactly 1/2, or less by one grid step over all layers, in every node."""
        for numerator in (GRID // 2, GRID // 2 - 1):
            raw = [
                np.full((1, hierarchy.leaves // hierarchy.fanout**k), numerator * hierarchy.fanout**k, dtype=np.int64)
                for k in range(hierarchy.layers)
            ]
            assert set(hierarchy.rounded(raw)[0].tolist()) == {1 if numerator == GRID // 2 else 0}

    def test_variance_of_a_weighted_sum_is_that_of_the_linear_map(self, hierarchy):
        """Push unit vectors through the consistency to get its matrix, and compare w'Cw."""
        sizes = [hierarchy.leaves // hierarchy.fanout**k for k in range(hierarchy.layers)]
        columns, variances = [], []
        for layer, size in enumerate(sizes):
            for node in range(size):
                raw = [np.zeros((1, n)) for n in sizes]
                raw[layer][0, node] = 1.0
                columns.append(hierarchy.consistent(raw)[0])
                variances.append(2 / hierarchy.shares[layer] ** 2)
        C = np.array(columns).T @ np.diag(variances) @ np.array(columns)
        rng = np.random.default_rng(1)
        for weights in (rng.normal(size=hierarchy.leaves), np.ones(hierarchy.leaves), np.eye(hierarchy.leaves)[0]):
            assert hierarchy.variances(weights[None])[0] == pytest.approx(weights @ C @ weights, rel=1e-9)
        prefix = hierarchy.prefix_variances()
        half = np.arange(hierarchy.leaves) < hierarchy.leaves // 2
        assert prefix[hierarchy.leaves // 2] == pytest.approx(half @ C @ half, rel=1e-9, abs=1e-12)


def test_the_upward_weight_of_equal_shares_is_the_papers():
    weights = Hierarchy(fanout=16, layers=5, leaf=1, shares=(0.2,) * 5).upward_weights()
    for layer, weight in enumerate(weights, start=2):
        assert float(weight) == pytest.approx((16**layer - 16 ** (layer - 1)) / (16**layer - 1), rel=1e-12)


@given(st.sampled_from([0.01, 0.05, 0.1, 0.5, 1.0, 2.0]))
def test_smoothing_is_the_minimum_and_leaves_a_layer(epsilon):
    cost = [15 * (5 - s) ** 3 * 2 / epsilon**2 + 256.0**s / 36 for s in range(5)]
    assert choose_smoothing(range_limit=2**20, epsilon=epsilon) == int(np.argmin(cost))
    assert choose_smoothing(range_limit=16, epsilon=epsilon) == 0


def test_the_mean_smoother_deserves_larger_leaves():
    assert [choose_smoothing(range_limit=2**20, epsilon=epsilon, for_mean=True) for epsilon in (0.02, 0.05, 0.1)] == [
        3,
        3,
        3,
    ]
    assert choose_smoothing(range_limit=2**20, epsilon=0.1) == 2


def test_shares_beyond_the_budget_are_refused():
    with pytest.raises(ConfigurationError, match="shares"):
        Hierarchy(fanout=16, layers=2, leaf=1, shares=(0.5, 0.6))
    with pytest.raises(ConfigurationError, match="smoothing"):
        Hierarchy.uniform(range_limit=256, smoothing=2)


@pytest.mark.statistical
class TestNoiseScale:
    """The nodes' noise has the scale theta / (epsilon share); a missing theta or reused draws are noticed."""

    hierarchy = Hierarchy(fanout=16, layers=2, leaf=16, shares=(0.25, 0.75))

    def leaf_scales(self, theta: int, trees: int = samples(200)) -> np.ndarray:
        drawn = [self.hierarchy.draw(noise(), [b"s"], tree, theta, 0.5)[0] for tree in range(trees)]
        return np.concatenate(drawn, axis=None) / GRID

    @staticmethod
    def fits(sample: np.ndarray, scale: float) -> bool:
        """Mean absolute value of Laplace(scale) within five standard errors."""
        return bool(abs(np.abs(sample).mean() - scale) < 5 * scale / math.sqrt(len(sample)))

    def test_scale_is_theta_over_epsilon_share(self):
        assert self.fits(self.leaf_scales(40), 40 / (0.5 * 0.25))

    def test_a_scale_without_theta_is_caught(self):
        assert not self.fits(self.leaf_scales(1), 40 / (0.5 * 0.25))

    @staticmethod
    def repeats(trees: list[np.ndarray]) -> bool:
        flat = np.array(trees).reshape(len(trees), -1)
        return bool(np.abs(np.corrcoef(flat) - np.eye(len(trees))).max() > 0.9)

    def test_trees_layers_and_streams_have_draws_of_their_own(self):
        one = [self.hierarchy.draw(noise(), [b"s"], tree, 9, 1.0)[0] for tree in range(8)]
        two = [self.hierarchy.draw(noise(), [b"t"], tree, 9, 1.0)[0] for tree in range(8)]
        assert not self.repeats(one + two)

    def test_reused_tree_noise_is_caught(self):
        planted = [self.hierarchy.draw(noise(), [b"s"], tree % 4, 9, 1.0)[0] for tree in range(8)]
        assert self.repeats(planted)
