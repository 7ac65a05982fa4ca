"""Addressed noise: golden vectors from independent code, exact rounding, addresses that do not collide, and its distribution.

The statistical tests are three-sided: the right scale passes, 10 % less and 10 % more are rejected, and a sampler that
repeats itself is rejected too. Seeds are fixed, so an outcome is the same on every run.
"""

import json
from decimal import Decimal
from pathlib import Path
from typing import Any

import mpmath
import numpy as np
import numpy.typing as npt
import pytest
from scipy import stats
from scipy.special import ndtri

from susurrus.mechanisms import noise as module
from susurrus.mechanisms.errors import ConfigurationError
from susurrus.mechanisms.noise import NoiseSource, WindowNoise, exponential_tail, normal_tail, round_quantile
from tests.samples import samples

GOLDEN: dict[str, Any] = json.loads((Path(__file__).parents[1] / "golden" / "noise.json").read_text())


def golden_window() -> WindowNoise:
    source = NoiseSource(
        bytes.fromhex(GOLDEN["secret"]),
        epoch=bytes.fromhex(GOLDEN["epoch"]),
        config=bytes.fromhex(GOLDEN["config"]),
        pipeline=GOLDEN["pipeline"],
    )
    return source.window(GOLDEN["window"])


def window(**changes: Any) -> WindowNoise:
    address: dict[str, Any] = {"epoch": b"e", "config": b"c", "pipeline": "p"} | changes
    number = address.pop("window", 0)
    secret = address.pop("secret", b"s" * 32)
    return NoiseSource(secret, **address).window(number)


class TestGolden:
    """tests/golden/make_noise.py made the vectors."""

    def test_labels(self) -> None:
        keys = [row["key"].encode() for row in GOLDEN["rows"]]
        labels = golden_window().labels(GOLDEN["mechanism"], keys)
        assert [bytes(label).hex() for label in labels] == [row["label"] for row in GOLDEN["rows"]]

    @pytest.mark.parametrize("distribution", ["normal", "normal_fine", "laplace"])
    def test_draws(self, distribution: str) -> None:
        noise = golden_window()
        labels = noise.labels(GOLDEN["mechanism"], [row["key"].encode() for row in GOLDEN["rows"]])
        for column, index in enumerate(GOLDEN["indices"]):
            drawn = {
                "normal": lambda i: noise.normal(labels, i, i, sigma=17.25, bits=20),
                "normal_fine": lambda i: noise.normal(labels, i, i, sigma=3.7, bits=28),
                "laplace": lambda i: noise.laplace(labels, i, i, scale=2.5, bits=20),
            }[distribution](index)
            assert drawn[:, 0].tolist() == [row[distribution][column] for row in GOLDEN["rows"]]

    def test_a_scale_for_each_label_draws_what_each_scale_does_alone(self) -> None:
        noise, scales = window(), np.array([0.3, 2.5, 1e6, 17.0])
        labels = noise.labels("m", [b"a", b"b", b"c", b"d"])
        alone = [
            noise.laplace(labels[row : row + 1], 3, 40_002, scale=scale, bits=8)[0] for row, scale in enumerate(scales)
        ]
        np.testing.assert_array_equal(noise.laplace(labels, 3, 40_002, scale=scales, bits=8), alone)
        for bad in (0.0, -1.0, 1e30):
            with pytest.raises(ConfigurationError, match="must be positive"):
                noise.laplace(labels, 0, 0, scale=np.array([1.0, bad, 1.0, 1.0]), bits=8)

    def test_normal_tail_to_forty_digits(self) -> None:
        for x, digits in GOLDEN["normal_tail"].items():
            assert abs(normal_tail(Decimal(x)) / Decimal(digits) - 1) < Decimal("1e-40")


