"""What the audit of private streams plants: the mechanism with one fault."""

from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from typing import Any
from unittest.mock import patch

import numpy as np

from susurrus.mechanisms.arrays import Int64s
from susurrus.mechanisms.stream import pak
from susurrus.mechanisms.stream.addresses import AddressedNoise, address
from susurrus.mechanisms.stream.hierarchy import Hierarchy
from susurrus.mechanisms.stream.lower_clip import LowerClip
from susurrus.mechanisms.stream.pak import Pak, PakState
from susurrus.mechanisms.stream.releases import Releases
from susurrus.mechanisms.stream.table import TopsTable
from susurrus.mechanisms.stream.threshold import NoisyMax

REAL = "none"
DEFECTS = {
    "threshold noise reused": "the noise of a threshold is addressed by the stream's id alone, so two holdouts share it",
    "tree noise reused": "every tree of a stream has the first one's noise",
    "leaves without noise": "the lowest layer of a tree is not measured but known",
    "layer at full epsilon": "every layer has the noise of a tree with one layer",
    "count not charged": "the sums of a tree whose clipped values are counted have the whole epsilon",
    "theta follows within a tree": "theta rises as soon as a value of the open tree lies above it",
    "lower clip's noise halved": "the lower clip is chosen with half of its noise",
    "lower clip not charged": "theta is chosen with the whole epsilon, although a lower clip is, too",
    "both parts at full epsilon": "pak's threshold and its initial block have the whole epsilon each",
    "scale of the local sensitivity": "pak's threshold has the noise of the quantile's local sensitivity, not of the smooth one",
    "block not clipped": "pak's initial block is added up unclipped, as the paper has it, with the noise of clipped values",
    "a level not charged": "pak's nodes have the noise of a tree with one level less, the paper's log2 n",
}


def _known_leaves(tree: Hierarchy, *given: Any) -> list[Int64s]:
    raw = _DRAW(tree, *given)
    return [np.zeros_like(raw[0]), *raw[1:]]


def _one_layers(
    tree: Hierarchy, noise: AddressedNoise, streams: Sequence[bytes], number: int, theta: int, epsilon: float
) -> list[Int64s]:
    return _DRAW(tree, noise, streams, number, theta, epsilon * tree.layers)


def _following(
    table: TopsTable, rows: Int64s, begins: Int64s, ends: Int64s, at: Int64s, ordered: Int64s, *given: Any
) -> Any:
    for row, begin, end in zip(rows.tolist(), begins[at].tolist(), ends[at].tolist(), strict=True):
        if ordered[begin:end].max() > table.hot[row, 1]:
            table.hot[row, 1] = table.mechanism.bound
    return _PASS(table, rows, begins, ends, at, ordered, *given)


def _half(clip: LowerClip, *given: Any) -> Int64s:
    return _LOWER(replace(clip, epsilon=2 * clip.epsilon), *given)


def _whole(cls: type[NoisyMax], **given: Any) -> NoisyMax:
    """The costs are what they were: they are no noise."""
    made: NoisyMax = _OF(**given)
    return replace(made, epsilon=given["epsilon"])


def _both_whole(mechanism: Pak, *given: Any) -> Releases:
    # The block has what the threshold leaves.
    threshold = replace(mechanism.threshold, epsilon=mechanism.epsilon)
    return _OPEN(replace(mechanism, threshold=threshold, epsilon=2 * mechanism.epsilon), *given)


def _local(values: Int64s, rank: int, _smoothness: float, bound: int) -> float:
    ranked = np.concatenate(([0], np.sort(np.clip(values, 0, bound)), [bound]))
    return float(max(ranked[rank + 1] - ranked[rank], ranked[rank] - ranked[rank - 1]))


def _unclipped(mechanism: Pak, state: PakState, *given: Any) -> Releases:
    held = state.values
    released = _OPEN(mechanism, state, *given)
    cut = int(np.maximum(held - state.theta, 0).sum())
    state.base += cut
    return replace(released, value=released.value + cut, sum=released.sum + cut)


def _level_less(noise: Any, stream: bytes, tree: int, first: int, last: int, levels: int, scale: float) -> Int64s:
    return _TREE_NOISE(noise, stream, tree, first, last, levels, scale * (levels - 1) / levels)


_DRAW, _PASS, _LOWER, _OF, _OPEN = Hierarchy.draw, TopsTable._pass, LowerClip.release, NoisyMax.of, Pak.open
_TREE_NOISE = pak.tree_noise
_STREAM = "susurrus.mechanisms.stream"


def _patches(defect: str) -> list[Any]:
    match defect:
        case "threshold noise reused":
            # In front of the id stands the partition.
            return [patch(f"{_STREAM}.threshold.address", lambda stream: address(stream[4:]))]
        case "tree noise reused":
            return [
                patch(f"{_STREAM}.hierarchy.address", lambda stream, tree, layer: address(stream, 0, layer)),
                patch(f"{_STREAM}.pak.address", lambda stream, *of: address(stream, *((0, *of[1:]) if of else ()))),
            ]
        case "leaves without noise":
            return [patch.object(Hierarchy, "draw", _known_leaves)]
        case "layer at full epsilon":
            return [patch.object(Hierarchy, "draw", _one_layers)]
        case "count not charged":
            return [patch.object(Hierarchy, "reduced", lambda tree, share: tree)]
        case "theta follows within a tree":
            return [patch.object(TopsTable, "_pass", _following)]
        case "lower clip's noise halved":
            return [patch.object(LowerClip, "release", _half)]
        case "lower clip not charged":
            return [patch.object(NoisyMax, "of", classmethod(_whole))]
        case "both parts at full epsilon":
            return [patch.object(Pak, "open", _both_whole)]
        case "scale of the local sensitivity":
            return [patch(f"{_STREAM}.quantile.smooth_sensitivity", _local)]
        case "block not clipped":
            return [patch.object(Pak, "open", _unclipped)]
        case "a level not charged":
            return [patch(f"{_STREAM}.pak.tree_noise", _level_less)]
    assert defect == REAL, defect
    return []


@contextmanager
def planted(defect: str) -> Iterator[None]:
    """The mechanism with one fault."""
    with ExitStack() as stack:
        for change in _patches(defect):
            stack.enter_context(change)
        yield
