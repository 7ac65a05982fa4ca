"""Evidence over windows in a toy whose every probability is computed: one key, a few windows, users who react to the output.

A window measures the key once: X_j = users of the key + noise, of a discrete law, so that one user in one window costs `EPSILON`
and nothing else. Whether the key is published is all that is seen. `outcomes` follows every history of publications with the
joint law of the rows that are still in play: no samples, no approximation but the end of the noise's tail (`Noise.edge`).

The rule is that of docs/guarantees/evidence.md. `Defect` names ways to get it wrong.
"""

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from enum import Enum, auto
from functools import cache
from typing import Any

import numpy as np
import numpy.typing as npt

EPSILON = math.log(2)
"""What one user in one window may cost: rows of neighbours have a ratio of at most 2."""
SCALES = {1: (1,), 2: (1, 2), 4: (1, 2, 4)}
"""By the number of windows that evidence lasts."""

History = tuple[bool, ...]
"""Whether each window so far has published the key."""


@dataclass(frozen=True)
class Noise:
    """P(x) proportional to ratio^|x|, x from -reach to reach. ratio >= 1/2: a shift by 1 costs at most EPSILON."""

    ratio: float = 0.5
    reach: int = 12

    @property
    def law(self) -> npt.NDArray[np.float64]:
        weights: npt.NDArray[np.float64] = self.ratio ** np.abs(np.arange(-self.reach, self.reach + 1.0))
        return np.divide(weights, weights.sum())

    @property
    def edge(self) -> float:
        """The mass of the last value, which a shift takes away at one end: a failure that the cut of the tail makes."""
        return float(self.law[-1])


@cache
def level(noises: tuple[Noise, ...], beta: float) -> int:
    """The least integer that the sum of these noises reaches with probability at most beta: in place of z sqrt(sum of v)."""
    total = np.ones(1)
    for noise in noises:
        total = np.convolve(total, noise.law)
    tail = np.cumsum(total[::-1])[::-1]
    reach = sum(noise.reach for noise in noises)
    return int(np.argmax(tail <= beta)) - reach if (tail <= beta).any() else reach + 1


class Defect(Enum):
    KEPT = auto()
    """Evidence stays after the key has been published."""
    PRESENT_GATE = auto()
    """The gate looks at the present window only."""
    LONG_GATE = auto()
    """Every scale has the gate of the longest range."""
    ONE_HEIGHT = auto()
    """One window's height, whatever the number of windows."""
    NO_SPLIT = auto()
    """Every scale has all of beta."""
    DROPPED = auto()
    """A window without the key ends the key's evidence, and tests it not."""
    LATE_START = auto()
    """The sum begins with the first window that somebody has brought the key in."""


@dataclass(frozen=True)
class Window:
    """What happens to the key in a window. others: users besides the one in question; 0: nobody."""

    others: int = 0
    user: bool = False
    weight: int = 1
    """Of the user. 0 stands for one that is positive, and too small to be seen in the row."""
    public: bool = False
    """Remembered from the window before: not measured."""
    noise: Noise = field(default_factory=Noise)


Course = Callable[[History], Window]
"""The window after these; users and settings may follow what was published."""


@dataclass(frozen=True)
class Rule:
    windows: int = 2
    beta: float = 0.3
    minimum_users: int = 0
    defects: frozenset[Defect] = frozenset()

    def share(self, scale: int) -> float:
        """beta_s."""
        scales = SCALES[self.windows]
        return self.beta if Defect.NO_SPLIT in self.defects else self.beta / (len(scales) * scale)


@dataclass(frozen=True)
class _Row:
    """A row that is in play. users: by whom the gate goes; mean: what it holds."""

    age: int
    users: int
    mean: int
    touched: bool
    noise: Noise


Law = Mapping[History, float]


def outcomes(rule: Rule, course: Course, windows: int, *, present: bool) -> dict[History, float]:
    """P(each history of publications). present: whether the user is in the data at all."""
    found: dict[History, float] = {}
    nodes: list[tuple[History, list[_Row], npt.NDArray[np.float64]]] = [((), [], np.ones(()))]
    while nodes:
        history, rows, law = nodes.pop()
        if len(history) == windows:
            found[history] = found.get(history, 0.0) + float(law.sum())
            continue
        window = course(history)
        nodes += _window(rule, history, rows, law, window, present)
    return found


