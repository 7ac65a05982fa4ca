"""The lower clip: its scores, its privacy, and when it is worth its share."""

from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from susurrus.mechanisms.noise import NoiseSource, WindowNoise
from susurrus.mechanisms.stream.addresses import GRID
from susurrus.mechanisms.stream.lower_clip import LowerClip
from susurrus.mechanisms.stream.stream_state import StreamState
from susurrus.mechanisms.stream.threshold import NoisyMax
from susurrus.mechanisms.stream.tops import Tops
from tests.mechanisms.stream.one_stream import collect, whole
from tests.mechanisms.stream.test_thresholds import winning_probabilities

THRESHOLD = NoisyMax(bound=16, epsilon=1.0, slope=0.0, log_slope=2.0, candidates=(1, 2, 4, 6, 8, 10, 12, 14, 16))
CLIP = LowerClip(threshold=THRESHOLD, epsilon=0.7)
THETA = np.array([16])


def noise(name: str = "p") -> WindowNoise:
    return NoiseSource(b"s" * 32, epoch=b"e", config=b"c", pipeline=name).window(0)


def scores(values: list[int]) -> np.ndarray:
    return CLIP.scores(THRESHOLD.count(np.array(values))[None], THETA)[0] / GRID


def test_candidates_are_those_of_theta_at_or_below_the_fractions():
    assert CLIP.candidates(np.array([16, 6, 1])).tolist() == [[0, 8, 10, 12, 14], [0, 2, 2, 4, 4], [0, 0, 0, 0, 0]]


@given(values=st.lists(st.integers(0, 16), min_size=1, max_size=9))
def test_scores_are_the_values_at_most_the_clip_and_the_width(values):
    wanted = [
        round((-sum(v <= low for v in values) if low else 0) * GRID + -np.log((16 - low) / 16) * 2 * GRID) / GRID
        for low in (0, 8, 10, 12, 14)
    ]
    np.testing.assert_allclose(scores(values), wanted, atol=1 / GRID)


@given(values=st.lists(st.integers(0, 16), min_size=1, max_size=9), data=st.data())
def test_replacing_one_value_moves_all_scores_one_way_by_at_most_one(values, data):
    other = list(values)
    other[data.draw(st.integers(0, len(values) - 1))] = data.draw(st.integers(0, 16))
    change = set((scores(other) - scores(values)).tolist())
    assert change <= {0.0, 1.0} or change <= {0.0, -1.0}


def loss(one: np.ndarray, two: np.ndarray, epsilon: float) -> float:
    p, q = (winning_probabilities(list(each), epsilon, True) for each in (one, two))
    return float(np.abs(np.log(p / q)).max())


def test_no_pair_of_neighbours_loses_more_than_epsilon():
    worst = max(
        loss(scores([low, 9, 13, 15]), scores([high, 9, 13, 15]), CLIP.epsilon)
        for low in (0, 5, 9)
        for high in (10, 13, 16)
    )
    assert 0.1 < worst <= CLIP.epsilon + 1e-6


def test_noise_for_half_the_sensitivity_would_be_caught():
    assert (
        loss(np.array([0.0, -20.0, -20.0, -20.0, -1.0]), np.array([0.0, -20.0, -20.0, -20.0, 1.0]), CLIP.epsilon)
        > CLIP.epsilon
    )


@pytest.mark.parametrize("epsilon", [0.1, 1.0, 0.37])
def test_both_thresholds_together_spend_epsilon(epsilon):
    mechanism = Tops.of(bound=4096, epsilon=epsilon, holdout=65_536, range_limit=1 << 20)
    assert mechanism.lower_clip is not None
    spent = Fraction(mechanism.threshold.epsilon) + Fraction(mechanism.lower_clip.epsilon)
    assert abs(spent / Fraction(epsilon) - 1) < Fraction(1, 10**15)


@pytest.mark.parametrize(
    ("settings", "there"),
    [
        ({"epsilon": 0.1}, True),
        ({"epsilon": 0.02}, False),
        ({"epsilon": 0.02, "lower_share": 5 / 32}, True),
        ({"epsilon": 0.1, "lower_share": 0.0}, False),
        ({"epsilon": 0.1, "adaptive": False}, False),
    ],
)
def test_it_is_sought_where_the_holdout_is_large_enough_or_as_told(settings, there):
    mechanism = Tops.of(bound=4096, holdout=65_536, range_limit=1 << 20, **settings)
    assert (mechanism.lower_clip is not None) is there


def far_from_zero(length: int) -> np.ndarray:
    return np.clip(np.rint(np.random.default_rng(1).normal(2000, 100, length)), 0, 4096).astype(np.int64)


@pytest.mark.statistical
def test_values_far_from_zero_get_a_lower_clip_and_others_none():
    mechanism = Tops.of(bound=4096, epsilon=0.2, holdout=65_536, range_limit=1 << 20)
    baskets = np.rint(np.random.default_rng(1).lognormal(5, 0.8, 65_536)).astype(np.int64)
    shares = {}
    for name, values in (("far", far_from_zero(65_536)), ("baskets", baskets)):
        state = StreamState()
        collect(mechanism, state, values)
        counts, lowers = mechanism.histogram(state)[None], []
        for number in range(100):
            theta = mechanism.threshold.release(counts, noise(str(number)), [b"s"])
            [lower] = mechanism.lower_clip.release(counts, theta, noise(str(number)), [b"s"])
            assert (values < lower).mean() < 0.01
            lowers.append(lower)
        shares[name] = np.mean(np.array(lowers) > 0)
    assert shares["far"] > 0.6
    assert shares["baskets"] < 0.1


@pytest.mark.statistical
def test_the_narrower_range_has_less_noise_and_no_bias():
    """The error of whole trees, with a lower clip and without."""
    values = far_from_zero(4096 + 4 * 256)
    found = {}
    for share in (0.0, 5 / 32):
        mechanism = Tops.of(
            bound=4096, epsilon=2.0, holdout=4096, range_limit=1024, fanout=4, smoothing=1, lower_share=share
        )
        off = []
        for number in range(60):
            _, released = whole(mechanism, values, noise(str(number)), b"s")
            off.append([released.sum[-1] - values[mechanism.holdout :].sum(), released.sum_error[-1]])
        error, claimed = np.array(off).T
        assert 0.6 < np.std(error) / claimed.mean() < 1.5
        assert abs(error.mean()) < 4 * claimed.mean() / np.sqrt(60) + 0.001 * values[4096:].sum()
        found[share] = claimed.mean()
    assert found[5 / 32] < found[0.0] / 1.5
