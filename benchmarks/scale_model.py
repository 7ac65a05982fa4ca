"""A model of groups and clusters: fitted to the smaller cases of scale_groups.py, asked about the largest, which it has not seen.

Each figure is a sum of terms with coefficients of its own, none of them negative: so much for each worker, so much for each task.
The fit is least squares of relative errors, so that a small case counts as much as a large one. What is fitted and what is
predicted are different runs: the column "off" of docs/scale.md is an error that the model makes beyond its data.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.optimize import nnls

Case = Mapping[str, Any]
"""A line of scale_groups.py."""
Term = Callable[[Case], float]
FEWEST = 2
"""Cases that a fit needs, beside the one that is predicted."""

TERMS: dict[str, Term] = {
    "": lambda case: 1.0,
    "workers": lambda case: case["workers"],
    "workers per core": lambda case: max(1.0, case["workers"] * case["pipelines"] / case["cores_of_machine"]),
    "tasks": lambda case: case["tasks"],
    "tasks of a worker": lambda case: case["tasks"] / (case["workers"] * case["pipelines"]),
    "pipelines": lambda case: case["pipelines"],
}
"""What a figure may grow with. The first is a constant."""


@dataclass(frozen=True, slots=True)
class Quantity:
    """A figure of a case, its digits behind the point, and the terms that it is made of."""

    title: str
    value: Term
    terms: tuple[str, ...]
    digits: int = 0


GROUP = (
    Quantity("threads of a worker", lambda case: case["threads"], ("", "tasks of a worker")),
    Quantity("memory of a worker, MB", lambda case: case["memory_mb"], ("", "tasks of a worker")),
    Quantity("connections to the broker", lambda case: case["connections"], ("", "workers", "tasks")),
    Quantity("metadata requests until all run", lambda case: case["metadata_calls"], ("", "workers", "tasks")),
    Quantity("requests a second at rest", lambda case: case["requests_per_second"], ("", "workers", "tasks")),
    Quantity("cores of all workers at rest", lambda case: case["cores"]["workers"], ("", "workers", "tasks"), 2),
    Quantity("cores of the broker at rest", lambda case: case["cores"]["broker"], ("", "workers", "tasks"), 2),
    Quantity("s until all run", lambda case: case["start_seconds"], ("", "workers per core", "tasks"), 1),
    Quantity("s until a worker's partitions run elsewhere", lambda case: case["left_seconds"], ("", "tasks"), 1),
    Quantity("s until it has some again", lambda case: case["joined_seconds"], ("", "tasks"), 1),
)
PIPELINES = (
    Quantity("threads of a worker", lambda case: case["threads"], ("",)),
    Quantity("memory of a worker, MB", lambda case: case["memory_mb"], ("",)),
    Quantity("memory of the broker, MB", lambda case: case["broker_memory_mb"], ("", "pipelines")),
    Quantity("connections to the broker", lambda case: case["connections"], ("", "pipelines")),
    Quantity("metadata requests until all run", lambda case: case["metadata_calls"], ("", "pipelines")),
    Quantity("requests a second at rest", lambda case: case["requests_per_second"], ("", "pipelines")),
    Quantity("cores of all workers at rest", lambda case: case["cores"]["workers"], ("", "pipelines"), 2),
    Quantity("cores of the broker at rest", lambda case: case["cores"]["broker"], ("", "pipelines"), 2),
    Quantity("s until all run", lambda case: case["start_seconds"], ("", "workers per core"), 1),
)


@dataclass(frozen=True, slots=True)
class Prediction:
    """What the model says of a case. coefficients: by term."""

    quantity: Quantity
    coefficients: Mapping[str, float]
    predicted: float
    measured: float

    @property
    def off(self) -> float:
        """Relative error of the prediction."""
        return self.predicted / self.measured - 1

    @property
    def formula(self) -> str:
        """As people read it; terms without weight are left out."""
        shown = []
        for term, coefficient in self.coefficients.items():
            number = f"{coefficient:,.3g}"
            if float(number.replace(",", "")):
                shown.append(f"{number} × {term}" if term else number)
        return " + ".join(shown) or "0"


def fit(quantity: Quantity, cases: Sequence[Case]) -> dict[str, float]:
    """Coefficients of the terms, each at least 0. Cases in which the figure is 0 or was not measured must not be among them."""
    values = np.array([quantity.value(case) for case in cases], float)
    terms = np.array([[TERMS[term](case) for term in quantity.terms] for case in cases], float)
    found, _ = nnls(terms / values[:, None], np.ones(len(cases)))
    return dict(zip(quantity.terms, found.tolist(), strict=True))


def ranked(cases: Sequence[Case]) -> list[Case]:
    """The cases, smallest first."""
    return sorted(cases, key=lambda case: (case["tasks"], case["workers"]))


def predictions(quantities: Sequence[Quantity], cases: Sequence[Case]) -> list[Prediction]:
    """What the cases but the largest say of the largest; nothing of figures that too few cases have."""
    in_order = ranked(cases)
    found = []
    for quantity in quantities:
        known = [case for case in in_order if _measured(quantity, case)]
        if len(known) <= FEWEST or known[-1] is not in_order[-1]:
            continue
        *smaller, largest = known
        coefficients = fit(quantity, smaller)
        predicted = sum(coefficient * TERMS[term](largest) for term, coefficient in coefficients.items())
        found.append(Prediction(quantity, coefficients, predicted, quantity.value(largest)))
    return found


def held(quantities: Sequence[Quantity], cases: Sequence[Case]) -> list[Case]:
    """The cases, smallest first, but for the largest as long as it would need more cores than it has, as the others say.

    A full machine does less for each task the more there are. The model says what a case needs, and not what it gets.
    """
    left = ranked(cases)
    cores = [quantity for quantity in quantities if quantity.title.startswith("cores")]
    while sum(each.predicted for each in predictions(cores, left)) > left[-1]["cores_of_machine"]:
        left.pop()
    return left


def _measured(quantity: Quantity, case: Case) -> bool:
    """A group of one worker has no rebalance."""
    try:
        return quantity.value(case) > 0
    except KeyError:
        return False
