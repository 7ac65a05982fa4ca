"""Closing rows that add up over windows: constants, decisions and states against their definitions, and what breaks them.

docs/guarantees/evidence.md has the rule. `test_evidence_toys.py` has its proof's toys; here the mechanism itself runs.
"""

import math
from dataclasses import replace
from fractions import Fraction
from typing import Any

import mpmath
import numpy as np
import pytest
from scipy import stats

from susurrus.mechanisms.calendar import WindowIndex
from susurrus.mechanisms.errors import ConfigurationError
from susurrus.mechanisms.histogram.closing import Closing
from susurrus.mechanisms.histogram.evidence_memory import SCALES, ClosingRows, EvidenceTest, PastRows
from susurrus.mechanisms.histogram.evidence_states import EvidenceStates, MeasuredWindow
from susurrus.mechanisms.histogram.plan import EVIDENCE_WINDOWS
from susurrus.mechanisms.histogram.registry import build_strategy
from susurrus.mechanisms.histogram.strategy import Increments
from tests.mechanisms.histogram.closing_cases import (
    Filter,
    closing,
    drawn,
    failures_at,
    lists_of,
    names,
    plan,
    stream_noise,
)
from tests.mechanisms.histogram.evidence_cases import SOURCE, Dropped, Kept, Windows
from tests.mechanisms.histogram.test_closing import CERTAIN, DOUBT, exceeds, tail
from tests.mechanisms.histogram.test_levels import plan_of_levels
from tests.samples import samples


class TestConstants:
    def test_a_plan_without_evidence_is_the_plan_that_it_was(self) -> None:
        assert "evidence_windows" not in plan().published()
        digests = {plan(evidence_windows=windows).digest() for windows in EVIDENCE_WINDOWS}
        assert len(digests) == 3
        assert plan(evidence_windows=1).digest() == plan().digest()
        assert "evidence" not in closing().describe()["closing"]

    def test_other_numbers_and_strategies_without_a_last_look_are_refused(self) -> None:
        with pytest.raises(ConfigurationError, match=r"evidence_windows=3: must be one of 1, 2, 4"):
            plan(evidence_windows=3)
        with pytest.raises(ConfigurationError, match=r"evidence_windows=2: adds up what a last look measures"):
            closing(evidence_windows=2, unknown_share=0.0, public_share=0.0)

    @pytest.mark.parametrize("windows", [2, 4])
    def test_the_tests_that_look_at_a_window_fail_with_at_most_its_beta(self, windows: int) -> None:
        strategy = closing(evidence_windows=windows, epsilon=6.0, delta=1e-9)
        described = strategy.describe()
        with mpmath.workdps(50):
            beta = mpmath.mpf(strategy.guarantee.delta_selection) / 2 / described["closing"]["keys"]
            quantiles = described["closing"]["evidence"]["quantiles"]
            spent = sum(int(scale) * tail(mpmath.mpf(z)) for scale, z in quantiles.items() if scale != "1")
            # The window's own row has the level of the dearest user's keys together.
            alone = failures_at(strategy, Filter.of(strategy), mpmath.mpf(strategy.look.level))
            spent += max(alone) / described["closing"]["keys"]
            assert [int(scale) for scale in quantiles] == list(SCALES[windows])
            assert beta * (1 - mpmath.mpf(10) ** -6) < spent <= beta

    @pytest.mark.parametrize("windows", [2, 4])
    def test_height_and_variance_are_those_of_the_definition(self, windows: int) -> None:
        strategy = closing(evidence_windows=windows, minimum_users=3, triggers=5)
        filtered, described = Filter.of(strategy), strategy.describe()["closing"]
        weight = Fraction(described["filter_weight"])
        height = 4 * (1 + weight * filtered.height) + Fraction(1, 1 << 21) + weight * filtered.slack
        variance = Fraction(described["unknown_sigma"]) ** 2 + weight**2 * filtered.variance
        assert described["evidence"]["height"] == pytest.approx(float(height), rel=1e-9)
        assert described["evidence"]["variance"] == pytest.approx(float(variance), rel=1e-9)
        level = described["evidence"]["height"] + described["evidence"]["quantiles"]["1"] * math.sqrt(float(variance))
        assert described["threshold"] == pytest.approx(level, rel=1e-8)