def _window(
    rule: Rule, history: History, rows: list[_Row], law: npt.NDArray[np.float64], window: Window, present: bool
) -> Iterator[tuple[History, list[_Row], npt.NDArray[np.float64]]]:
    """The nodes that follow a window: one where it publishes the key, one where it does not."""
    if window.public:
        if Defect.KEPT not in rule.defects:
            rows, law = [], law.sum()
        yield (*history, False), *_older(rule, rows, law)
        return
    there = present and window.user
    users, mean = window.others + there, window.others + there * window.weight
    new = _Row(0, users, mean, users > 0, window.noise)
    rows, law = [*rows, new], law[..., None] * window.noise.law
    values = [np.arange(-row.noise.reach, row.noise.reach + 1) + row.mean for row in rows]
    passed = np.zeros(law.shape, bool)
    dropped = Defect.DROPPED in rule.defects and not new.touched
    for scale in () if dropped else SCALES[rule.windows]:
        chosen = [place for place, row in enumerate(rows) if row.age < scale]
        if Defect.LATE_START in rule.defects:
            first = next((place for place in chosen if rows[place].touched), len(rows))
            chosen = [place for place in chosen if place >= first]
        seen = chosen
        if Defect.PRESENT_GATE in rule.defects:
            seen = [len(rows) - 1]
        elif Defect.LONG_GATE in rule.defects:
            seen = list(range(len(rows)))
        if not any(rows[place].users > rule.minimum_users for place in seen):
            continue
        heights = 1 if Defect.ONE_HEIGHT in rule.defects else len(chosen)
        reached = heights * (rule.minimum_users + 1) + level(
            tuple(rows[place].noise for place in chosen), rule.share(scale)
        )
        total = np.zeros(law.shape)
        for place in chosen:
            shape = [1] * len(rows)
            shape[place] = -1
            total = total + values[place].reshape(shape)
        passed |= total >= reached
    if passed.any():
        yield (
            (*history, True),
            *_older(rule, *((rows, law * passed) if Defect.KEPT in rule.defects else ([], (law * passed).sum()))),
        )
    if dropped:
        rows, law = [], law.sum()
        passed = np.zeros((), bool)
    yield (*history, False), *_older(rule, rows, law * ~passed)


def _older(rule: Rule, rows: list[_Row], law: Any) -> tuple[list[_Row], npt.NDArray[np.float64]]:
    """The rows that the next window still has, one window older."""
    old = tuple(place for place, row in enumerate(rows) if row.age + 1 >= rule.windows)
    kept = [
        _Row(row.age + 1, row.users, row.mean, row.touched, row.noise) for row in rows if row.age + 1 < rule.windows
    ]
    return kept, np.asarray(law).sum(axis=old) if old else np.asarray(law)


def excess(rule: Rule, course: Course, windows: int, *, given: History = ()) -> float:
    """The least delta of (epsilon, delta) between the data with the user and without, in both directions.

    epsilon: what the user's weights cost. given: of many keys alike, the user picks one with this history, and comes after it.
    """
    one, other = (_given(outcomes(rule, course, windows, present=present), given) for present in (True, False))
    # A user who comes in some histories only is charged for the longest of them.
    weights = max(
        sum(int(window.user) * window.weight for end in range(windows) if (window := course(history[:end])))
        for history in one.keys() | other.keys()
    )
    factor = math.exp(EPSILON * weights)
    return max(
        math.fsum(max(p.get(history, 0.0) - factor * q.get(history, 0.0), 0.0) for history in p.keys() | q.keys())
        for p, q in ((one, other), (other, one))
    )


def _given(law: Law, given: History) -> Law:
    chosen = {history: p for history, p in law.items() if history[: len(given)] == given}
    total = math.fsum(chosen.values())
    return {history: p / total for history, p in chosen.items()}
