"""Fast rounding against exact fractions, on random noise and on noise built to sit next to a half-integer."""

import math
from fractions import Fraction

import numpy as np
import numpy.typing as npt
import pytest

from susurrus.mechanisms.histogram.factorization import FIXED, Factorization, normalized_power, power
from susurrus.mechanisms.histogram.rounding import Decoder
from tests.mechanisms.histogram.dense_matrices import decoding_rows

SETUPS = [(1, 0.5, 20, 20, 0), (12, 0.5, 20, 20, 0), (12, 0.5, 20, 20, 10), (20, 0.65, 16, 28, 12), (40, 0.5, 8, 8, 0)]


def exact(decoder: Decoder, z: list[int], trigger: int) -> int:
    row = decoding_rows(decoder.factorization)[trigger - 1]
    value = sum((row[s] * z[s] for s in range(trigger)), Fraction(0))
    return math.floor(value * Fraction(2) ** (decoder.fraction_bits - decoder.noise_bits) + Fraction(1, 2))


@pytest.mark.parametrize(("triggers", "exponent", "bits", "noise_bits", "fraction_bits"), SETUPS)
def test_random_noise_is_rounded_as_fractions_are(
    triggers: int, exponent: float, bits: int, noise_bits: int, fraction_bits: int
) -> None:
    decoder = Decoder(power(triggers, exponent, bits), noise_bits=noise_bits, fraction_bits=fraction_bits)
    z = np.random.default_rng(5).normal(0, 20 * 2.0**noise_bits, (30, triggers)).astype(np.int64)
    got = decoder.rounded(z, 1, triggers)
    for row, noise in enumerate(z.tolist()):
        assert got[row].tolist() == [exact(decoder, noise, t) for t in range(1, triggers + 1)]


def near_ties(decoder: Decoder, rows: int) -> npt.NDArray[np.int64]:
    """Noise whose total at the last trigger is within 1e-11 of a half-integer: closer than float64 can tell.

    b_8 has a long expansion, so among 2^22 values of the draw eight triggers back, one brings the fraction of the total
    near zero (found modulo 2^64); the last draw enters with b_0 = 1 and supplies the half.
    """
    f = decoder.factorization
    triggers = f.triggers
    unit = 1 << (decoder.noise_bits - decoder.fraction_bits)
    rng = np.random.default_rng(6)
    z = rng.normal(0, 2000 * 2.0**decoder.noise_bits, (rows, triggers)).astype(np.int64)
    steps = np.arange(1 << 22, dtype=np.uint64)
    for noise in z:
        rest = sum(f.decoder_fixed[triggers - 1 - s] * int(noise[s]) for s in range(triggers - 1))
        start = np.uint64((rest >> (FIXED - 64)) & ((1 << 64) - 1))
        step = np.uint64((f.decoder_fixed[8] >> (FIXED - 64)) & ((1 << 64) - 1))
        distance = np.abs((start + step * steps).view(np.int64).astype(np.float64))
        noise[-9] += int(distance.argmin())
        rest = sum(f.decoder_fixed[triggers - 1 - s] * int(noise[s]) for s in range(triggers - 1))
        whole = (rest + (1 << (FIXED - 1))) >> FIXED
        noise[-1] = unit // 2 - whole % unit
    return z


@pytest.mark.parametrize(("exponent", "bits", "noise_bits", "fraction_bits"), [(0.65, 16, 28, 12), (0.5, 11, 28, 10)])
def test_near_ties_are_rounded_as_fractions_are(
    exponent: float, bits: int, noise_bits: int, fraction_bits: int
) -> None:
    decoder = Decoder(power(30, exponent, bits), noise_bits=noise_bits, fraction_bits=fraction_bits)
    z = near_ties(decoder, 20)
    got = decoder.rounded(z, 1, 30)[:, -1]
    want = [exact(decoder, noise, 30) for noise in z.tolist()]
    assert got.tolist() == want
    naive = np.floor(z.astype(float) @ decoder._matrix[:, -1] * 2.0 ** (fraction_bits - noise_bits) + 0.5)
    assert naive.astype(int).tolist() != want, "float64 alone must get some of these wrong, or the test proves nothing"


@pytest.mark.parametrize("room", [28, 16, 12])
def test_random_noise_is_rounded_as_fractions_are_with_normalized_columns(room: int) -> None:
    f = normalized_power(20, 0.5, room)
    decoder = Decoder(f, noise_bits=f.grid_bits)
    z = np.random.default_rng(5).normal(0, 20 * 2.0**f.grid_bits, (30, 20)).astype(np.int64)
    got = decoder.rounded(z, 1, 20)
    for row, noise in enumerate(z.tolist()):
        assert got[row].tolist() == [exact(decoder, noise, t) for t in range(1, 21)]