def random_past(rng: np.random.Generator, size: int, windows: int) -> PastRows:
    return PastRows(
        values=rng.normal(6, 5, (size, windows)),
        heights=rng.uniform(0.5, 3, (size, windows)),
        variances=rng.uniform(0.5, 4, (size, windows)),
        in_play=np.logical_and.accumulate(rng.random((size, windows)) < 0.8, axis=1),
        opened=rng.random((size, windows)) < 0.4,
    )


@pytest.mark.parametrize("windows", [2, 4])
def test_decisions_are_those_of_the_definition(windows: int) -> None:
    """Sums in fractions, key by key."""
    rng, size, test = np.random.default_rng(1), 3000, EvidenceTest(windows, 0.05)
    values, opened, past = rng.normal(6, 5, size), rng.random(size) < 0.4, random_past(rng, size, windows - 1)
    alone = opened & (values >= 1.5 + test.quantiles[0] * math.sqrt(2.0))
    found = test.found(alone, values, opened, past, height=1.5, variance=2.0)
    expected, longer = [], 0
    for key in range(size):
        passes = bool(alone[key])
        for scale, quantile in zip(SCALES[windows][1:], test.quantiles[1:], strict=True):
            plays = [at for at in range(scale - 1) if past.in_play[key, at]]
            total = Fraction(values[key]) + sum(Fraction(past.values[key, at]) for at in plays)
            height = Fraction(1.5) + sum(Fraction(past.heights[key, at]) for at in plays)
            variance = 2.0 + sum(past.variances[key, at] for at in plays)
            gate = opened[key] or any(past.opened[key, at] for at in plays)
            passes = passes or (gate and float(total) >= float(height) + quantile * math.sqrt(variance) * (1 + 1e-9))
        longer += passes and not alone[key]
        expected.append(passes)
    assert found.tolist() == expected
    assert size / 50 < longer < size / 2


class TestUnbrought:
    """The row of a key that nobody brought is the noise that the key would have had."""

    def test_is_noise_by_the_addresses_of_every_row(self) -> None:
        strategy, keys, noise = closing(evidence_windows=2, triggers=4), names(50), SOURCE.window(WindowIndex(3))
        filtered, weight = Filter.of(strategy), Fraction(strategy.look.filter_weight)
        f = drawn(strategy, "unknown", strategy.look.unknown_sigma, keys, noise)
        z = stream_noise(strategy, keys, noise).tolist()
        expected = [
            float(Fraction(int(f[i]), 1 << 20) + weight * filtered.of_key(strategy, [0] * 4, z[i])) for i in range(50)
        ]
        assert strategy.unbrought(keys, noise).tolist() == pytest.approx(expected, rel=1e-12)

    def test_is_what_users_add_to(self) -> None:
        """Bit for bit the row of a key whose users have no weight."""
        windows = Windows(closing(evidence_windows=2, minimum_users=3), 200)
        step = windows.window(1, weight=np.zeros(200, np.int64))
        assert step.closing is not None
        noise = SOURCE.window(WindowIndex(0))
        assert step.closing.values.tolist() == windows.strategy.unbrought(windows.keys, noise).tolist()

    def test_is_what_is_tested_on_a_day_on_which_nobody_comes(self) -> None:
        """After a day that has opened the gate. Otherwise whoever comes alone would bring the key its noise."""
        without, alone = (Windows(closing(evidence_windows=2, minimum_users=3), 200) for _ in range(2))
        steps = []
        for windows, users in ((without, 0), (alone, 1)):
            windows.window(4)
            steps.append(windows.window(users, weight=np.zeros(200, np.int64)).closing)
        open_gates = ~without.published[0]
        assert open_gates.sum() > 100
        noise = without.strategy.unbrought(without.keys, SOURCE.window(WindowIndex(1)))
        for step in steps:
            assert step is not None
            assert step.values[open_gates].tolist() == noise[open_gates].tolist()
        assert without.published[1].tolist() == alone.published[1].tolist()


