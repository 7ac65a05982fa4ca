"""PAK as a whole: the dyadic tree, batching does not matter, error bars hold, the optimiser keeps its constraints."""

import dataclasses
import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from susurrus.mechanisms.errors import ConfigurationError
from susurrus.mechanisms.noise import NoiseSource, WindowNoise
from susurrus.mechanisms.stream import pak_parameters, quantile
from susurrus.mechanisms.stream.addresses import GRID_BITS, address
from susurrus.mechanisms.stream.pak import Pak, PakState, set_bits, tree_noise
from susurrus.mechanisms.stream.pak_parameters import (
    build,
    holdout_for_accuracy,
    holdout_for_stream,
    optimise,
    sampling_failure,
    tail_error,
    tree_error,
)
from susurrus.mechanisms.stream.quantile import SmoothQuantile, exact_smoothness
from tests.samples import samples

THRESHOLD = SmoothQuantile(bound=200, epsilon=0.8, delta=1e-5, holdout=300, tail=0.02, beta_tail=0.05, inflation=1.2)
MECHANISM = Pak(threshold=THRESHOLD, epsilon=1.0, horizon=300 + 100)


def noise(name: str = "p") -> WindowNoise:
    return NoiseSource(b"s" * 32, epoch=b"e", config=b"c", pipeline=name).window(0)


def series(length: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).integers(0, 50, length)


def run(
    batches: list[np.ndarray], source: WindowNoise, mechanism: Pak = MECHANISM
) -> tuple[PakState, np.ndarray, np.ndarray]:
    state, running, errors = mechanism.start(), [], []
    for batch in batches:
        rest = mechanism.collect(state, batch)
        if state.position == mechanism.holdout and not state.theta:
            first = mechanism.open(state, source, b"s")
            running.append(first.sum)
            errors.append(first.sum_error)
        if state.theta:
            part = mechanism.advance(state, rest, source, b"s")
            running.append(part.sum)
            errors.append(part.sum_error)
        state = PakState.unpack(state.pack())
    return state, np.concatenate(running), np.concatenate(errors)


@given(st.integers(1, 300), st.integers(0, 40))
def test_tree_noise_sums_the_dyadic_nodes_of_each_prefix(first, more):
    levels = 9
    drawn = tree_noise(noise(), b"s", 3, first, first + more, levels, 5.0)
    assert drawn.tolist() == [sum_of_nodes(i, levels) for i in range(first, first + more + 1)]


def sum_of_nodes(i: int, levels: int) -> int:
    """Walk down: the largest node that fits begins where the larger ones end."""
    total, covered = 0, 0
    for level in reversed(range(levels)):
        if i >> level & 1:
            label = noise().labels("pak/node", [address(b"s", 3, level)])
            node = covered >> level
            total += int(noise().laplace(label, node, node, scale=5.0, bits=GRID_BITS)[0, 0])
            covered += 1 << level
    return total


@settings(max_examples=15, deadline=None)
@given(st.lists(st.integers(1, 899), max_size=10))
def test_batches_and_restarts_do_not_change_a_bit(cuts):
    values = series(900)
    _, whole, errors = run([values], noise())
    _, again, again_errors = run(np.split(values, sorted(set(cuts))), noise())
    np.testing.assert_array_equal(again, whole)
    np.testing.assert_allclose(again_errors, errors)


def test_each_tree_of_a_long_stream_has_noise_of_its_own():
    drawn = [tree_noise(noise(), b"s", tree, 1, 100, 7, 50.0) for tree in range(6)]
    assert np.abs(np.corrcoef(drawn) - np.eye(6)).max() < 0.9
    reused = [tree_noise(noise(), b"s", tree % 3, 1, 100, 7, 50.0) for tree in range(6)]
    assert np.abs(np.corrcoef(reused) - np.eye(6)).max() > 0.9


@pytest.mark.statistical
def test_error_bars_hold_across_trees_and_include_theta():
    ratios, planted = [], []
    for number in range(samples(80)):
        values = series(800, seed=number)
        state, running, errors = run([values], noise(f"s{number}"))
        clipped = np.minimum(values, state.theta)
        exact = np.concatenate([[clipped[:300].sum()], clipped[:300].sum() + np.cumsum(clipped[300:])])
        places = [0, 1, 64, 100, 101, 255, 400]
        ratios.append(((running - exact) / errors)[places])
        planted.append(((running - exact) / (errors / state.theta))[places])
    spread = np.std(np.array(ratios))
    assert 0.85 < spread < 1.15
    assert np.std(np.array(planted)) > 3  # a scale without theta is caught


