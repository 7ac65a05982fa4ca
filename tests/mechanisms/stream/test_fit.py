"""The fit that is released beside filtered sums: high at a jump of the level, until the jump is known; high where no model fits."""

import dataclasses

import numpy as np
import pytest

from susurrus.mechanisms.noise import NoiseSource
from susurrus.mechanisms.stream.level_jumps import NONE
from susurrus.mechanisms.stream.posterior import FIT_LIMIT
from susurrus.mechanisms.stream.range_sums import ReleasedStream
from susurrus.mechanisms.stream.tops import Tops
from tests.mechanisms.stream.one_stream import whole

HOLDOUT, BLOCK, TREE = 4096, 256, 4096
TOPS = Tops.of(bound=200, epsilon=0.2, holdout=HOLDOUT, range_limit=2**16, smoothing=2)


def released(levels: np.ndarray, seed: int = 0) -> ReleasedStream:
    """The stream with these levels behind the holdout, one for each block."""
    rng = np.random.default_rng(seed)
    means = np.concatenate([np.full(HOLDOUT, 60.0), np.repeat(levels, BLOCK)])
    values = np.clip(np.rint(rng.normal(means, 5.0)), 0, 200).astype(np.int64)
    noise = NoiseSource(b"fit" * 11, epoch=b"%d" % seed, config=b"c", pipeline="p").window(0)
    _, leaves = whole(TOPS, values, noise, b"s")
    return ReleasedStream.of(TOPS, **leaves.for_ranges())


def test_the_sizes_are_those_assumed() -> None:
    assert (TOPS.base.values, TOPS.base.leaf) == (TREE, BLOCK)


@pytest.fixture(scope="module")
def shifted() -> ReleasedStream:
    """Five trees; the level falls in the middle of the fourth one."""
    return released(np.where(np.arange(80) < 56, 60.0, 40.0))


def test_a_jump_is_a_misfit_until_it_is_known(shifted: ReleasedStream) -> None:
    [known, *_] = np.flatnonzero(shifted.jumps[:, 0] != NONE)
    assert 56 < known < 64
    assert shifted.fit[:56].max() < FIT_LIMIT < shifted.fit[56:known].max()
    # With the jump the models fit, and what follows the tree is not held against them, either.
    assert shifted.fit[known:].max() < FIT_LIMIT


def test_a_range_is_judged_by_what_is_known_at_its_end(shifted: ReleasedStream) -> None:
    [known, *_] = np.flatnonzero(shifted.jumps[:, 0] != NONE)
    [bad, *_] = np.flatnonzero(shifted.fit > FIT_LIMIT)
    first = np.array([0, 0, 0, bad, known]) * BLOCK
    last = np.array([bad, bad + 1, known + 1, bad + 1, 80]) * BLOCK
    assert shifted.fits(first, last).tolist() == [True, False, True, False, True]
    # Later rows change no answer about a range that ends earlier.
    size = {"leaf_sums": shifted.leaf_sums, "jumps": shifted.jumps, "fit": shifted.fit}
    shorter = dataclasses.replace(shifted, **{name: array[: bad + 1] for name, array in size.items()})
    assert shorter.fits(first[:2], last[:2]).tolist() == [True, False]


def test_a_misfit_without_a_jump_counts_in_every_range_that_has_it(shifted: ReleasedStream) -> None:
    never = dataclasses.replace(shifted, jumps=np.full_like(shifted.jumps, NONE))
    [bad, *_] = np.flatnonzero(shifted.fit > FIT_LIMIT)
    assert not never.fits(np.array([0]), np.array([80 * BLOCK]))[0]
    assert never.fits(np.array([(bad + 3) * BLOCK]), np.array([80 * BLOCK]))[0]


def test_errors_are_widened_only_where_the_models_do_not_fit(shifted: ReleasedStream) -> None:
    [bad, *_] = np.flatnonzero(shifted.fit > FIT_LIMIT)
    first, last = np.array([0, 0]), np.array([80, bad + 1]) * BLOCK
    fitting = dataclasses.replace(shifted, fit=np.ones_like(shifted.fit))
    as_released, as_if_fitting = shifted.filtered(first, last)[1], fitting.filtered(first, last)[1]
    assert as_released[0] == as_if_fitting[0]
    assert as_released[1] == pytest.approx(as_if_fitting[1] * (shifted.fit[bad] / FIT_LIMIT) ** 0.5)