def near_ties_of_any_row(f: Factorization, rows: int) -> npt.NDArray[np.int64]:
    """Noise whose total at the last trigger is within 1e-11 of a half-integer, where no draw enters with a whole number.

    Of 2^20 values each of two draws, far enough apart to go around, one pair brings the fraction near the half: modulo 2^64, by
    sorting.
    """
    numerators, denominator = f.row_exact(f.triggers)
    one = denominator << f.grid_bits
    z = np.random.default_rng(6).normal(0, 2000 * 2.0**f.grid_bits, (rows, f.triggers)).astype(np.int64)
    steps = np.arange(1 << 20, dtype=np.uint64)
    # What a step of 2^grid_bits / 101 or / 103 adds to the total's fraction.
    widths = (1 << f.grid_bits) // 101, (1 << f.grid_bits) // 103
    near, far = (
        np.uint64((numerators[place] * width << 64) // one % (1 << 64)) * steps
        for place, width in zip((-9, -4), widths, strict=True)
    )
    order = np.argsort(near)
    ascending = near[order]
    for noise in z:
        whole = sum(n * int(each) for n, each in zip(numerators, noise, strict=True))
        wanted = np.uint64(1 << 63) - (np.uint64((whole << 64) // one % (1 << 64)) + far)
        at = np.minimum(np.searchsorted(ascending, wanted), len(order) - 1)
        best = int(np.abs((ascending[at] - wanted).view(np.int64).astype(np.float64)).argmin())
        noise[-9] += widths[0] * int(order[at[best]])
        noise[-4] += widths[1] * best
    return z


@pytest.mark.parametrize("room", [28, 20])
def test_near_ties_are_rounded_as_fractions_are_with_normalized_columns(room: int) -> None:
    f = normalized_power(30, 0.5, room)
    decoder = Decoder(f, noise_bits=f.grid_bits)
    z = near_ties_of_any_row(f, 20)
    want = [exact(decoder, noise, 30) for noise in z.tolist()]
    assert decoder.rounded(z, 1, 30)[:, -1].tolist() == want
    assert decoder.rounded(z, 30, 30)[:, -1].tolist() == want
    naive = np.floor(z.astype(float) @ decoder._matrix[:, -1] * 2.0**-f.grid_bits + 0.5)
    assert naive.astype(int).tolist() != want, "float64 alone must get some of these wrong, or the test proves nothing"


def test_exact_ties_round_up_for_both_signs() -> None:
    decoder = Decoder(power(3, 0.5, 20), noise_bits=20)
    half = 1 << 19
    assert decoder.rounded(np.array([[half], [-half], [3 * half], [-3 * half]]), 1, 1)[:, 0].tolist() == [1, 0, 2, -1]


@pytest.mark.parametrize("fixed_fails", [False, True])
@pytest.mark.parametrize(
    "factorization", [power(25, 0.5, 20), normalized_power(25, 0.5, 28)], ids=["plain", "normalized"]
)
def test_the_rational_path_agrees_with_the_fixed_point(factorization: Factorization, fixed_fails: bool) -> None:
    decoder = Decoder(factorization, noise_bits=factorization.grid_bits)
    z = np.random.default_rng(7).normal(0, 9 * 2.0**factorization.grid_bits, 25).astype(np.int64).tolist()
    for trigger in [*range(25, 0, -3), *range(1, 26)]:
        if fixed_fails:
            assert decoder.rationally(z, trigger) == exact(decoder, z, trigger)
        else:
            assert decoder.exactly(z, trigger) == exact(decoder, z, trigger)


def test_rounding_does_not_depend_on_the_chunk() -> None:
    decoder = Decoder(power(100, 0.5, 20), noise_bits=20, fraction_bits=10)
    z = np.random.default_rng(8).normal(0, 9 * 2.0**20, (257, 100)).astype(np.int64)
    whole = decoder.rounded(z, 1, 100)
    pieces = np.concatenate([decoder.rounded(z[i : i + 13], 1, 100) for i in range(0, 257, 13)])
    columns = np.stack([decoder.rounded(z[:, :t], t, t)[:, 0] for t in range(1, 101)], axis=1)
    assert np.array_equal(whole, pieces)
    assert np.array_equal(whole, columns)


@pytest.mark.parametrize("f", [power(6, 0.5, 20), normalized_power(6, 0.5, 28)], ids=["plain", "normalized"])
def test_a_running_total_plus_rounded_noise_is_the_rounded_release(f: Factorization) -> None:
    """n_t + RN((B z)_t) = RN((B (C x + z))_t): what is published is a function of the private release alone."""
    decoder = Decoder(f, noise_bits=f.grid_bits)
    rng = np.random.default_rng(9)
    x, z = rng.integers(0, 50, 6).tolist(), rng.normal(0, 9 * 2.0**f.grid_bits, 6).astype(np.int64).tolist()
    y = (f.columns @ np.array(x) + np.array(z)).tolist()
    for t in range(1, 7):
        assert exact(decoder, y, t) == sum(x[:t]) + int(decoder.rounded(np.array([z]), 1, 6)[0, t - 1])
