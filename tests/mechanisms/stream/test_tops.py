"""ToPS as a whole: batching does not matter, released sums are exact plus addressed noise, error bars hold."""

from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from susurrus.mechanisms.noise import NoiseSource, WindowNoise
from susurrus.mechanisms.stream.range_sums import ReleasedStream
from susurrus.mechanisms.stream.releases import Releases, joined
from susurrus.mechanisms.stream.smoothers import Smoother, guess_weights, guesses
from susurrus.mechanisms.stream.stream_state import StreamState
from susurrus.mechanisms.stream.tops import Tops
from tests.mechanisms.stream.one_stream import advance, collect
from tests.samples import samples

SETTINGS = {"bound": 100, "epsilon": 0.5, "holdout": 64, "range_limit": 4096, "fanout": 4, "smoothing": 1}
MECHANISMS = {"default": Tops.of(**SETTINGS), "paper": Tops.of(**SETTINGS, adaptive=False)}


def noise(name: str = "p") -> WindowNoise:
    return NoiseSource(b"s" * 32, epoch=b"e", config=b"c", pipeline=name).window(0)


def series(length: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).integers(0, 40, length)


def run(mechanism: Tops, batches: list[np.ndarray], source: WindowNoise, *, repack: bool = False) -> tuple:
    state, parts = StreamState(), []
    for batch in batches:
        rest = collect(mechanism, state, batch)
        if state.position == mechanism.holdout and not state.theta:
            mechanism.open([state], source, [b"s"])
        if state.theta:
            part = advance(mechanism, state, rest, source, b"s")
            parts.append(part)
        if repack:
            state = mechanism.unpack(state.pack())
    return state, vars_of(joined(parts))


def vars_of(releases: Releases) -> dict[str, np.ndarray]:
    return {name: getattr(releases, name) for name in Releases.__dataclass_fields__}


def released_of(mechanism: Tops, columns: dict[str, np.ndarray], leaves: int | None = None) -> ReleasedStream:
    return ReleasedStream.of(
        mechanism, **Releases(**{name: column[:leaves] for name, column in columns.items()}).for_ranges()
    )


def clipped(mechanism: Tops, columns: dict[str, np.ndarray], values: np.ndarray) -> np.ndarray:
    """The released values as the mechanism clips them."""
    leaf = mechanism.base.leaf
    theta, lower = np.repeat(columns["theta"], leaf), np.repeat(columns["lower"], leaf)
    return np.clip(values[mechanism.holdout :][: len(theta)], lower, theta)


@pytest.mark.parametrize("mechanism", MECHANISMS.values(), ids=MECHANISMS)
class TestStateMachine:
    @settings(max_examples=15, deadline=None)
    @given(cuts=st.lists(st.integers(1, 1499), max_size=12))
    def test_batches_and_restarts_do_not_change_a_bit(self, mechanism, cuts):
        values = series(1500)
        whole_state, whole = run(mechanism, [values], noise())
        state, columns = run(mechanism, np.split(values, sorted(set(cuts))), noise(), repack=True)
        for name, column in whole.items():
            np.testing.assert_array_equal(columns[name], column)
        assert state.pack() == whole_state.pack()

    def test_leaves_are_clipped_sums_plus_the_trees_noise(self, mechanism):
        values = series(64 + 4096)
        _, columns = run(mechanism, [values], noise())
        exact = clipped(mechanism, columns, values).reshape(-1, 4).sum(axis=1)
        drawn = []
        for tree, place in enumerate(range(0, 1024, mechanism.base.leaves)):
            hierarchy = mechanism.menu[columns["layout"][place]]
            width = int(columns["theta"][place] - columns["lower"][place])
            drawn.append(hierarchy.rounded(hierarchy.draw(noise(), [b"s"], tree, width, mechanism.epsilon))[0])
        np.testing.assert_array_equal(columns["value"], exact + np.concatenate(drawn))
        np.testing.assert_array_equal(columns["sum"], np.cumsum(columns["value"]))
        np.testing.assert_array_equal(columns["last"], 64 + 4 * np.arange(1, 1025) - 1)
        np.testing.assert_array_equal(columns["first"], columns["last"] - 3)

    def test_every_menu_entry_spends_epsilon_once(self, mechanism):
        """In exact fractions; entries behind the allocation's leave their share to the count."""
        for entry, hierarchy in enumerate(mechanism.menu):
            count = Fraction(mechanism.growth.share) if entry >= len(mechanism.allocation.menu) else 0
            spent = sum(map(Fraction, hierarchy.shares)) + count
            assert 1 - Fraction(1, 10**9) < spent <= 1 + (0 if mechanism.adaptive else Fraction(1, 2**50))

    def test_values_outside_the_bound_are_clamped(self, mechanism):
        values = series(500)
        wild = np.where(values > 35, values + 10**6, values)
        wild = np.where(values < 2, -(10**9), wild)
        tame = np.clip(wild, 0, 100)
        assert run(mechanism, [wild], noise())[0].pack() == run(mechanism, [tame], noise())[0].pack()


@given(cuts=st.lists(st.integers(1, 1999), max_size=6))
def test_what_is_held_of_a_long_holdout_is_its_histogram(cuts):
    mechanism = Tops.of(bound=100, epsilon=0.5, holdout=3000, range_limit=4096)
    state, values = StreamState(), series(2000)
    for batch in np.split(values, sorted(set(cuts))):
        collect(mechanism, state, batch)
        state = mechanism.unpack(state.pack())
    np.testing.assert_array_equal(mechanism.histogram(state), mechanism.threshold.count(values))
    assert len(state.pack()) < 1200  # 40 distinct values, not 2000


