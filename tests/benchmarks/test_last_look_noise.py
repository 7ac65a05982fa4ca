"""The arithmetic of other noise at the last trigger: against closed forms, another accountant, and sums over all outcomes."""

import math

import last_look_densities
import numpy as np
import pytest
from dp_accounting.pld import privacy_loss_distribution
from last_look_densities import Noise, Setting, gaussian, subbotin
from last_look_noise import (
    FARTHEST,
    RESOLUTION,
    Floats,
    YesOrNo,
    delta_of_names,
    fixed_names,
    floor_of,
    names,
    renyi_budget,
)
from scipy.special import ndtr
from scipy.stats import binom

from susurrus.mechanisms.accounting import delta_gaussian

SETTING = Setting.of(6.0, 1e-9)
ORDER = 8.0


@pytest.fixture(scope="module", name="grown")
def fixture_grown() -> Floats:
    return fixed_names(SETTING, ORDER)


@pytest.mark.parametrize("budget", last_look_densities.BUDGETS)
def test_the_gaussian_has_the_closed_form_and_the_level_of_the_product(budget: tuple[float, float]) -> None:
    setting, noise = Setting.of(*budget), Noise(gaussian)
    assert noise.delta(setting.sigma, setting) == pytest.approx(delta_gaussian(setting.mu, setting.epsilon), rel=1e-3)
    assert noise.scale(setting) == pytest.approx(setting.sigma, rel=1e-3)
    assert noise.level(setting.sigma, setting) == pytest.approx(setting.level, rel=1e-6)


@pytest.mark.parametrize("keys", [1, 4])
def test_laplace_noise_has_the_delta_of_another_accountant(keys: int, monkeypatch: pytest.MonkeyPatch) -> None:
    scale = 3.0
    rest = privacy_loss_distribution.from_gaussian_mechanism(1 / SETTING.rest, value_discretization_interval=2e-4)
    one = privacy_loss_distribution.from_laplace_mechanism(
        scale, sensitivity=1 / math.sqrt(keys), value_discretization_interval=2e-4
    )
    expected = rest.compose(one.self_compose(keys)).get_delta_for_epsilon(SETTING.epsilon)
    monkeypatch.setattr(last_look_densities, "KEYS", (keys,))
    assert Noise(subbotin(1.0), reach=40).delta(scale, SETTING) == pytest.approx(expected, rel=5e-3)


def test_the_numbers_of_keys_that_are_tried_are_enough(monkeypatch: pytest.MonkeyPatch) -> None:
    noise = Noise(subbotin(2.2))
    scale = noise.scale(SETTING)
    tried = noise.delta(scale, SETTING)
    monkeypatch.setattr(last_look_densities, "KEYS", tuple(range(1, 17)))
    assert tried == pytest.approx(SETTING.delta_g, rel=1e-4)
    assert noise.delta(scale, SETTING) == pytest.approx(tried, rel=2e-3)


def test_a_gaussian_keeps_to_the_bound_by_renyi_divergence() -> None:
    """Its budget by the tangent is below the exact one, by a few per cent."""
    fitting = math.sqrt(2 * renyi_budget(SETTING, ORDER) / ORDER)
    assert 0.95 < fitting * SETTING.sigma < 1


def worst(p: Floats) -> float:
    """Of users with so many keys of one sort, by all outcomes: the largest delta_G, in either direction."""
    found = 0.0
    for keys in (1, 4, 16):
        step = round(RESOLUTION / math.sqrt(keys))
        for low in range(0, len(p) - step, 4):
            if p[low + step] > 0.999:
                break
            for a, b in ((p[low], p[low + step]), (p[low + step], p[low])):
                yes = np.arange(keys + 1)
                losses = yes * math.log(a / b) + (keys - yes) * (math.log1p(-a) - math.log1p(-b))
                deltas = [delta_gaussian(SETTING.rest, SETTING.epsilon - loss) for loss in losses.tolist()]
                found = max(found, float(binom.pmf(yes, keys, a) @ deltas))
    return found


def test_names_keep_to_delta(grown: Floats) -> None:
    assert 0.3 * SETTING.delta_g < worst(grown) <= SETTING.delta_g


def test_names_that_grow_with_twice_the_budget_do_not() -> None:
    """The planted defect."""
    assert worst(names(ORDER, 2 * renyi_budget(SETTING, ORDER), floor_of(SETTING))) > 1.5 * SETTING.delta_g


@pytest.mark.parametrize("keys", [1, 4, 16])
def test_names_by_a_threshold_on_gaussian_noise_are_dominated_by_the_gaussian(keys: int) -> None:
    """The best threshold for each epsilon is what the profile of the Gaussian is made of."""
    p = np.asarray(ndtr(np.arange(FARTHEST * RESOLUTION + 1) / RESOLUTION / SETTING.sigma - 6.5))
    assert delta_of_names(p, SETTING, keys=(keys,)) == pytest.approx(SETTING.delta_g, rel=0.02)


def test_an_observer_who_picks_gains_much_from_names_for_fixed_neighbours(grown: Floats) -> None:
    assert delta_of_names(grown, SETTING, keys=(1,)) > 2 * SETTING.delta_g


@pytest.mark.parametrize("filter_weight", [0.0, SETTING.filter_weight])
def test_one_user_of_its_own_keys_keeps_to_its_part_of_delta(grown: Floats, filter_weight: float) -> None:
    """By exact integrals over the steps of p."""
    found = YesOrNo(grown, SETTING, order=ORDER, filter_weight=filter_weight)
    steps, rises = np.arange(-1, FARTHEST * RESOLUTION) / RESOLUTION, np.diff(grown, prepend=0.0)
    steps[0] = -math.inf
    for own in SETTING.own(filter_weight):
        means = own[:, None] - found.shift
        passed = ndtr((means - steps) / found.std) if filter_weight else (means > steps + 1e-9)
        assert float((passed @ rises).sum()) <= SETTING.delta_t * 1.001