@pytest.mark.statistical
def test_the_initial_block_must_be_clipped_at_theta():
    """With theta fixed, replacing one held-out value by B moves the block by at most theta; unclipped, by B."""
    mechanism = dataclasses.replace(MECHANISM, threshold=dataclasses.replace(THRESHOLD, bound=10_000, inflation=0.05))
    values = series(300)
    loud = values.copy()
    loud[0] = 10_000
    state, running, _ = run([values], noise(), mechanism)
    clipped = int(np.minimum(values, state.theta).sum())
    drawn = int(running[0]) - clipped
    assert abs(int(np.minimum(loud, state.theta).sum()) + drawn - int(running[0])) <= state.theta
    assert abs(int(loud.sum()) + drawn - int(running[0])) > state.theta


def test_levels_cover_powers_of_two():
    for leaves in (1, 2, 3, 4, 127, 128, 129):
        mechanism = Pak(threshold=THRESHOLD, epsilon=1.0, horizon=300 + leaves)
        assert mechanism.levels == max(math.floor(math.log2(i)) + 1 for i in range(1, leaves + 1))


def test_steps_and_their_errors():
    state = MECHANISM.start()
    rest = MECHANISM.collect(state, series(600))
    block = MECHANISM.open(state, noise(), b"s")
    assert (block.first.tolist(), block.last.tolist(), block.value.tolist()) == ([0], [299], block.sum.tolist())
    released = MECHANISM.advance(state, rest, noise(), b"s")
    np.testing.assert_array_equal(np.diff(released.sum), released.value[1:])
    np.testing.assert_array_equal(released.first, np.arange(300, 600))
    np.testing.assert_array_equal(released.last, released.first)
    for i in (1, 2, 3, 8, 64, 100):
        # Two prefixes share the nodes of one level that end at the same leaf.
        before, after = ({(level, j >> level) for level in range(7) if j >> level & 1} for j in (i - 1, i))
        scale = state.theta * MECHANISM.levels / MECHANISM.epsilon
        expected = math.sqrt(2 * len(before ^ after) * scale**2 + 1 / 12)
        assert released.value_error[i - 1] == pytest.approx(expected)


def test_set_bits():
    assert set_bits(np.array([0, 1, 7, 2**40])).tolist() == [0, 1, 3, 1]


def test_accounting_of_the_parts_with_dp_accounting():
    """(epsilon_1, delta) and Lap(theta / epsilon_2) on one clipped sum; a tree of H levels: pure epsilon."""
    from dp_accounting import dp_event
    from dp_accounting.pld import PLDAccountant

    accountant = PLDAccountant()
    accountant.compose(dp_event.LaplaceDpEvent(MECHANISM.levels / MECHANISM.epsilon), MECHANISM.levels)
    assert accountant.get_epsilon(1e-12) <= MECHANISM.epsilon + 1e-3
    assert MECHANISM.threshold.epsilon + (MECHANISM.epsilon - MECHANISM.threshold.epsilon) <= MECHANISM.epsilon
    block = PLDAccountant()
    block.compose(dp_event.LaplaceDpEvent(1 / (MECHANISM.epsilon - MECHANISM.threshold.epsilon)))
    assert block.get_epsilon(1e-12) == pytest.approx(MECHANISM.epsilon - MECHANISM.threshold.epsilon, rel=1e-2)


D = 2.0**-20
SETTINGS: list[dict[str, Any]] = [
    {"epsilon": 1.0, "delta": D, "holdout": 50_000, "horizon": 150_000},
    {"epsilon": 1.0, "delta": D, "holdout": 50_000, "horizon": 25_000_000, "exact": True},
    {"epsilon": 8.0, "delta": D, "holdout": 500, "horizon": 1524, "tail_start": 0.05},
    {"epsilon": 20.0, "delta": D, "holdout": 2000, "horizon": 100_000, "tail_start": 0.02},
    {"epsilon": 2.0, "delta": 0.01, "holdout": 48, "horizon": 50, "tail_start": 0.49},
]


