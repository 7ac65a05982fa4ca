"""Clipping ranges that follow the level: the rules, what they cost, and what they never do."""

import math
from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats
from scipy.integrate import quad

from susurrus.mechanisms.noise import NoiseSource, WindowNoise
from susurrus.mechanisms.stream.growth import Followed, Growth, Seen, count_noise, truncation
from susurrus.mechanisms.stream.hierarchy import Hierarchy
from susurrus.mechanisms.stream.releases import Releases
from susurrus.mechanisms.stream.tops import Tops
from tests.mechanisms.stream.one_stream import whole
from tests.samples import samples

TOPS = Tops.of(bound=1000, epsilon=2.0, holdout=256, range_limit=4096, fanout=4, smoothing=1)
TREE = TOPS.base.values


def noise(name: str = "p") -> WindowNoise:
    return NoiseSource(b"s" * 32, epoch=b"e", config=b"c", pipeline=name).window(0)


def rising(trees: int, factor: float, seed: int = 0) -> np.ndarray:
    """Steady for a holdout and two trees, then `factor` times as high."""
    values = np.random.default_rng(seed).gamma(2.0, 20.0, 256 + trees * TREE)
    values[256 + 2 * TREE :] *= factor
    return np.minimum(np.rint(values), 1000).astype(np.int64)


def run(mechanism: Tops, values: np.ndarray, source: object = None) -> Releases:
    return whole(mechanism, values, source or noise(), b"s")[1]


def seen(*levels: float, error: float = 0.01, **counted: float) -> Seen:
    return Seen(levels, error, levels[0], **counted)


class TestRules:
    def followed(self) -> Followed:
        followed = Followed()
        assert not Growth().follow(followed, seen(0.2, 0.2, 0.2), first=True)
        return followed

    @pytest.mark.parametrize(
        ("levels", "factor"),
        [
            ((0.2, 0.2, 0.2), 1.0),
            ((0.22, 0.22, 0.22), 1.0),  # within two standard errors of the difference
            ((0.4, 0.2, 0.4), 1.0),  # a burst in one half
            ((0.4, 0.4, 0.4), 1.25**4),  # the least power of 1.25 above 2.1
            ((1.0, 0.9, 1.2), 1.25**7),  # 4.5 times
            ((0.05, 0.05, 0.05), 1.0),
        ],
    )
    def test_the_range_follows_the_least_of_the_levels(self, levels, factor):
        followed = self.followed()
        Growth().follow(followed, seen(*levels), first=False)
        assert followed.factor == pytest.approx(factor)

    def test_the_range_falls_back_when_the_level_does(self):
        followed = self.followed()
        Growth().follow(followed, seen(0.6, 0.6, 0.6), first=False)
        assert followed.factor > 3
        Growth().follow(followed, seen(0.2, 0.2, 0.2), first=False)
        assert followed.factor == 1.0

    def test_a_rise_is_counted_once(self):
        followed = self.followed()
        assert Growth().follow(followed, seen(0.3, 0.3, 0.3), first=False)
        assert not Growth().follow(followed, seen(0.3, 0.3, 0.3), first=False)
        assert Growth().follow(followed, seen(0.5, 0.5, 0.5), first=False)

    @pytest.mark.parametrize(("clipped", "by"), [(0.001, 1.0), (0.01, 1.5), (0.08, 2.5)])
    def test_a_count_raises_the_range_and_that_of_the_first_tree_for_good(self, clipped, by):
        followed = Followed()
        Growth().follow(followed, seen(0.2, 0.2, 0.2, clipped=clipped, clipped_error=0.001), first=True)
        assert followed.factor == by
        Growth().follow(followed, seen(0.2, 0.2, 0.2), first=False)
        assert followed.factor == by

    def test_nothing_is_followed_before_a_level_is_known(self):
        followed = Followed()
        Growth().follow(followed, seen(0.02, 0.02, 0.02), first=True)
        Growth().follow(followed, seen(0.9, 0.9, 0.9), first=False)
        assert followed.level == 0.9
        assert followed.factor == 1.0

    def test_a_lower_clip_is_given_up_when_the_level_falls_by_half(self):
        followed = self.followed()
        Growth().follow(followed, seen(0.15, 0.15, 0.15), first=False)
        assert not followed.fallen
        Growth().follow(followed, seen(0.05, 0.05, 0.05), first=False)
        assert followed.fallen


