"""What one event costs, from the scales and addresses of all the noise that covers it: thresholds, blocks and trees, end to end.

A source of noise writes down every draw. For each position of a stream this gives the mechanisms that see its value, by how much
replacing it moves each, and what that costs: at most epsilon for every position. No two measurements share a draw.
"""

from collections import defaultdict
from fractions import Fraction
from typing import Any

import numpy as np
import pytest

from susurrus.mechanisms.noise import NoiseSource
from susurrus.mechanisms.stream.addresses import address
from susurrus.mechanisms.stream.pak import Pak
from susurrus.mechanisms.stream.quantile import SmoothQuantile
from susurrus.mechanisms.stream.table import PakTable, TopsTable
from susurrus.mechanisms.stream.tops import Tops

STREAM = b"7"


class Recording:
    """The real noise. drawn: (mechanism, key) -> {index: scale}, and how often the same draw was asked for with another scale."""

    def __init__(self) -> None:
        self._real = NoiseSource(b"s" * 32, epoch=b"e", config=b"c", pipeline="p").window(0)
        self._of: dict[bytes, tuple[str, bytes]] = {}
        self.drawn: dict[tuple[str, bytes], dict[int, Fraction]] = defaultdict(dict)

    def labels(self, mechanism: str, keys: Any) -> Any:
        labels = self._real.labels(mechanism, keys)
        self._of.update({label.tobytes(): (mechanism, key) for label, key in zip(labels, keys, strict=True)})
        return labels

    def bits(self, labels: Any, first: int, last: int) -> Any:
        return self._real.bits(labels, first, last)

    def laplace(self, labels: Any, first: int, last: int, *, scale: Any, bits: int) -> Any:
        for label, each in zip(labels, np.broadcast_to(scale, len(labels)).tolist(), strict=True):
            of = self.drawn[self._of[label.tobytes()]]
            for index in range(first, last + 1):
                assert of.setdefault(index, Fraction(each)) == Fraction(each), "one draw served two scales"
        return self._real.laplace(labels, first, last, scale=scale if np.ndim(scale) else float(scale), bits=bits)

    def scale(self, mechanism: str, *numbers: int) -> Fraction | None:
        """Of the draws of an address; None where there are none."""
        [found] = [
            set(draws.values())
            for (name, key), draws in self.drawn.items()
            if name == mechanism and key.endswith(address(b"", *numbers))
        ] or [set()]
        assert len(found) <= 1
        return next(iter(found), None)


def rows_of(table: Any, values: Any, source: Recording) -> Any:
    row = table.add(STREAM, None, None)
    return table.step(np.full(len(values), row), values, source).releases


def series(length: int) -> Any:
    return np.random.default_rng(3).integers(40, 90, length)


SLACK = Fraction(1, 10**9)


@pytest.mark.parametrize("adaptive", [True, False])
def test_an_event_of_tops_costs_epsilon_wherever_it_is(adaptive: bool) -> None:
    mechanism = Tops.of(
        bound=200, epsilon=2.0, holdout=3_000, range_limit=256, fanout=4, smoothing=1, adaptive=adaptive
    )
    assert (mechanism.lower_clip is not None) is adaptive
    source = Recording()
    released = rows_of(TopsTable(mechanism), series(3_000 + 6 * mechanism.base.values), source)
    # The holdout: replacing a value moves all scores one way by at most 1, in each of the two choices (docs/guarantees/tops.md).
    top, low = source.scale("tops/threshold"), source.scale("tops/lower")
    spent = 1 / top + (1 / low if low else 0)  # type: ignore[operator]
    assert (low is not None) is adaptive
    assert 2 - SLACK < spent <= 2 + SLACK
    # A tree: one node of each layer moves by at most the width, and the count by 1.
    width = (np.array(released.theta) - np.array(released.lower))[:: mechanism.base.leaves].tolist()
    assert len(width) == 6
    layers = range(mechanism.base.layers)
    for tree, wide in enumerate(width):
        scales = [source.scale("tops/node", tree, layer) for layer in layers]
        count = source.scale("tops/clipped", tree)
        spent = sum((wide / scale for scale in scales if scale is not None), 1 / count if count else Fraction(0))
        assert None not in scales
        assert 2 - SLACK < spent <= 2 + SLACK