class Imprecise:
    """Another CPU: a module whose functions with rounding errors have other ones."""

    def __init__(self, module: Any, rng: np.random.Generator) -> None:
        self._module, self._rng = module, rng

    def __getattr__(self, name: str) -> Any:
        real = getattr(self._module, name)
        if name not in ("exp", "expm1", "log", "log1p", "power"):
            return real
        return lambda *given: real(*given) * (1 + 1e-15 * self._rng.uniform(-1, 1, np.shape(given[0])))


class TestParameters:
    @pytest.mark.parametrize("setting", SETTINGS)
    def test_another_cpu_finds_the_same_parameters(self, setting, monkeypatch):
        found, smoothness = optimise(**setting), exact_smoothness(setting["epsilon"], setting["delta"])
        for number in range(20):
            with monkeypatch.context() as patched:
                rng = np.random.default_rng(number)
                for module in (pak_parameters, quantile):
                    patched.setattr(module, "math", Imprecise(math, rng))
                    patched.setattr(module, "np", Imprecise(np, rng))
                of_log = pak_parameters._LOG_H * (1 + 1e-15 * rng.uniform(-1, 1, len(pak_parameters._LOG_H)))
                patched.setattr(pak_parameters, "_LOG_H", of_log)
                there = optimise(**setting)
                assert exact_smoothness(setting["epsilon"], setting["delta"]) == smoothness
            assert dataclasses.replace(there, objective=found.objective) == found
            assert there.objective == pytest.approx(found.objective, rel=1e-12)

    def test_constraints_hold_at_the_optimum(self):
        found = optimise(epsilon=1.0, delta=2.0**-20, holdout=50_000, horizon=150_000)
        assert found.tail * 50_000 >= 1
        assert found.tail <= found.p <= 0.005
        assert sampling_failure(50_000, found.p, found.tail) <= 0.02
        build(bound=3000, epsilon=1.0, delta=2.0**-20, holdout=50_000, horizon=150_000)

    def test_the_optimum_beats_its_neighbourhood(self):
        """More values in the stream ask for a larger theta; the objective grows with n."""
        short = optimise(epsilon=1.0, delta=2.0**-20, holdout=50_000, horizon=150_000)
        long = optimise(epsilon=1.0, delta=2.0**-20, holdout=50_000, horizon=25_000_000)
        assert long.inflation > short.inflation
        assert long.objective > short.objective

    def test_sampling_failure_is_the_binomial_tail(self):
        exact = sum(math.comb(40, k) * 0.2**k * 0.8 ** (40 - k) for k in range(5))
        assert sampling_failure(40, 0.2, 0.1) == pytest.approx(exact)

    @pytest.mark.statistical
    def test_bounds_hold_as_often_as_they_say(self):
        rng = np.random.default_rng(0)
        sums = np.abs(rng.laplace(0, 7 / 0.5, (samples(4000), 7)).sum(axis=1))
        assert (sums > tree_error(100, 0.5, 0.1)).mean() < 0.1
        excess = np.maximum(rng.exponential(size=(samples(400), 5000)) - 2 * math.log(20), 0).sum(axis=1)
        assert (excess > tail_error(5000, 1 / 20, 2.0, 0.1)).mean() < 0.1
        assert excess.mean() == pytest.approx(5000 / 400, rel=0.1)  # n p^r: what the paper's bound leaves out

    def test_heuristics_for_the_holdout(self):
        assert holdout_for_accuracy(epsilon=0.85, delta=2.0**-20, tail=0.005) < 50_000
        assert holdout_for_accuracy(epsilon=0.1, delta=2.0**-20, tail=0.005) > 50_000
        m = holdout_for_stream(epsilon=1.0, delta=2.0**-20, horizon=150_000)
        assert 256 <= m <= 15_000

    def test_impossible_streams_are_refused(self):
        with pytest.raises(ConfigurationError, match="hold out more"):
            optimise(epsilon=1.0, delta=2.0**-20, holdout=100, horizon=1000)
        with pytest.raises(ConfigurationError, match="horizon"):
            Pak(threshold=THRESHOLD, epsilon=1.0, horizon=300)
