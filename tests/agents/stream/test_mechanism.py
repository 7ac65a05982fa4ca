"""From the settings to the mechanism: what it spends on one event is what the pipeline promises, for every setting."""

from fractions import Fraction
from typing import Any

import pytest

from susurrus.agents.stream.mechanism import mechanism_of, promise_of
from susurrus.agents.stream.sections import StreamSection
from susurrus.mechanisms.stream.pak import Pak
from susurrus.mechanisms.stream.tops import LOWER_SHARE, Tops
from tests.agents.released import WINDOW, settings


def section(**stream: Any) -> StreamSection:
    configured: Any = settings(
        pipeline={"name": "meters", "prefix": "t", "kind": "stream"},
        input={"topic": "raw"},
        start={"from": "earliest", "first_window": WINDOW},
        stream={"stream": "meter", "value": "watts", "bound": 100.0, "grid": 0.5, **stream},
        privacy=None,
        window={},
    )
    found: StreamSection = configured.stream
    return found


TOPS: dict[str, Any] = {"epsilon": 0.5, "holdout": 512, "range_limit": 4096, "fanout": 4}


@pytest.mark.parametrize("growth", [True, False])
@pytest.mark.parametrize("lower_clip", [None, True, False])
@pytest.mark.parametrize("holdout", [512, 8192])  # from 4096 values times epsilon on a lower clip is sought by default
@pytest.mark.parametrize("method", ["tops", "tops-paper"])
def test_tops_spends_epsilon_on_every_event(method: str, holdout: int, lower_clip: bool | None, growth: bool) -> None:
    chosen: dict[str, Any] = {} if method == "tops-paper" else {"lower_clip": lower_clip, "growth": growth}
    stream = section(method=method, **{**TOPS, "holdout": holdout}, **chosen)
    mechanism, promise = mechanism_of(stream), promise_of(stream)
    assert isinstance(mechanism, Tops)
    assert (promise.epsilon, promise.delta) == (0.5, 0.0)
    # An event of the holdout is in both thresholds.
    sought = method == "tops" and (lower_clip or (lower_clip is None and holdout == 8192))
    lower = Fraction(mechanism.lower_clip.epsilon) if mechanism.lower_clip is not None else Fraction(0)
    assert lower == (Fraction(LOWER_SHARE) / 2 if sought else 0)
    assert Fraction(mechanism.threshold.epsilon) + lower == Fraction(1, 2)
    # Any other is in one node of each layer of its tree, and in the count where its tree counts.
    count = Fraction(mechanism.count_epsilon) / Fraction(mechanism.epsilon)
    counting = len(mechanism.menu) // 2 if count else len(mechanism.menu)
    assert bool(count) is (method == "tops" and growth)
    for place, hierarchy in enumerate(mechanism.menu):
        spent = sum(map(Fraction, hierarchy.shares)) + (count if place >= counting else 0)
        assert 1 - Fraction(1, 10**9) < spent <= 1 + Fraction(1, 2**50)
    assert Fraction(mechanism.epsilon) == Fraction(1, 2)
    assert mechanism.bound == 200


@pytest.mark.parametrize("delta", [None, 1e-5])
def test_pak_spends_epsilon_and_delta_on_every_event(delta: float | None) -> None:
    stream = section(method="pak", epsilon=8.0, delta=delta, holdout=500, horizon=1524, tail_start=0.05)
    mechanism, promise = mechanism_of(stream), promise_of(stream)
    assert isinstance(mechanism, Pak)
    assert (promise.epsilon, promise.delta) == (8.0, 2.0**-20 if delta is None else delta)
    assert mechanism.threshold.delta == promise.delta
    # The holdout pays for theta and for its block's sum; a tree of 2^10 leaves has eleven layers.
    assert 0 < mechanism.threshold.epsilon < mechanism.epsilon == promise.epsilon
    assert (mechanism.leaves, mechanism.levels) == (1024, 11)
    assert mechanism.threshold.bound == 200