def test_an_event_of_pak_costs_epsilon_wherever_it_is() -> None:
    quantile = SmoothQuantile(bound=200, epsilon=0.8, delta=1e-5, holdout=300, tail=0.02, beta_tail=0.05, inflation=1.2)
    for leaves, levels in ((127, 7), (128, 8)):
        mechanism = Pak(threshold=quantile, epsilon=1.0, horizon=300 + leaves)
        source = Recording()
        [theta] = set(rows_of(PakTable(mechanism), series(300 + 3 * leaves), source).theta.tolist())
        block = source.scale("pak/block/2")
        assert block is not None
        assert 1 - SLACK < Fraction(quantile.epsilon) + theta / block <= 1 + SLACK
        for tree in range(3):
            scales = [source.scale("pak/node", tree, level) for level in range(levels)]
            assert None not in scales
            assert 1 - SLACK < sum(Fraction(theta) / scale for scale in scales if scale is not None) <= 1 + SLACK


def test_pak_adds_kappa_times_the_smooth_sensitivity_over_a() -> None:
    """Its scale depends on the data, so it is read off the release: tau moves with the draw by exactly that much."""
    quantile = SmoothQuantile(bound=200, epsilon=0.8, delta=1e-5, holdout=300, tail=0.02, beta_tail=0.05)
    values = series(300)

    def tau(unit: float) -> float:
        with pytest.MonkeyPatch.context() as patched:
            patched.setattr("susurrus.mechanisms.stream.quantile.unit_laplace", lambda words: unit)
            return quantile.tau(values, Recording(), STREAM)

    x = np.sort(values)
    padded = np.concatenate((np.zeros(301), x, np.full(301, 200.0)))
    b, rank = quantile.smoothness, quantile.rank

    def local(distance: int) -> float:
        at = 300 + rank  # x_(rank)
        return float(max(padded[at + t] - padded[at + t - distance - 1] for t in range(distance + 2)))

    smooth = max(np.exp(-b * distance) * local(distance) for distance in range(300))
    kappa = 1 / (1 - np.expm1(b) * quantile.offset / (0.8 / 2))
    assert tau(1.0) - tau(0.0) == pytest.approx(kappa * smooth / (0.8 / 2), rel=1e-9)
    assert tau(-quantile.offset) == x[rank - 1]


def check_all() -> None:
    test_an_event_of_pak_costs_epsilon_wherever_it_is()
    test_an_event_of_tops_costs_epsilon_wherever_it_is(adaptive=True)


@pytest.mark.parametrize(
    ("mechanism", "factor"),
    [
        ("tops/threshold", 2.0),
        ("tops/lower", 2.0),
        ("tops/clipped", 2.0),
        ("tops/node", 1.1),
        ("pak/block/2", 2.0),
        ("pak/node", 8 / 7),
    ],
)
def test_less_noise_in_any_part_is_seen(mechanism: str, factor: float, monkeypatch: pytest.MonkeyPatch) -> None:
    """The planted defects: a part of the noise is too small. One of the tests above fails for each."""
    real = Recording.laplace

    def quiet(source: Recording, labels: Any, first: int, last: int, *, scale: Any, bits: int) -> Any:
        here = {source._of[label.tobytes()][0] for label in labels} == {mechanism}
        return real(source, labels, first, last, scale=np.asarray(scale) / factor if here else scale, bits=bits)

    monkeypatch.setattr(Recording, "laplace", quiet)
    with pytest.raises(AssertionError):
        check_all()
