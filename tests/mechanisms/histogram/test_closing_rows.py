"""Rows of the last trigger: public keys measured twice, new keys with the stream's plain value, whatever the chunks and replays."""

import math
from fractions import Fraction
from typing import Any

import numpy as np
import pytest

from susurrus.mechanisms.histogram.factored import Factored
from susurrus.mechanisms.histogram.plan import Column
from susurrus.mechanisms.histogram.strategy import Increments, Step
from susurrus.mechanisms.histogram.user_lists import public_units
from susurrus.mechanisms.noise import WindowNoise
from tests.mechanisms.histogram.closing_cases import ONE, PAID, USERS, VISITS, closing, drawn, lists_of, sums_of, window


class Scene:
    """Keys at the last trigger: declared ones, some of them public since long, and others that only lists can find."""

    SIZE = 300

    def __init__(self, columns: tuple[Column, ...] = (USERS, PAID), **changes: Any) -> None:
        generator = np.random.default_rng(8)
        fields = {"triggers": 4, "epsilon": 6.0, "delta": 1e-4, "max_records": 24, "keys": 12} | changes
        self.strategy = closing(columns, max_records_per_key=1 if VISITS in columns else 3, **fields)
        self.keys = [b"key-%d" % i for i in range(self.SIZE)]
        self.declared = np.arange(self.SIZE) % 3 < 2
        popular = generator.integers(-5, 5000, self.SIZE)
        self.unit = np.where(np.arange(self.SIZE) % 3 == 1, public_units(popular), 0)
        self.unit[1] = 1  # the least there is, and not none
        # The last thirty keys no user brings, those before them few.
        rare = np.linspace(1, 0, self.SIZE - 30)
        lists = [
            np.flatnonzero(generator.random(self.SIZE - 30) < 0.25 * rare)[: generator.integers(0, 25)]
            for _ in range(3000)
        ]
        self.lists = sums_of(self.strategy.lists, [generator.permutation(each) for each in lists], self.unit)
        self.lists.public_weight[4:150:30] //= 4  # as of users with very long lists
        users = np.bincount(np.concatenate(lists), minlength=self.SIZE)
        paid = np.where(users > 0, generator.integers(-500, 500, self.SIZE), 0)
        sums = [paid if column.kind == "sum" else users for column in columns]
        self.sums = np.stack(sums, axis=1)

    def step(self, rows: Any = None, *, noise: WindowNoise | None = None, stream: bool = False) -> Step[Any]:
        """The last trigger of these rows, whose users the stream gave no weight. stream: only what the stream does."""
        strategy, rows = self.strategy, np.arange(self.SIZE) if rows is None else rows
        none = np.zeros(len(rows), np.int64)
        increments = Increments(users=none, weight=none, sums=self.sums[rows], lists=self.lists.take(rows))
        step = Factored.step if stream else type(strategy).step
        return step(
            strategy,
            strategy.plan.triggers,
            [self.keys[i] for i in rows.tolist()],
            strategy.empty(len(rows)),
            increments,
            noise or window(),
            self.declared[rows],
        )


def plain(strategy: Any, scene: Scene, index: int) -> tuple[list[int], Fraction]:
    """(the stream's estimates of a column for every key, their variance), every draw from its address, in fractions."""
    noise, T = window(), strategy.plan.triggers
    value = strategy.values[strategy.source[index]]
    f = value.factorization
    labels = noise.labels(f"{value.mechanism}/{strategy.plan.digest().hex()}", scene.keys)
    z = noise.normal(labels, 1, T, sigma=value.sigma, bits=f.bits).tolist()
    row2 = sum((Fraction(n, 1 << (f.bits * k)) ** 2 for k, n in enumerate(f.decoder_exact[:T])), Fraction(0))
    estimates = [int(scene.sums[i, index]) + value.decoder.rationally(row, T) for i, row in enumerate(z)]
    return estimates, Fraction(value.sigma) ** 2 * row2 + Fraction(1, 12)


