"""The model of groups and clusters, on figures that can be checked by hand."""

from typing import Any

import pytest
import scale_tables
from scale_model import GROUP, PIPELINES, TERMS, Quantity, fit, held, predictions


def case(workers: int, tasks: int, **figures: Any) -> dict[str, Any]:
    """A case of one pipeline on two cores."""
    return {"pipelines": 1, "workers": workers, "tasks": tasks, "cores_of_machine": 2, **figures}


THREADS = Quantity("threads", lambda found: found["threads"], ("", "tasks of a worker"))


def test_what_is_exactly_so_is_predicted_exactly() -> None:
    cases = [case(1, 6), case(1, 24), case(2, 24), case(8, 96)]
    for one in cases:
        one["threads"] = 20 + 4 * one["tasks"] / one["workers"]
    (found,) = predictions([THREADS], cases)
    assert found.coefficients == pytest.approx({"": 20, "tasks of a worker": 4})
    assert found.formula == "20 + 4 × tasks of a worker"
    assert (found.predicted, found.measured) == pytest.approx((68, 68))


def test_the_largest_case_has_no_say_in_what_is_predicted_of_it() -> None:
    smaller = [case(1, 6, threads=44), case(1, 24, threads=116)]
    (found,) = predictions([THREADS], [case(8, 96, threads=680), *smaller])
    assert (found.predicted, found.off) == pytest.approx((68, -0.9))


def test_no_coefficient_is_negative() -> None:
    coefficients = fit(THREADS, [case(1, 6, threads=50), case(1, 24, threads=30)])
    assert min(coefficients.values()) == 0
    assert (
        "tasks"
        not in predictions([THREADS], [case(1, 6, threads=50), case(1, 24, threads=30), case(1, 48, threads=9)])[
            0
        ].formula
    )


def test_small_cases_count_as_much_as_large_ones() -> None:
    constant = Quantity("threads", THREADS.value, ("",))
    assert fit(constant, [case(1, 6, threads=10), case(1, 24, threads=1_000)])[""] < 30


def test_a_figure_that_few_cases_have_is_left_out() -> None:
    left = Quantity("left", lambda found: found["left_seconds"], ("", "tasks"))
    cases = [case(1, 6), case(2, 24, left_seconds=2.0), case(4, 48, left_seconds=3.0)]
    assert predictions([left], cases) == []
    assert len(predictions([left], [*cases, case(8, 96, left_seconds=5.0)])) == 1


def test_a_case_that_needs_more_cores_than_it_has_is_not_predicted_but_the_largest_that_fits() -> None:
    cores = [
        Quantity("cores of all workers at rest", lambda found: found["cores"]["workers"], ("", "pipelines")),
        Quantity("cores of the broker at rest", lambda found: found["cores"]["broker"], ("", "pipelines")),
    ]

    def many(pipelines: int, workers: float, broker: float) -> dict[str, Any]:
        return case(1, 3 * pipelines, cores={"workers": workers, "broker": broker}) | {"pipelines": pipelines}

    fitting = [many(5, 0.3, 0.2), many(10, 0.6, 0.4), many(15, 0.9, 0.6)]
    assert held(cores, [many(30, 1.6, 0.4), *fitting]) == fitting
    assert held(cores, [many(20, 1.2, 0.8), *fitting])[-1]["pipelines"] == 20


def test_more_workers_than_cores_start_one_after_the_other() -> None:
    term = TERMS["workers per core"]
    assert [term(case(workers, 6)) for workers in (1, 2, 4, 8)] == [1, 1, 2, 4]


def test_every_term_is_known_and_every_table_renders() -> None:
    assert {term for quantity in (*GROUP, *PIPELINES) for term in quantity.terms} <= TERMS.keys()
    for render in scale_tables.TABLES.values():
        header, rule, *rows = render()
        assert all(line.count("|") == header.count("|") for line in (rule, *rows))