class TestStreams:
    def test_the_range_rises_between_trees_only(self):
        released = run(TOPS, rising(8, 4.0))
        per_tree = released.theta.reshape(8, -1)
        assert (per_tree == per_tree[:, :1]).all()
        assert (per_tree[:3] == per_tree[0]).all()
        assert per_tree[-1, 0] > 2 * per_tree[0, 0]

    def test_without_growth_it_stays_and_nothing_is_counted(self):
        still = Tops.of(
            bound=1000, epsilon=2.0, holdout=256, range_limit=4096, fanout=4, smoothing=1, growth=Growth(share=0.0)
        )
        released = run(still, rising(8, 4.0))
        assert len(set(released.theta.tolist())) == 1
        assert np.isnan(released.clipped).all()

    @settings(max_examples=20, deadline=None)
    @given(at=st.integers(0, 8 * TREE - 1), by=st.integers(0, 1000), factor=st.sampled_from([1.0, 4.0]))
    def test_a_value_changes_no_range_up_to_the_end_of_its_tree(self, at, by, factor):
        values = rising(8, factor)
        other = values.copy()
        other[256 + at] = by
        one, two = run(TOPS, values), run(TOPS, other)
        until = (at // TREE + 1) * TOPS.base.leaves
        for name in ("theta", "lower", "layout"):
            np.testing.assert_array_equal(getattr(one, name)[:until], getattr(two, name)[:until])

    def test_a_count_is_exact_plus_its_noise(self):
        values = rising(8, 4.0)
        released = run(TOPS, values)
        at = np.flatnonzero(~np.isnan(released.clipped))
        trees = at // TOPS.base.leaves
        assert len(trees) > 1
        assert (at % TOPS.base.leaves == TOPS.base.leaves - 1).all()
        exact = [
            (values[256 + t * TREE :][:TREE] > released.theta[row]).sum() for t, row in zip(trees, at, strict=True)
        ]
        drawn = [count_noise(noise(), [b"s"], np.array([t]), TOPS.count_epsilon)[0] for t in trees]
        np.testing.assert_array_equal(released.clipped[at], np.array(exact) + drawn)


class Scales:
    """Noise that remembers the scale of every draw, by mechanism and stream's tree."""

    def __init__(self) -> None:
        self._real = noise()
        self._of: dict[bytes, tuple[str, bytes]] = {}
        self.spent: dict[int, Fraction] = {}
        self.width = {0: 0}

    def labels(self, mechanism, keys):
        labels = self._real.labels(mechanism, keys)
        self._of.update({label.tobytes(): (mechanism, key) for label, key in zip(labels, keys, strict=True)})
        return labels

    def laplace(self, labels, first, last, *, scale, bits):
        for label, each in zip(labels, np.broadcast_to(scale, len(labels)).tolist(), strict=True):
            mechanism, key = self._of[label.tobytes()]
            if mechanism in ("tops/node", "tops/clipped"):
                tree = int.from_bytes(key[1:9], "little")
                # A value in [lower, theta] moves a node by at most the width, and the count by at most 1.
                moves = 1 if mechanism == "tops/clipped" else self.width[tree]
                self.spent[tree] = self.spent.get(tree, Fraction(0)) + Fraction(moves) / Fraction(each)
        return self._real.laplace(labels, first, last, scale=scale, bits=bits)


def spent_by_tree(mechanism: Tops, values: np.ndarray) -> dict[int, Fraction]:
    """The privacy loss of one value in each tree, from the scales of all noise that covers it."""
    width = (run(mechanism, values).theta - run(mechanism, values).lower)[:: mechanism.base.leaves]
    source = Scales()
    source.width = dict(enumerate(width.tolist()))
    run(mechanism, values, source)
    return source.spent


def test_no_tree_spends_more_than_epsilon_whether_it_counts_or_not():
    spent = spent_by_tree(TOPS, rising(8, 4.0))
    assert len(spent) == 8
    assert all(2 * (1 - Fraction(1, 10**9)) < each <= 2 * (1 + Fraction(1, 10**12)) for each in spent.values())


def test_a_count_that_is_not_charged_would_be_seen(monkeypatch):
    monkeypatch.setattr(Hierarchy, "reduced", lambda tree, share: tree)
    free = replace(TOPS)
    assert max(spent_by_tree(free, rising(8, 4.0)).values()) > 2 * Fraction(108, 100)


@pytest.mark.statistical
def test_counts_have_the_noise_that_they_say():
    n, epsilon = samples(20_000), 0.3
    drawn = count_noise(noise(), [b"%d" % i for i in range(n)], np.zeros(n, np.int64), epsilon)
    edges = np.array([-8.5, -3.5, -0.5, 0.5, 3.5, 8.5])
    observed = np.histogram(drawn, np.concatenate(([-np.inf], edges, [np.inf])))[0]
    law = stats.laplace(scale=1 / epsilon)
    expected = n * np.diff(np.concatenate(([0], law.cdf(edges), [1])))
    assert stats.chisquare(observed, expected).pvalue > 1e-6
    half = stats.laplace(scale=1 / epsilon / 2)
    assert stats.chisquare(observed, n * np.diff(np.concatenate(([0], half.cdf(edges), [1])))).pvalue < 1e-6


class TestTruncation:
    @pytest.mark.parametrize(("mu", "sigma", "theta"), [(1.5, 0.8, 20.0), (3.0, 0.5, 60.0), (0.0, 1.2, 10.0)])
    def test_it_is_exact_for_log_normal_values(self, mu, sigma, theta):
        law = stats.lognorm(sigma, scale=math.exp(mu))
        mean = quad(lambda x: law.sf(x), 0, theta, limit=200)[0]
        cut = quad(lambda x: law.sf(x), theta, np.inf, limit=200)[0]
        assert truncation(mean, theta, float(law.sf(theta))) == pytest.approx(cut, rel=0.02)

    @pytest.mark.parametrize("share", [-0.1, 0.0, 0.7])
    def test_there_is_none_without_a_usable_share(self, share):
        assert truncation(5.0, 20.0, share) == 0.0

    def test_it_grows_with_the_share(self):
        cut = [truncation(5.0, 20.0, share) for share in (0.001, 0.01, 0.05, 0.2)]
        assert cut == sorted(cut)
        assert cut[0] > 0
