"""Rows of the last trigger: direct estimates, and the evidence by which all partitions calibrate them together."""

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
from tests.mechanisms.histogram.closing_cases import ONE, PAID, USERS, VISITS, closing, drawn, sums_of, window


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
    def test_are_the_streams_with_evidence_of_their_own(self, columns: tuple[Column, ...]) -> None:
        """Every draw from its address. Public keys have the second measurement and its unit, new ones the statistics."""
        scene = Scene(columns)
        strategy, step = scene.strategy, scene.step()
        found = step.published & ~scene.declared
        assert step.published[scene.declared].all()
        assert 10 < found.sum() < (~scene.declared).sum()
        for index in range(len(columns)):
            stream, variance = plain(strategy, scene, index)
            shown = np.flatnonzero(step.published)
            assert step.estimates[shown, index].tolist() == [stream[i] for i in shown.tolist()]
            assert step.std_errors[shown, index] == pytest.approx(np.full(len(shown), math.sqrt(variance)), rel=1e-9)
        again = drawn(strategy, "public", strategy.look.public_sigma, scene.keys, window()) + scene.lists.public_weight
        statistic = drawn(strategy, "unknown", strategy.look.unknown_sigma, scene.keys, window()) + scene.lists.weight
        # A declared key that had no unit when lists were weighed is neither.
        expected = np.flatnonzero(found | (step.published & (scene.unit > 0)))
        assert len(expected) < step.published.sum()
        assert step.pooled_rows is not None
        assert step.pooled_rows.index.tolist() == expected.tolist()
        direct, second, filtered, unit = step.pooled_rows.evidence.T
        assert direct.tolist() == step.estimates[expected, strategy.counting[0]].tolist()
        assert second.tolist() == np.where(found, statistic, again)[expected].tolist()
        assert unit.tolist() == np.where(found, 0, scene.unit)[expected].tolist()
        assert ((filtered != 0) == found[expected]).all()
        hidden = ~step.published
        assert not step.estimates[hidden].any()
        assert not step.std_errors[hidden].any()

    def test_of_public_keys_that_no_user_brought_have_a_second_measurement_all_the_same(self) -> None:
        """Noise only where there are users would tell that there are."""
        scene = Scene()
        step = scene.step()
        assert step.pooled_rows is not None
        second = dict(zip(step.pooled_rows.index.tolist(), step.pooled_rows.evidence[:, 1].tolist(), strict=True))
        untouched = np.flatnonzero(scene.declared & (scene.unit > 0) & (scene.lists.public_weight == 0))
        assert len(untouched) >= 10
        assert all(second[i] != 0 for i in untouched.tolist())
        assert len({second[i] for i in untouched.tolist()}) == len(untouched)

    @pytest.mark.parametrize("kind", ["line", "ratio"])
    def test_are_calibrated_by_kind(self, kind: str) -> None:
        """Rows of one kind do not move with those of the other; few rows of a kind stay as they are."""
        strategy: Any = closing((USERS, PAID), triggers=4, epsilon=6.0)
        rng, size = np.random.default_rng(3), 600
        truth = 60 * (rng.pareto(1.5, size) + 1)
        unit = public_units(truth.astype(np.int64))
        direct = truth + rng.normal(0, 8, size)
        statistic = np.stack([truth, truth], axis=1) * 0.8 + rng.normal(0, 3, (size, 2))
        new = np.column_stack([direct, statistic * ONE, np.zeros(size)])
        known = np.column_stack([direct, (truth * 0.9 + rng.normal(0, 4, size)) * unit, np.zeros(size), unit])
        new, known = np.rint(new).astype(np.int64), np.rint(known).astype(np.int64)
        mine, other = (new, known) if kind == "line" else (known, new)
        estimates = np.tile(mine[:, :1], (1, 2))
        errors = np.full((size, 2), 8.0)
        alone = strategy.calibrate(estimates, errors, mine, mine)
        beside = strategy.calibrate(estimates, errors, mine, np.concatenate([other, mine]))
        few = strategy.calibrate(estimates, errors, mine, np.concatenate([other, mine[:199]]))
        assert alone[0].tolist() == beside[0].tolist()
        assert alone[1].tolist() == beside[1].tolist()
        assert few[0].tolist() == estimates.tolist()
        assert few[1].tolist() == errors.tolist()
        assert (alone[0][:, 1] == estimates[:, 1]).all(), "sums stay"
        misses = np.abs(alone[0][:, 0] - truth), np.abs(direct - truth)
        assert misses[0].mean() < 0.95 * misses[1].mean()

    def test_do_not_depend_on_chunks_order_and_replays(self) -> None:
        scene = Scene()
        whole, generator = scene.step(), np.random.default_rng(9)
        assert whole.pooled_rows is not None
        evidence = dict(zip(whole.pooled_rows.index.tolist(), whole.pooled_rows.evidence.tolist(), strict=True))
        for parts in (1, 7, 100):
            shared = window()
            for rows in np.array_split(generator.permutation(scene.SIZE), parts):
                for noise in (shared, None):
                    part = scene.step(rows, noise=noise)
                    for field in ("changed", "due", "published", "estimates", "std_errors"):
                        assert np.array_equal(getattr(part, field), getattr(whole, field)[rows])
                    packed = scene.strategy.pack(whole.states.take(rows))
                    assert scene.strategy.pack(part.states) == packed
                    assert part.pooled_rows is not None
                    new = rows[part.pooled_rows.index]
                    assert part.pooled_rows.evidence.tolist() == [evidence[i] for i in new.tolist()]

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
        assert begun.pooled_rows is None
        with pytest.raises(ValueError, match="lists"):
            strategy.step(3, [b"k"], begun.states, nothing, window(), np.ones(1, np.bool_))