def test_a_value_of_the_holdout_changes_theta_only_and_a_later_one_its_tree_only():
    """The parallel composition the guarantee rests on, checked on the noise actually added."""
    mechanism = MECHANISMS["paper"]
    values = series(64 + 2048)
    other = values.copy()
    other[64 + 700] += 5
    state, one = run(mechanism, [values], noise())
    _, two = run(mechanism, [other], noise())
    changed = np.flatnonzero(one["value"] != two["value"])
    assert changed.tolist() == [700 // 4]
    moved = two["value"] - one["value"]
    assert 0 < moved[changed[0]] <= state.theta


@pytest.mark.statistical
class TestErrorBars:
    """Plain and filtered standard errors against the errors seen, over many streams."""

    @staticmethod
    def collected(
        mechanism: Tops, streams: int, length: int = 64 + 2048
    ) -> list[tuple[ReleasedStream, np.ndarray, dict]]:
        result = []
        for number in range(streams):
            values = series(length, seed=number)
            _, columns = run(mechanism, [values], noise(f"stream-{number}"))
            result.append((released_of(mechanism, columns), clipped(mechanism, columns, values), columns))
        return result

    def test_plain_running_sums_and_ranges(self):
        first, last = np.array([0, 128, 400, 1024]), np.array([64, 132, 1600, 2048])
        ratios, running = [], []
        for released, truth, columns in self.collected(MECHANISMS["paper"], 60):
            estimate, error = released.plain(first, last)
            exact = np.array([truth[a:b].sum() for a, b in zip(first, last, strict=True)])
            ratios.append((estimate - exact) / error)
            running.append((columns["sum"] - truth.reshape(-1, 4).sum(axis=1).cumsum()) / columns["sum_error"])
        assert 0.7 < np.std(np.array(ratios)) < 1.3
        assert 0.8 < np.std(np.array(running)[:, [0, 10, 100, 300, 500]]) < 1.2

    def test_filtered_sums(self):
        first, last = np.array([0, 128, 400, 1024]), np.array([64, 640, 1600, 2048])
        ratios, gains = [], []
        for released, truth, columns in self.collected(MECHANISMS["default"], samples(12)):
            estimate, error = released.filtered(first, last)
            exact = np.array([truth[a:b].sum() for a, b in zip(first, last, strict=True)])
            ratios.append((estimate - exact) / error)
            gains.append([np.square(estimate - exact).mean(), np.square(released.plain(first, last)[0] - exact).mean()])
            at = np.flatnonzero(~np.isnan(columns["filtered_sum"]))
            assert len(at) == 2048 // (4 * 4 ** (MECHANISMS["default"].base.layers - 2))
        assert 0.5 < np.std(np.array(ratios)) < 1.4
        better, plain = np.mean(gains, axis=0)
        assert better < plain

    def test_an_error_bar_without_theta_is_caught(self):
        ratios = []
        for released, truth, _ in self.collected(MECHANISMS["paper"], 20):
            estimate, error = released.plain(np.array([0]), np.array([2048]))
            ratios.append((estimate - truth.sum()) / (error / released.theta[0]))
        assert np.std(ratios) > 3


def test_filtered_running_sum_of_the_agent_is_the_readers():
    """The Kalman form (``release``) and the dense form (``ReleasedStream``) agree with no layer below the blocks."""
    mechanism = Tops.of(bound=100, epsilon=0.5, holdout=64, range_limit=64, fanout=4, smoothing=1)
    assert mechanism.base.layers == 2
    level = np.where(np.arange(64 + 64) < 64 + 32, 1, 3)  # the level jumps, and the clipping range moves
    _, columns = run(mechanism, [series(64 + 64) * level], noise())
    last = np.arange(4, 65, 4)
    mean, error = released_of(mechanism, columns).filtered(np.zeros(16, dtype=np.int64), last)
    np.testing.assert_allclose(columns["filtered_sum"], mean, rtol=1e-6)
    np.testing.assert_allclose(columns["filtered_sum_error"], error, rtol=1e-4)


def test_reading_later_records_does_not_change_an_answer():
    mechanism = MECHANISMS["default"]
    _, columns = run(mechanism, [series(64 + 4096)], noise())

    def answer(leaves: int) -> np.ndarray:
        return released_of(mechanism, columns, leaves).filtered(np.array([10, 100]), np.array([1000, 777]))[0]

    np.testing.assert_allclose(answer(256), answer(1024), rtol=1e-9)


class TestSmoothers:
    LEAVES = np.array([8.0, 2.0, 6.0, 4.0])

    @pytest.mark.parametrize(
        ("smoother", "expected"),
        [
            (Smoother.RECENT, [5, 8, 2, 6, 4]),
            (Smoother.MEAN, [5, 8, 5, 16 / 3, 5]),
            (Smoother.MEDIAN, [5, 8, 5, 6, 5]),
            (Smoother.MOVING_AVERAGE, [5, 8, 5, 16 / 3, 4]),
            (Smoother.EXPONENTIAL, [5, 8, 4.4, 5.36, 4.544]),
        ],
    )
    def test_guesses(self, smoother, expected):
        memory = 3 if smoother is Smoother.MOVING_AVERAGE else 100
        np.testing.assert_allclose(guesses(smoother, 5.0, self.LEAVES, memory=memory), expected)

    @pytest.mark.parametrize("smoother", [s for s in Smoother if s is not Smoother.MEDIAN])
    def test_guess_weights_are_the_guess(self, smoother):
        guessed = guesses(smoother, 0.0, self.LEAVES, memory=8)
        for index in range(5):
            weights = guess_weights(smoother, index, 4)
            assert weights @ self.LEAVES == pytest.approx(guessed[index])