class TestRounding:
    """A draw is the correctly rounded quantile of its 128 bits."""

    def test_quantile_functions_keep_within_the_error_they_are_allowed(self) -> None:
        rng = np.random.default_rng(1)
        u = np.concatenate([rng.random(300) / 2, 0.5 - rng.random(50) * 1e-9, 2.0 ** -rng.integers(2, 129, 100)])
        with mpmath.workdps(40):
            for value, normal, exponential in zip(
                u.tolist(), (-ndtri(u)).tolist(), (-np.log(2 * u)).tolist(), strict=True
            ):
                exact = mpmath.mpf(2) ** 0.5 * mpmath.erfinv(1 - 2 * mpmath.mpf(value)) if value > 1e-20 else None
                if exact is not None:
                    allowed = module._RELATIVE_ERROR * exact + module._ABSOLUTE_ERROR
                    assert abs(normal - exact) < allowed / 2
                allowed = module._RELATIVE_ERROR * exponential + module._ABSOLUTE_ERROR
                assert abs(exponential + mpmath.log(2 * mpmath.mpf(value))) < allowed / 2

    @pytest.mark.parametrize("distribution", ["normal", "laplace"])
    def test_near_ties_go_to_the_exact_side(self, distribution: str) -> None:
        """Bits chosen just above and just below the tail of a half-integer, where float64 cannot tell."""
        unit = 1234567.0
        tail = normal_tail if distribution == "normal" else exponential_tail
        magnitude = module._normal_magnitude if distribution == "normal" else module._exponential_magnitude
        words, want = [], []
        for half in range(0, 2_000_000, 99_991):
            with mpmath.workdps(60):
                bound = mpmath.mpf(str(tail(module._EXACT.divide(Decimal(2 * half + 1), Decimal(2 * unit)))))
                k = int(mpmath.floor((bound * 2**129 - 1) / 2))  # the largest k with u <= tail
            for step, rounded in ((0, half + 1), (1, half)):
                words.append(((k + step) >> 64, (k + step) & ((1 << 64) - 1)))
                want.append(rounded)
        high, low = (np.array(column, np.uint64) for column in zip(*words, strict=True))
        assert round_quantile(high, low, unit, magnitude, tail).tolist() == want
        flipped = round_quantile(high | np.uint64(1 << 63), low, unit, magnitude, tail)
        assert flipped.tolist() == [-w for w in want]
        naive = np.rint(magnitude((high.astype(float) + low * 2.0**-64) * 2.0**-64) * unit).astype(int)
        assert naive.tolist() != want, "float64 alone must get some of these wrong, or the test proves nothing"

    def test_tiny_uniforms_keep_their_precision(self) -> None:
        """The deepest tail, u = 2^-129: a 64-bit uniform would stop at 9.2."""
        got = round_quantile(np.zeros(1, np.uint64), np.zeros(1, np.uint64), 1e6, module._normal_magnitude, normal_tail)
        with mpmath.workdps(60):
            assert abs(mpmath.erfc(mpmath.mpf(int(got[0])) / 10**6 / mpmath.sqrt(2)) / 2 * 2**129 - 1) < 1e-4
        assert 13.0e6 < got[0] < 13.2e6


class TestAddress:
    def test_every_part_of_the_address_matters(self) -> None:
        base = window().labels("m", [b"k"])
        others = [
            window(epoch=b"f"),
            window(config=b"d"),
            window(pipeline="q"),
            window(window=1),
            window(secret=b"t" * 32),
            window(epoch=b"ec", config=b""),
        ]
        labels = [other.labels("m", [b"k"]) for other in others]
        labels += [window().labels("n", [b"k"]), window().labels("m", [b"kk"]), window().labels("mk", [b""])]
        assert len({bytes(label) for label in [base, *labels]}) == len(labels) + 1

    def test_the_cipher_key_differs_between_windows(self) -> None:
        labels = window().labels("m", [b"k"])
        assert window().normal(labels, 1, 8).tolist() != window(window=1).normal(labels, 1, 8).tolist()

    def test_draws_do_not_depend_on_company_range_or_chunk(self, monkeypatch: pytest.MonkeyPatch) -> None:
        noise = window()
        labels = noise.labels("m", [b"%d" % i for i in range(50)])
        whole = noise.normal(labels, 0, 40, sigma=3.0)
        assert np.array_equal(whole[::-1], noise.normal(labels[::-1], 0, 40, sigma=3.0))
        assert np.array_equal(whole[7:8, 5:9], noise.normal(labels[7:8], 5, 8, sigma=3.0))
        monkeypatch.setattr(module, "_CHUNK", 64)
        assert np.array_equal(whole, noise.normal(labels, 0, 40, sigma=3.0))

    def test_empty_requests(self) -> None:
        noise = window()
        assert noise.normal(noise.labels("m", []), 1, 5).shape == (0, 5)
        assert noise.normal(noise.labels("m", [b"k"]), 3, 2).shape == (1, 0)

    @pytest.mark.parametrize(("first", "last"), [(-1, 3), (5, 3), (0, 1 << 48)])
    def test_indices_outside_the_range_are_refused(self, first: int, last: int) -> None:
        noise = window()
        with pytest.raises(ValueError, match="first="):
            noise.bits(noise.labels("m", [b"k"]), first, last)

    @pytest.mark.parametrize("sigma", [0.0, -1.0, 1e9, float("nan")])
    def test_scales_without_a_grid_are_refused(self, sigma: float) -> None:
        noise = window()
        with pytest.raises(ConfigurationError, match="scale"):
            noise.normal(noise.labels("m", [b"k"]), 1, 1, sigma=sigma)

    def test_short_secrets_are_refused_and_secrets_are_not_shown(self) -> None:
        with pytest.raises(ConfigurationError, match="secret"):
            NoiseSource(b"short", epoch=b"", config=b"", pipeline="")
        source = NoiseSource(b"very secret bytes " * 2, epoch=b"", config=b"", pipeline="")
        assert "very" not in repr(source) + repr(source.window(0))


