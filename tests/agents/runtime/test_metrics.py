"""What a task counts: committed transactions only, what happened to the others, and nothing twice."""

from collections.abc import Mapping

import pytest
from confluent_kafka import KafkaException

from susurrus.agents.kafka.offset import Offset
from susurrus.agents.runtime.commit import Commit, Output
from susurrus.agents.runtime.metrics import OUTCOMES, Metrics, TaskMetrics
from susurrus.agents.runtime.transaction import Aborted, Fenced

PLACE = {"pipeline": "susurrus.web", "stage": "route", "partition": "3"}


@pytest.fixture
def metrics() -> Metrics:
    return Metrics("susurrus.web")


@pytest.fixture
def task(metrics: Metrics) -> TaskMetrics:
    return metrics.task("route", 3)


def value(metrics: Metrics, name: str, **labels: str) -> float | None:
    return metrics.registry.get_sample_value(name, {**PLACE, **labels})


def of_stage(metrics: Metrics, name: str) -> float | None:
    return metrics.registry.get_sample_value(name, {"pipeline": "susurrus.web", "stage": "route"})


def commit(*, publishes: bool = False, reasons: Mapping[str, int] | None = None) -> Commit:
    outputs = [Output("t", 0, []), Output("dead-letter", 0, [], reasons=reasons or {})]
    return Commit(position=Offset(9), meta={}, outputs=outputs, publishes=publishes)


def test_what_was_recovered_is_not_counted_again(metrics: Metrics, task: TaskMetrics) -> None:
    task.starts({"in": 1000, "late": 0})
    assert (
        value(metrics, "susurrus_stage_total", total="in"),
        value(metrics, "susurrus_stage_total", total="late"),
    ) == (
        0,
        0,
    )
    task.committed(commit(), {"in": 1005, "late": 2})
    task.committed(commit(), {"in": 1007, "late": 2})
    assert value(metrics, "susurrus_stage_total", total="in") == 7
    assert value(metrics, "susurrus_stage_total", total="late") == 2
    again = metrics.task("route", 3)  # the same partition comes back after another worker has taken 93 records
    again.starts({"in": 1100, "late": 2})
    again.committed(commit(), {"in": 1101, "late": 2})
    assert value(metrics, "susurrus_stage_total", total="in") == 8


def test_dead_letters_are_counted_by_reason(metrics: Metrics, task: TaskMetrics) -> None:
    task.committed(commit(reasons={"NOT_JSON": 2, "MISSING_KEY": 1}), {})
    task.committed(commit(reasons={"NOT_JSON": 1}), {})
    assert value(metrics, "susurrus_dead_letters_total", reason="NOT_JSON") == 3
    assert value(metrics, "susurrus_dead_letters_total", reason="MISSING_KEY") == 1


@pytest.mark.parametrize(
    ("error", "outcome"),
    [
        (None, "committed"),
        (Aborted(), "aborted"),
        (Fenced(), "fenced"),
        (KafkaException(), "failed"),
        (TimeoutError(), "failed"),
    ],
)
def test_every_transaction_has_one_outcome(
    metrics: Metrics, task: TaskMetrics, error: Exception | None, outcome: str
) -> None:
    def make() -> None:
        with task.transaction():
            if error is not None:
                raise error

    if error is None:
        make()
    else:
        with pytest.raises(type(error)):
            make()
    found = {name: value(metrics, "susurrus_transactions_total", outcome=name) for name in OUTCOMES}
    assert found == {name: float(name == outcome) for name in OUTCOMES}
    assert of_stage(metrics, "susurrus_transaction_duration_seconds_count") == float(outcome == "committed")


def test_only_a_release_is_timed_as_one(metrics: Metrics, task: TaskMetrics) -> None:
    task.computes()
    task.committed(commit(), {})
    assert of_stage(metrics, "susurrus_release_duration_seconds_count") is None
    task.committed(commit(publishes=True), {})
    assert of_stage(metrics, "susurrus_release_duration_seconds_count") == 1


def test_workers_of_one_process_do_not_share_a_registry(metrics: Metrics) -> None:
    metrics.rebalances.inc()
    assert Metrics("susurrus.web").registry.get_sample_value(
        "susurrus_worker_rebalances_total", {"pipeline": "susurrus.web"}
    ) == 0  # fmt: skip