class TestStates:
    @pytest.mark.parametrize("windows", [2, 4])
    def test_follow_every_key_as_a_list_of_its_windows_does(self, windows: int) -> None:
        """Random windows, some skipped; a slow account of each key beside them."""
        rng, size, depth = np.random.default_rng(windows), 300, windows - 1
        strategy = closing(evidence_windows=windows, minimum_users=1)
        keys = names(size)
        stored: dict[bytes, bytes] = {}
        account: dict[bytes, list[tuple[int, str, float, bool]]] = {key: [] for key in keys}
        measured: list[MeasuredWindow | None] = []
        for now in range(9):
            if now == 4:
                measured.append(None)
                continue
            known = [*reversed(measured)][:depth]
            known += [None] * (depth - len(known))
            empty = EvidenceStates.empty(1, depth)
            states = EvidenceStates.concatenate(
                [EvidenceStates.unpack([stored[k]], WindowIndex(now), depth) if k in stored else empty for k in keys]
            )
            past = states.past(keys, known)
            for row, key in enumerate(keys):
                since = max((at for at, what, _, _ in account[key] if what == "published"), default=-1)
                for column in range(depth):
                    then = now - 1 - column
                    plays = then > since and then >= 0 and then != 4
                    assert past.in_play[row, column] == plays
                    entry = [each for each in account[key] if each[0] == then]
                    if not plays:
                        continue
                    assert past.opened[row, column] == any(opened for _, _, _, opened in entry)
                    if entry:
                        assert past.values[row, column] == entry[0][2]
                    else:
                        [noise] = strategy.unbrought([key], SOURCE.window(WindowIndex(then)))
                        assert past.values[row, column] == noise
                    assert past.heights[row, column] == strategy.look.height
            # Keys are looked at where they have news, or an open gate in play.
            users = rng.integers(0, 4, size) * (rng.random(size) < 0.5)
            published = (rng.random(size) < 0.15) & (users > 0)
            values = rng.normal(0, 5, size)
            rows = ClosingRows(values=values, users=users, opened=users > 1)
            looked = np.flatnonzero((users > 0) | states.opened)
            after = states.take(looked).after(rows.take(looked), published[looked])
            for place, packed, stays in zip(looked.tolist(), after.pack(WindowIndex(now)), after.stays, strict=True):
                stored.pop(keys[place], None)
                if stays:
                    stored[keys[place]] = packed
            for row, key in enumerate(keys):
                if published[row] or users[row]:
                    what = "published" if published[row] else "weighed"
                    account[key].append((now, what, float(values[row]), bool(users[row] > 1 and not published[row])))
            measured.append(MeasuredWindow(strategy, SOURCE.window(WindowIndex(now))))

    def test_bytes_of_another_layout_are_refused(self) -> None:
        [row] = EvidenceStates.empty(1, 3).pack(WindowIndex(5))
        for other in (b"\x02" + row[1:], row[:-1], EvidenceStates.empty(1, 1).pack(WindowIndex(5))[0]):
            with pytest.raises(ValueError, match="another layout"):
                EvidenceStates.unpack([other], WindowIndex(6), 3)
        with pytest.raises(ValueError, match="do not belong together"):
            EvidenceStates.unpack([row], WindowIndex(5), 3)


# Failure probabilities over windows, and defects that exceed them.

SIZE = samples(20_000)


def strategy_for(windows: int, **changes: Any) -> Any:
    fields: dict[str, Any] = {"triggers": 2, "epsilon": 2.0, "delta": 0.2, "keys": 1, "ranked_keys": 1} | changes
    return closing(evidence_windows=windows, filter_weight=0.0, **fields)


def beta_of(strategy: Any) -> float:
    return float(strategy.guarantee.delta_selection / 2 / strategy.lists.keys)


