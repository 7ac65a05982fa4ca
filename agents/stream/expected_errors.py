"""Standard errors of a private stream before it runs."""

from collections.abc import Iterator
from typing import Final

import numpy as np

from susurrus.agents.runtime.expected_errors import ExpectedErrors
from susurrus.agents.stream.mechanism import mechanism_of
from susurrus.agents.stream.sections import StreamSection
from susurrus.mechanisms.stream.hierarchy import Hierarchy
from susurrus.mechanisms.stream.pak import Pak, set_bits
from susurrus.mechanisms.stream.tops import Tops

_PLACES: Final = 64
"""Places of ranges that are averaged over."""


def expected_errors(stream: StreamSection) -> ExpectedErrors:
    """The errors of ranges with ToPS, and of running sums with PAK.

    Raises ConfigurationError where the mechanism refuses its numbers.
    """
    mechanism = mechanism_of(stream)
    rows = list(_pak(mechanism) if isinstance(mechanism, Pak) else _tops(mechanism, stream.range_limit))
    note = "the noise of ranges that end with a released piece; clipping at theta is not in it"
    if isinstance(mechanism, Tops) and mechanism.adaptive:
        note += ", and the filtered sums, which learn from the stream, are mostly more exact"
    return ExpectedErrors(rows=rows, bound=stream.bound, note=note)


def _tops(mechanism: Tops, longest: int) -> Iterator[tuple[str, int, float]]:
    """Ranges of whole pieces, by length, at random places of a stream whose trees are all like the first one."""
    base = mechanism.base
    piece = float(np.sqrt(base.prefix_variances()[1])) / mechanism.epsilon
    yield "one released piece", base.leaf, piece
    length = base.fanout
    while length * base.leaf < longest:
        yield "a range of pieces", length * base.leaf, range_error(base, length) / mechanism.epsilon
        length *= base.fanout
    whole = max(1, longest // base.leaf)
    yield "the longest range", whole * base.leaf, range_error(base, whole) / mechanism.epsilon


def range_error(hierarchy: Hierarchy, leaves: int) -> float:
    """Root mean square over places, of the standard error of a sum of so many leaves; units of theta / epsilon."""
    size = hierarchy.leaves
    prefix, whole = hierarchy.prefix_variances(), float(hierarchy.prefix_variances()[-1])
    first = np.arange(size) if size <= _PLACES else np.random.default_rng(0).integers(0, size, _PLACES)
    total = 0.0
    for begin in first.tolist():
        trees, end = divmod(begin + leaves, size)
        if trees == 0:
            weights = np.zeros((1, size))
            weights[0, begin:end] = 1
            total += float(hierarchy.variances(weights)[0])
        else:  # what is left of the first tree is as noisy as as many leaves at a tree's begin
            total += float(prefix[size - begin] + prefix[end]) + (trees - 1) * whole
    return float(np.sqrt(total / len(first)))


def _pak(mechanism: Pak) -> Iterator[tuple[str, int, float]]:
    """The running sum, on average over the values of so long a tree."""
    node = 2 * (mechanism.levels / mechanism.epsilon) ** 2
    block = 2 / (mechanism.epsilon - mechanism.threshold.epsilon) ** 2
    yield "the sum of the holdout", mechanism.holdout, float(np.sqrt(block))
    length = 1
    while length <= mechanism.leaves:
        ends = np.unique(np.linspace(1, length, min(length, 4096)).astype(np.int64))
        yield "a running sum, up to", length, float(np.sqrt(block + node * set_bits(ends).mean()))
        length *= 16
