#!/usr/bin/env python3
"""Standard errors of a mean and a variance at equal (epsilon, delta), beside the formulas that batch libraries have published.

    python benchmarks/means.py            the table of docs/sums.md
    python benchmarks/means.py --check    whether the page has it

Of a key with n records of as many users, each of whom brings one record to each of 8 keys. Values lie between 50 and 100, with
mean 80 and standard deviation 10. The keys are public, so nothing is spent on selection. Ours are of the real strategies. The
others are computed here from what their sources say, and none of their code is used:

google      differential-privacy (Go: dpagg/mean.go, variance.go): epsilon and delta in equal parts to sum, count (and squares),
            Gaussian noise calibrated exactly; distances from the midpoint; squares of these, not centred
pipelinedp  PipelineDP (dp_computations.py): the same split and noise; distances from the midpoint; squares with noise for half of
            the interval of the values' own squares
tumult      Tumult Core (create_average_measurement, create_variance_measurement): rho of zCDP in equal parts; distances from the
            midpoint; squares of the values themselves from their middle, so that the mean's own size enters the error
"""

import argparse
import math
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from tables import table

from susurrus.agents.histogram.settings import HistogramSettings
from susurrus.agents.pipelines import settings_from
from susurrus.mechanisms.accounting import gaussian_mu
from susurrus.mechanisms.histogram.registry import build_strategy

PAGE = Path(__file__).resolve().parents[1] / "docs" / "sums.md"
BEGIN, END = "<!-- table: means -->\n", "<!-- end -->\n"
EPSILON, DELTA, KEYS = 2.0, 1e-6, 8
LOWER, UPPER, MEAN, DEVIATION = 50.0, 100.0, 80.0, 10.0
MIDDLE, HALF = (LOWER + UPPER) / 2, (UPPER - LOWER) / 2
RECORDS = 1_000, 10_000


def exact_sigma(parts: int) -> float:
    """Gaussian noise for one of so many equal parts of epsilon and delta, for a record of size 1 on each of the keys."""
    return math.sqrt(KEYS) / gaussian_mu(EPSILON / parts, DELTA / parts)


def zcdp_sigma(parts: int) -> float:
    """The same for equal parts of the largest rho with rho + 2 sqrt(rho ln(1 / delta)) = epsilon."""
    log = math.log(1 / DELTA)
    rho = (math.sqrt(log + EPSILON) - math.sqrt(log)) ** 2
    return math.sqrt(KEYS / (2 * rho / parts))


def mean_error(sigma: float, n: int) -> float:
    """Of MIDDLE + U / N, both with this noise for a record of size 1."""
    return math.hypot(HALF * sigma, (MEAN - MIDDLE) * sigma) / n


def variance_error(sigma: float, n: int, *, squares: float, middle: float, centre: float) -> float:
    """Of q - (mean - centre)^2, q the mean of (x - centre)^2 from its ``middle``; by the delta method.

    squares: what one record adds at most to the sum for q. The sum for the mean is of distances from MIDDLE in any case.
    """
    mean, distance = MEAN - centre, MEAN - MIDDLE
    q = DEVIATION**2 + mean**2 - middle
    return sigma * math.hypot(squares, 2 * mean * HALF, q - 2 * mean * distance) / n


def peers() -> dict[str, tuple[list[float], list[float]]]:
    """(errors of the mean, of the variance) by name, for each number of records."""
    squares = (UPPER**2 - LOWER**2) / 2
    ways: dict[str, tuple[Any, dict[str, float]]] = {
        "google": (exact_sigma, {"squares": HALF**2, "middle": 0.0, "centre": MIDDLE}),
        "pipelinedp": (exact_sigma, {"squares": squares, "middle": 0.0, "centre": MIDDLE}),
        "tumult": (zcdp_sigma, {"squares": squares, "middle": (UPPER**2 + LOWER**2) / 2, "centre": 0.0}),
    }
    return {
        name: (
            [mean_error(sigma(2), n) for n in RECORDS],
            [variance_error(sigma(3), n, **how) for n in RECORDS],
        )
        for name, (sigma, how) in ways.items()
    }


def ours(kind: str, triggers: int, *, lower: float = LOWER) -> list[float]:
    """The error of a column of this kind at a window's last trigger, as it is published."""
    given = HistogramSettings.of(
        settings_from(
            {
                "pipeline": {"name": "means"},
                "input": {"topic": "exams", "user": "student", "key": ["course"]},
                "window": {"length": f"{triggers}h", "trigger_every": "1h"},
                "bounds": {"max_records_per_user": KEYS},
                "keys": {"declared": ["a"], "discover": False},
                "privacy": {"epsilon": EPSILON, "delta": DELTA},
                "columns": [{"name": "x", "kind": kind, "field": "x", "lower": lower, "upper": UPPER, "grid": 2.0**-6}],
            },
            environ={},
        )
    )
    layout, std_errors = given.layout, build_strategy(given.plan()).standard_errors()[-1]
    [column] = layout.published
    found = []
    for n in RECORDS:
        sums = [exact_sum(part, n) for part in layout.measured]
        found.append(float(np.asarray(column.rows(np.array([sums]), std_errors[None]).std_error)[0]))
    return found


def exact_sum(part: Any, n: int) -> int:
    """What a measured column has of n records with MEAN and DEVIATION, in its grid units."""
    if part.field is None:
        return n
    value = part.field
    centre = (value.lowest + value.highest) // 2 * value.grid
    if hasattr(part, "middle"):
        return round(((DEVIATION**2 + (MEAN - centre) ** 2) / part.grid - part.middle) * n)
    return round((MEAN - centre) / part.grid * n)


def rows() -> Iterator[list[str]]:
    """The table's rows."""
    others = peers()
    for name, label in (("google", "Google"), ("pipelinedp", "PipelineDP"), ("tumult", "Tumult")):
        yield [f"{label}, one release", *_numbers(*others[name])]
    yield ["Susurrus, one release", *_numbers(ours("mean", 1), ours("variance", 1))]
    yield ["Susurrus, last of 96 releases", *_numbers(ours("mean", 96), ours("variance", 96))]
    plain = ours("mean", 96, lower=-UPPER)
    yield ["… mean of a sum without its middle", *(f"{error:.3g}" for error in plain), "", ""]


def _numbers(mean: list[float], variance: list[float]) -> list[str]:
    return [f"{error:.3g}" for error in (*mean, *variance)]


def rendered() -> str:
    """The table as the page has it."""
    heads = [f"{what}, n = {n:,}" for what in ("mean", "variance") for n in RECORDS]
    return BEGIN + "".join(f"{line}\n" for line in table(["", *heads], list(rows()))) + END


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--check", action="store_true")
    if not parser.parse_args(arguments).check:
        print(rendered(), end="")
        return 0
    return 0 if rendered() in PAGE.read_text(encoding="utf-8") else 1


if __name__ == "__main__":
    sys.exit(main())