class TestFailures:
    """Keys at the boundary, in many copies: one user, and as many others as every gate keeps shut."""

    def named(self, strategy: Any, others: int, user: list[int]) -> int:
        """Copies that are named in one of these windows, where the user is in those with a 1."""
        windows = Windows(strategy, SIZE)
        for there in user:
            windows.window(others + there)
        return int(np.any(windows.published, axis=0).sum())

    @pytest.mark.statistical
    @pytest.mark.parametrize("windows", [2, 4])
    @pytest.mark.parametrize("minimum_users", [0, 3])
    def test_add_up_to_beta_for_each_window_of_the_user(self, windows: int, minimum_users: int) -> None:
        strategy = strategy_for(windows, minimum_users=minimum_users)
        assert exceeds(self.named(strategy, minimum_users, [1, 0, 0, 0]), SIZE, beta_of(strategy)) > DOUBT
        assert exceeds(self.named(strategy, minimum_users, [1] * 4), SIZE, 4 * beta_of(strategy)) > DOUBT

    @pytest.mark.statistical
    def test_exceed_it_if_every_scale_has_all_of_beta(self) -> None:
        strategy = strategy_for(4, minimum_users=40)  # one user less hardly lowers the rows of later windows
        assert exceeds(self.named(strategy, 40, [1, 0, 0, 0]), SIZE, beta_of(strategy)) > DOUBT
        z = float(stats.norm.isf(beta_of(strategy)))
        test, look = strategy.look.test, strategy.look
        look.level -= (look.quantile - z) * math.sqrt(look.variance)
        test.quantiles = (z,) * 3
        assert exceeds(self.named(strategy, 40, [1, 0, 0, 0]), SIZE, beta_of(strategy)) < CERTAIN

    @pytest.mark.statistical
    def test_exceed_it_with_one_height_for_all_windows(self) -> None:
        strategy = strategy_for(4, minimum_users=5)

        def heights(keys: list[bytes]) -> Any:
            return np.zeros(len(keys)), np.full(len(keys), strategy.look.variance)

        strategy.closing_constants = heights
        assert exceeds(self.named(strategy, 5, [0, 0, 0, 1]), SIZE, beta_of(strategy)) < CERTAIN


class TestRemembering:
    """The user picks keys by what happened to them. Given that, too, their tests fail with at most beta."""

    def picked(self, kind: type[Windows], *, published: bool) -> tuple[int, int, float]:
        """(copies named, copies, beta), of keys with a crowd on day 1, nobody on day 2, and the user on day 3.

        published: whether the user picks those that day 2 published, or those that it did not.
        """
        strategy = strategy_for(2)
        crowd = round(strategy.look.level - 0.6 * math.sqrt(strategy.look.variance))
        windows = kind(strategy, 10 * SIZE)
        first = windows.window(crowd).published
        windows.take(np.flatnonzero(~first))
        second = windows.window(0).published
        windows.take(np.flatnonzero(second == published))
        size = len(windows.keys)
        third = windows.window(1).published
        if not published:
            # On day 3 the crowd's day is out of range.
            assert size > SIZE
        return int(third.sum()), size, beta_of(strategy)

    @pytest.mark.statistical
    def test_keys_that_were_not_published_are_no_likelier(self) -> None:
        assert exceeds(*self.picked(Windows, published=False)) > DOUBT

    @pytest.mark.statistical
    def test_keys_that_were_published_start_again(self) -> None:
        hits, size, beta = self.picked(Windows, published=True)
        assert size > SIZE / 100
        assert exceeds(hits, size, beta) > DOUBT

    @pytest.mark.statistical
    def test_evidence_that_is_kept_after_publication_fails_more_often(self) -> None:
        assert exceeds(*self.picked(Kept, published=True)) < CERTAIN


@pytest.mark.statistical
def test_one_user_on_the_day_after_the_crowd_decides_nothing() -> None:
    """With a weight that adds nothing. Planted: the key is tested on that day only if somebody brings it."""
    strategy = strategy_for(2, delta=0.004)
    crowd = round(strategy.look.level + math.sqrt(strategy.look.variance))

    def rate(kind: type[Windows], user: int) -> float:
        windows = kind(strategy, SIZE)
        windows.window(crowd)
        unpublished = ~windows.published[0]
        second = windows.window(user, weight=np.zeros(SIZE, np.int64)).published
        return float(second[unpublished].mean())

    beta = beta_of(strategy)
    assert abs(rate(Windows, 1) - rate(Windows, 0)) <= beta
    assert rate(Windows, 0) > 5 * beta
    assert rate(Dropped, 1) - rate(Dropped, 0) > 5 * beta


def test_a_shut_gate_is_never_passed() -> None:
    """However large weight is: no more than minimum_users users in any of the windows."""
    strategy = closing(evidence_windows=4, minimum_users=3)
    windows = Windows(strategy, 50)
    for _ in range(5):
        assert not windows.window(3, weight=np.full(50, 10**6 << 20)).published.any()
    assert windows.window(4).published.all()


