"""What docs/guarantees/evidence.md claims, in toys whose probabilities are computed: the rule holds, and each defect breaks it.

delta is measured between the data with one user and without, of what users see who react to it, in both directions and at the
epsilon that the user's weights cost. The rest must be beta for each window of the user, whatever the others do.
"""

import math
from dataclasses import replace
from itertools import product

import numpy as np
import pytest
from scipy import integrate, stats

from tests.mechanisms.histogram.evidence_toys import (
    SCALES,
    Course,
    Defect,
    History,
    Noise,
    Rule,
    Window,
    excess,
    level,
    outcomes,
)

USER = Window(user=True)
TINY = Window(user=True, weight=0)
WIDE = Noise(0.97, 200)


def course(*windows: Window) -> Course:
    """These, whatever is published."""
    return lambda history: windows[len(history)]


def reactive(seed: int, windows: int, first: int, comes: tuple[bool, ...]) -> tuple[Course, int]:
    """Others, noise and what is remembered follow the output at random; the user comes from window `first` on, as `comes` says.

    Returns the course, and the windows of the user.
    """
    rng, table = np.random.default_rng(seed), dict[History, Window]()
    weight = int(rng.integers(0, 2))
    # In the order of the histories, so that both runs see one course.
    for end in range(windows):
        for history in product((False, True), repeat=end):
            table[history] = Window(
                others=int(rng.choice([0, 0, 1, 2, 3, 5, 8])),
                user=end >= first and comes[end - first],
                weight=weight,
                public=bool(history and history[-1] and rng.random() < 0.3),
                noise=Noise(float(rng.choice([0.5, 0.7])), 8),
            )
    return table.__getitem__, sum(comes)


@pytest.mark.parametrize("minimum_users", [0, 2])
@pytest.mark.parametrize("windows", SCALES)
def test_delta_adds_up_over_the_users_windows_and_no_more(windows: int, minimum_users: int) -> None:
    """From every history of publications on: the user may have picked the key by it, among any number."""
    rng, rule, length = np.random.default_rng(windows), Rule(windows=windows, beta=0.2, minimum_users=minimum_users), 5
    edge, worst = Noise(0.7, 8).edge, 0.0
    for seed in range(25):
        first = int(rng.integers(0, 4))
        comes = (True, *(rng.random(length - first - 1) < 0.5).tolist())
        picked, users_windows = reactive(seed, length, first, comes)
        before = outcomes(rule, picked, first, present=False)
        for given in (history for history, chance in before.items() if chance > 1e-9):
            found = excess(rule, picked, length, given=given)
            assert found <= users_windows * rule.beta + length * edge
            worst = max(worst, found / (users_windows * rule.beta))
    assert worst > 0.1, "some of it is used, or nothing was tested"


CASES = {
    Defect.KEPT: (Rule(beta=0.1), course(Window(others=1), Window(), USER), (False, True)),
    Defect.PRESENT_GATE: (Rule(windows=4, beta=0.02), course(*[Window(others=6)] * 3, TINY), (False,) * 3),
    Defect.LONG_GATE: (Rule(beta=0.005), course(replace(USER, noise=WIDE), *[Window(noise=WIDE)] * 2), ()),
    Defect.ONE_HEIGHT: (
        Rule(windows=4, beta=0.1, minimum_users=3),
        course(*[Window(others=3)] * 3, Window(others=3, user=True)),
        (),
    ),
    Defect.NO_SPLIT: (Rule(beta=0.02), course(replace(USER, noise=WIDE), *[Window(noise=WIDE)] * 2), ()),
    Defect.DROPPED: (Rule(windows=2, beta=0.006), course(Window(others=7), TINY), (False,)),
    Defect.LATE_START: (Rule(windows=4, beta=0.05), course(TINY, *[Window(others=5)] * 3), ()),
}
"""Each defect's rule, course of windows, and history by which the user picks the key. In all of them the user has one window."""


@pytest.mark.parametrize("defect", Defect)
def test_each_defect_costs_more_than_delta_pays_for(defect: Defect) -> None:
    rule, windows, given = CASES[defect]
    length = 4 if rule.windows == 4 else 3 if defect in (Defect.KEPT, Defect.LONG_GATE, Defect.NO_SPLIT) else 2
    sound, broken = (
        excess(replace(rule, defects=defects), windows, length, given=given)
        for defects in (frozenset[Defect](), frozenset({defect}))
    )
    assert sound <= rule.beta
    assert broken > 1.05 * rule.beta


@pytest.mark.parametrize("scale", [2, 4])
def test_that_longer_ranges_did_not_pass_makes_nothing_likelier(scale: int) -> None:
    """P(the last two pass | no range that began before passed), of normal noise, by quadrature: at most P(the last two pass)."""
    beta = 0.02
    z = {length: stats.norm.isf(beta / (3 * length)) for length in (2, 4)}
    old = scale - 1  # windows before the last two's first, whose sum is one normal variable of this variance
    excess_of_others = 3.0  # what the others brought in those windows, beyond the heights

    def joint(a: float) -> float:
        """a: noise of the first of the last two. It has been looked at in a longer range, which did not pass."""
        limit = z[scale] * math.sqrt(scale) - excess_of_others
        unseen = stats.norm.cdf((limit - a) / math.sqrt(old))
        return float(stats.norm.pdf(a) * unseen * stats.norm.sf(z[2] * math.sqrt(2) - a))

    def alone(a: float) -> float:
        limit = z[scale] * math.sqrt(scale) - excess_of_others
        return float(stats.norm.pdf(a) * stats.norm.cdf((limit - a) / math.sqrt(old)))

    conditional = integrate.quad(joint, -12, 12)[0] / integrate.quad(alone, -12, 12)[0]
    assert conditional < beta / 6
    assert conditional > beta / 60


def test_users_of_several_windows_do_not_add_up_to_the_minimum() -> None:
    """One user in four windows is one user: `minimum_users` is of a single window."""
    rule = Rule(windows=4, beta=0.3, minimum_users=3)
    assert outcomes(rule, course(*[USER] * 4), 4, present=True) == {(False,) * 4: pytest.approx(1.0)}
    assert len(outcomes(replace(rule, minimum_users=0), course(*[USER] * 4), 4, present=True)) > 1


@pytest.mark.parametrize("windows", SCALES)
def test_shares_of_beta_add_up(windows: int) -> None:
    """A user's window is in s ranges of scale s."""
    rule = Rule(windows=windows)
    assert sum(scale * rule.share(scale) for scale in SCALES[windows]) == pytest.approx(rule.beta)


def test_levels_are_the_least() -> None:
    noises = (Noise(0.5), Noise(0.6))
    law = np.convolve(noises[0].law, noises[1].law)
    at = level(noises, 0.01) + 24
    assert law[at:].sum() <= 0.01 < law[at - 1 :].sum()
