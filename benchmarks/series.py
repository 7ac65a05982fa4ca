"""Synthetic series for the benchmarks of real-valued streams: basket sizes like the POS set's, with and without
structure.

``shaped`` is a stand-in for the POS series (which is not shipped); ``STRUCTURES`` are the same draws with trends,
shifts, bursts and alternation of the level, on which a method that averages too hard would fail.
"""

import gzip
from collections.abc import Callable
from pathlib import Path

import numpy as np
import numpy.typing as npt

BOUND = 1638
WEB_LOG = Path(__file__).parent.parent / "agents" / "data" / "nasa-http-1995-08-01.tsv.gz"
WEB_COLUMNS = {"web-urls": ("url", len, 2048), "web-kilobytes": ("bytes", lambda text: int(text or 0) // 1024, 4096)}
"""Series of the shipped web log: column, value of a field, public bound."""
Floats = npt.NDArray[np.float64]
Level = Callable[[npt.NDArray[np.float64], np.random.Generator], Floats]


def shaped(length: int, *, seed: int = 0, level: Floats | None = None) -> npt.NDArray[np.int64]:
    """Return int64[length] in [1, BOUND].

    Heavy-tailed sizes, median 5, mean 7.5, 99.5th percentile about 39, times ``level``.
    """
    rng = np.random.default_rng(seed)
    sizes = 1.0 + rng.lognormal(1.45, 0.85, length)
    if level is not None:
        sizes = sizes * level
    return np.clip(np.rint(sizes), 1, BOUND).astype(np.int64)


def web(name: str) -> tuple[npt.NDArray[np.int64], int]:
    """Return one of ``WEB_COLUMNS`` and its bound: a value for each request, in order."""
    column, value, bound = WEB_COLUMNS[name]
    with gzip.open(WEB_LOG, "rt", errors="replace") as lines:
        at = next(lines).rstrip("\n").split("\t").index(column)
        return np.array([value(line.rstrip("\n").split("\t")[at]) for line in lines], dtype=np.int64), bound


def baskets(path: Path) -> npt.NDArray[np.int64]:
    """Return the items of each basket of a file with a basket a line."""
    with gzip.open(path, "rt") as lines:
        return np.array([len(line.split()) for line in lines], dtype=np.int64)


def reflected(values: npt.NDArray[np.int64], length: int) -> npt.NDArray[np.int64]:
    """Return the series continued backwards and forwards until it is ``length`` long."""
    while len(values) < length:
        values = np.append(values, values[length - len(values) : 0 : -1])
    return values[:length]


def _alternating(period: int) -> Level:
    return lambda t, rng: np.where((np.arange(len(t)) // (period // 2)) % 2 == 0, 0.4, 1.6)


def _sine(periods: float) -> Level:
    return lambda t, rng: 1 + 0.8 * np.sin(2 * np.pi * periods * t)


def _bursts(count: int, length: int, height: float) -> Level:
    def level(t: Floats, rng: np.random.Generator) -> Floats:
        result = np.ones(len(t))
        for start in rng.integers(0, len(t), count):
            result[start : start + length] = height
        return result

    return level


def _steps(levels: list[float]) -> Level:
    return lambda t, rng: np.array(levels)[np.minimum((t * len(levels)).astype(int), len(levels) - 1)]


def _walk(t: Floats, rng: np.random.Generator) -> Floats:
    steps = np.repeat(rng.normal(size=len(t) // 1024 + 1), 1024)[: len(t)]
    walk = np.cumsum(steps) / 1024 * 0.05
    return np.exp(np.clip(walk, -1.2, 1.2))


STRUCTURES: dict[str, Level] = {
    "level": lambda t, rng: np.ones(len(t)),
    "trend-up": lambda t, rng: 0.5 + 1.5 * t,
    "trend-down": lambda t, rng: 2.0 - 1.5 * t,
    "trend-exponential": lambda t, rng: 0.3 * np.exp(2.2 * t),
    "shift-once": _steps([1.0, 1.0, 0.5]),
    "shift-up": _steps([0.6, 0.6, 1.8, 1.8]),
    "shifts": _steps([1.0, 0.4, 1.6, 0.7, 1.9, 0.5, 1.2, 0.9]),
    "bursts-short": _bursts(40, 2_000, 5.0),
    "bursts-long": _bursts(6, 20_000, 4.0),
    "burst-single": _bursts(1, 60_000, 4.0),
    "alternation-600": _alternating(600),
    "alternation-4096": _alternating(4096),
    "alternation-6000": _alternating(6000),
    "alternation-30000": _alternating(30_000),
    "alternation-131072": _alternating(131_072),
    "sine-3": _sine(3),
    "sine-12": _sine(12),
    "sine-100": _sine(100),
    "walk": _walk,
}


def structured(name: str, length: int, *, seed: int = 0) -> npt.NDArray[np.int64]:
    """Return one series of ``STRUCTURES``."""
    t = np.arange(length) / length
    return shaped(length, seed=seed, level=STRUCTURES[name](t, np.random.default_rng(seed + 1)))