class TestMemory:
    def test_rows_are_kept_until_the_memory_is_used_up(self) -> None:
        noise = window()
        noise.memory_bytes = 3 * (4 * 10 + 200)
        memory = noise.memory("m", 10)
        memory.add([b"a", b"b"], np.arange(20).reshape(2, 10))
        memory.add([b"c", b"d"], np.arange(20).reshape(2, 10))
        assert memory.find([b"b", b"c", b"a"]).tolist() == [1, -1, 0]
        assert memory.table[1].tolist() == list(range(10, 20))
        assert memory.room() == 1

    def test_long_keys_that_differ_at_one_end_are_two_keys(self) -> None:
        """Rows found by a part of the key would give two of them one noise, and their published difference would be the truth."""
        for keys in ([b"x" * 200 + b"a", b"x" * 200 + b"b"], [b"a" + b"x" * 200, b"b" + b"x" * 200], [b"k", b"k\0"]):
            memory = window().memory("m", 2)
            memory.add(keys, np.arange(4).reshape(2, 2))
            assert memory.table[memory.find(keys)].tolist() == [[0, 1], [2, 3]]
            memory = window().memory("m", 2)
            memory.add(keys[:1], np.arange(2).reshape(1, 2))
            assert memory.find(keys).tolist() == [0, -1]

    def test_mechanisms_and_windows_remember_apart(self) -> None:
        noise = window()
        noise.memory("m", 1).add([b"k"], np.array([[7]]))
        assert noise.memory("n", 1).find([b"k"]).tolist() == [-1]
        assert window().memory("m", 1).find([b"k"]).tolist() == [-1]

    def test_numbers_beyond_32_bits_are_not_kept(self) -> None:
        memory = window().memory("m", 1)
        memory.add([b"a"], np.array([[1 << 31]]))
        assert memory.find([b"a"]).tolist() == [-1]


def chi_square(sample: npt.NDArray[np.float64], distribution: Any) -> float:
    """p-value of 60 cells of equal probability under the distribution."""
    edges = distribution.ppf(np.linspace(0, 1, 61)[1:-1])
    observed = np.bincount(np.searchsorted(edges, sample), minlength=60)
    return float(stats.chisquare(observed).pvalue)


@pytest.mark.statistical
class TestLaw:
    DISTRIBUTIONS = ("normal", "laplace")

    def sample(self, distribution: str) -> tuple[npt.NDArray[np.float64], Any, float]:
        noise = window(secret=b"statistics" * 4)
        labels = noise.labels("m", [b"%d" % i for i in range(samples(2000))])
        if distribution == "normal":
            return noise.normal(labels, 1, 100, sigma=17.0, bits=20) * 2.0**-20, stats.norm, 17.0
        return noise.laplace(labels, 1, 100, scale=3.0, bits=20) * 2.0**-20, stats.laplace, 3.0

    @pytest.mark.parametrize("distribution", DISTRIBUTIONS)
    def test_right_scale_passes_and_ten_percent_off_fails(self, distribution: str) -> None:
        drawn, family, scale = self.sample(distribution)
        p = {factor: chi_square(drawn.reshape(-1), family(scale=factor * scale)) for factor in (0.9, 1.0, 1.1)}
        assert p[1.0] > 1e-3 > 1e-9 > max(p[0.9], p[1.1]), p

    @pytest.mark.parametrize("distribution", DISTRIBUTIONS)
    def test_recycled_noise_is_caught(self, distribution: str) -> None:
        drawn, family, scale = self.sample(distribution)
        assert chi_square(np.tile(drawn.reshape(-1)[:1000], 200), family(scale=scale)) < 1e-9

    @pytest.mark.parametrize("distribution", DISTRIBUTIONS)
    def test_triggers_and_keys_are_uncorrelated(self, distribution: str) -> None:
        drawn, _, _ = self.sample(distribution)
        centred = drawn - drawn.mean()
        n, spread = centred.size, centred.var()
        for a, b in ((centred[:, :-1], centred[:, 1:]), (centred[:-1], centred[1:]), (centred[:-7], centred[7:])):
            assert abs(float((a * b).mean()) / spread) < 5 / np.sqrt(n)
        shared = np.repeat(centred[:, :1], 100, axis=1)  # the test sees a sampler that forgets the index
        assert abs(float((shared[:, :-1] * shared[:, 1:]).mean()) / spread) > 5 / np.sqrt(n)

    def test_the_tail_of_a_million_draws(self) -> None:
        noise = window(secret=b"tails" * 8)
        labels = noise.labels("m", [b"%d" % i for i in range(10_000)])
        drawn = np.abs(noise.normal(labels, 1, 100, sigma=1.0, bits=20)) * 2.0**-20
        for z in (3.0, 3.8, 4.4):
            expected = 2e6 * float(stats.norm.sf(z))
            assert stats.poisson.cdf((drawn > z).sum(), expected) > 1e-4
            assert stats.poisson.sf((drawn > z).sum() - 1, expected) > 1e-4