class TestRows:
    @pytest.mark.parametrize("columns", [(USERS, PAID), (VISITS, USERS), (PAID, VISITS)])
    def test_of_public_keys_are_means_and_of_new_ones_the_streams(self, columns: tuple[Column, ...]) -> None:
        """By inverse variance, every mean in fractions."""
        scene = Scene(columns)
        strategy, step = scene.strategy, scene.step()
        found = step.published & ~scene.declared
        assert step.published[scene.declared].all()
        assert 10 < found.sum() < (~scene.declared).sum()
        assert step.new_rows is not None
        assert step.direct is not None
        assert step.new_rows.index.tolist() == np.flatnonzero(found).tolist()
        noise = drawn(strategy, "public", strategy.public_sigma, scene.keys, window()).tolist()
        suspected = 0
        for index, column in enumerate(columns):
            stream, variance = plain(strategy, scene, index)
            for i in np.flatnonzero(step.published).tolist():
                unit = int(scene.unit[i])
                assert step.direct[0][i, index] == stream[i]
                assert step.direct[1][i, index] == pytest.approx(math.sqrt(variance), rel=1e-9)
                if column.kind == "sum" or not unit:
                    assert step.estimates[i, index] == stream[i]
                    assert step.std_errors[i, index] == step.direct[1][i, index]
                    continue
                again = Fraction(int(scene.lists.public_weight[i]) + noise[i], unit)
                again2 = (Fraction(strategy.public_sigma) * ONE / unit) ** 2
                # Three deviations below the stream's, it is taken for short lists' rest, and counts for less.
                bias = max(max(stream[i] - again, 0) ** 2 - 9 * (variance + again2), 0)
                suspected += bias > 0
                share = variance / (variance + again2 + bias)
                mean = stream[i] * (1 - share) + again * share
                assert abs(int(step.estimates[i, index]) - mean) <= 0.5 + 1e-6
                expected = math.sqrt((1 - share) ** 2 * variance + share**2 * again2 + Fraction(1, 12))
                assert step.std_errors[i, index] == pytest.approx(expected, rel=1e-9)
        assert suspected >= 3
        hidden = ~step.published
        assert not step.estimates[hidden].any()
        assert not step.std_errors[hidden].any()

    def test_of_public_keys_are_better_than_the_streams(self) -> None:
        """With a unit of 1 of 2^20 the mean is the stream's, rounded once more."""
        scene = Scene()
        step, value = scene.step(), scene.strategy.values[0]
        errors, twice = step.std_errors[:, 0], scene.declared & (scene.unit > 1)
        assert (errors[twice] < value.std[-1]).all()
        assert errors[1] == pytest.approx(math.sqrt(value.std[-1] ** 2 + 1 / 12))

    def test_of_public_keys_that_no_user_brought_are_noise_all_the_same(self) -> None:
        """Noise only where there are users would tell that there are."""
        scene = Scene()
        step, alone = scene.step(), scene.step(stream=True)
        untouched = scene.declared & (scene.unit > 0) & (scene.lists.public_weight == 0)
        assert untouched.sum() >= 10
        assert (step.estimates[untouched, 0] != alone.estimates[untouched, 0]).any()
        assert len(set(step.estimates[untouched, 0].tolist())) > 1

    def test_do_not_depend_on_chunks_order_and_replays(self) -> None:
        scene = Scene()
        whole, generator = scene.step(), np.random.default_rng(9)
        assert whole.new_rows is not None
        evidence = dict(zip(whole.new_rows.index.tolist(), whole.new_rows.evidence.tolist(), strict=True))
        for parts in (1, 7, 100):
            shared = window()
            for rows in np.array_split(generator.permutation(scene.SIZE), parts):
                for noise in (shared, None):
                    part = scene.step(rows, noise=noise)
                    for field in ("changed", "due", "published", "estimates", "std_errors"):
                        assert np.array_equal(getattr(part, field), getattr(whole, field)[rows])
                    packed = scene.strategy.pack(whole.states.take(rows))
                    assert scene.strategy.pack(part.states) == packed
                    assert part.new_rows is not None
                    new = rows[part.new_rows.index]
                    assert part.new_rows.evidence.tolist() == [evidence[i] for i in new.tolist()]

    def test_of_another_plan_and_another_window_have_other_noise(self) -> None:
        scene, other = Scene(), Scene(keys=13)
        shown = scene.declared & (scene.unit > 0)
        results = [
            s.step(noise=window(name)).estimates[shown, 0] for s, name in ((scene, "p"), (scene, "q"), (other, "p"))
        ]
        assert all((a != b).mean() > 0.3 for a, b in zip(results, [*results[1:], results[0]], strict=True))

    def test_the_last_trigger_wants_lists_and_no_other_does(self) -> None:
        strategy, none = closing(), np.zeros(1, np.int64)
        nothing = Increments(users=none, weight=none, sums=none[:, None])
        begun = strategy.step(2, [b"k"], strategy.empty(1), nothing, window(), np.ones(1, np.bool_))
        assert begun.direct is begun.new_rows is None
        with pytest.raises(ValueError, match="lists"):
            strategy.step(3, [b"k"], begun.states, nothing, window(), np.ones(1, np.bool_))

    @pytest.mark.statistical
    def test_spread_as_their_standard_errors_say_around_the_truth(self) -> None:
        """Keys of users with short lists: many alike, by unit, some brought by no user."""
        strategy, each = closing((VISITS, PAID), epsilon=1.0, triggers=4), 4000
        unit = np.repeat([0, *public_units(np.array([0, 700, 200_000])).tolist()], each)
        truth = np.tile([0, 1, 60, 5000], each)
        step = strategy.step(
            4,
            [b"%d" % i for i in range(len(unit))],
            strategy.empty(len(unit)),
            Increments(
                users=truth * 0,
                weight=truth * 0,
                sums=np.stack([truth, truth], axis=1),
                lists=lists_of(np.where(unit == 0, truth, 0), np.where(unit == 0, truth * ONE, 0), truth * unit, unit),
            ),
            window(),
            np.ones(len(unit), np.bool_),
        )
        error = (step.estimates - truth[:, None]) / step.std_errors
        for value in np.unique(unit).tolist():
            of = error[unit == value]
            assert (abs(of.mean(axis=0)) < 5 / math.sqrt(each)).all()
            assert (abs(of.std(axis=0) - 1) < 5 / math.sqrt(2 * each)).all()
        # Measured with more of the norm is measured better, and the other column by the stream alone.
        assert (np.diff([step.std_errors[unit == value, 0][0] for value in np.unique(unit)[1:]]) < 0).all()
        assert len(np.unique(step.std_errors[:, 1])) == 1