def test_keys_that_few_bring_every_day_are_found_in_time() -> None:
    """What it is for: at a level that one window does not reach, four do."""
    found = {}
    for windows in (2, 4):
        strategy = closing(evidence_windows=windows, triggers=4, epsilon=6.0, delta=1e-9, keys=1, ranked_keys=1)
        four = closing(evidence_windows=4, triggers=4, epsilon=6.0, delta=1e-9, keys=1, ranked_keys=1).look
        days = Windows(strategy, 400)
        for _ in range(4):
            days.window(math.ceil(four.test.level(4, four.height, four.variance) + 1))
        found[windows] = float(np.any(days.published, axis=0).mean())
        assert days.published[0].mean() < 0.05
    assert found[4] > 0.5
    assert found[4] > found[2] + 0.2


def test_chunks_of_keys_decide_the_same() -> None:
    strategy = closing(evidence_windows=4)
    whole, parts = Windows(strategy, 300), [Windows(strategy, 300) for _ in range(3)]
    for place, part in enumerate(parts):
        part.take(np.arange(place, 300, 3))
    rng = np.random.default_rng(2)
    for _ in range(4):
        users = rng.integers(0, int(1.5 * strategy.look.level), 300)
        whole.window(users)
        for place, part in enumerate(parts):
            part.window(users[place::3])
            assert part.published[-1].tolist() == whole.published[-1][place::3].tolist()
            assert part.states.values.tolist() == whole.states.values[place::3].tolist()
    assert np.any(whole.published, axis=0).any()


def test_a_skipped_window_is_no_window() -> None:
    strategy = closing(evidence_windows=2)
    windows = Windows(strategy, 20)
    windows.window(5)
    windows.skipped()
    states = windows.states
    assert not states.stays.any(), "the one before it is out of range, and it measured nothing"
    assert not replace(states).past(windows.keys, [None]).in_play.any()


class TestLevels:
    """Of several groupings: each level adds up its own rows."""

    KEYS = (b'["a","x"]', b'["b","y","z"]', b'["c"]', b'["a","y"]', b'["b","x","z"]')

    def strategy(self) -> Any:
        return build_strategy(replace(plan_of_levels(Closing), evidence_windows=4))

    def test_rows_of_days_without_the_key_and_constants_are_those_of_the_level(self) -> None:
        strategy, noise = self.strategy(), SOURCE.window(WindowIndex(2))
        assert strategy.evidence_windows == 4
        values, (heights, variances) = strategy.unbrought(self.KEYS, noise), strategy.closing_constants(self.KEYS)
        for row, key in enumerate(self.KEYS):
            level = strategy.levels[key[2] - ord("a")]
            if key.startswith(b'["c"'):  # the total is declared, and nobody weighs it
                assert (values[row], heights[row], variances[row]) == (0, 0, 0)
                continue
            assert values[row] == level.unbrought([key], noise)[0]
            assert (heights[row], variances[row]) == (level.look.height, level.look.variance)
        assert len(set(heights.tolist())) == 3

    def test_a_step_of_all_is_the_levels_own_steps(self) -> None:
        strategy, keys = self.strategy(), list(self.KEYS)
        level = np.array([key[2] - ord("a") for key in keys])
        declared, size = level == 2, len(keys)
        users = np.where(declared, 0, 1 + np.arange(size))
        past = random_past(np.random.default_rng(5), size, 3)
        none = np.zeros(size, np.int64)
        increments = Increments(
            users=none, weight=none, sums=np.zeros((size, 1), np.int64), lists=lists_of(users, users << 20), past=past
        )
        noise, last = SOURCE.window(WindowIndex(3)), strategy.plan.triggers
        whole = strategy.step(last, keys, strategy.empty(size), increments, noise, declared)
        assert whole.closing is not None
        for number in (0, 1):
            index = np.flatnonzero(level == number)
            own = strategy.levels[number]
            some = [keys[at] for at in index.tolist()]
            step = own.step(last, some, own.empty(len(some)), increments.take(index), noise, declared[index])
            assert step.closing is not None
            assert whole.closing.values[index].tolist() == step.closing.values.tolist()
            assert whole.closing.users[index].tolist() == step.closing.users.tolist()
            assert whole.published[index].tolist() == step.published.tolist()
        assert whole.closing.users[declared].tolist() == [0]
