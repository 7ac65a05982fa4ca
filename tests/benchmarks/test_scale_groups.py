"""The benchmark of groups and pipelines: its cases, what it takes for running, and small ones on a real broker."""

from collections.abc import Iterator, Sequence
from types import SimpleNamespace
from typing import Any

import pytest

from benchmarks.scale_groups import Lookout, cases, measure
from benchmarks.scale_model import GROUP, PIPELINES
from susurrus.agents.broker.cluster import KafkaCluster
from tests.broker import started


class Workers:
    """A fleet whose workers run what it is told; one that is told None does not answer."""

    def __init__(self, *running: Sequence[str] | None) -> None:
        self.running = list(running)

    def check(self) -> None:
        """None has ended."""

    def numbers(self) -> list[int]:
        return list(range(len(self.running)))

    def samples(self, number: int, metric: str) -> Iterator[Any]:
        found = self.running[number]
        if found is None:
            raise ConnectionRefusedError
        for partition in found:
            labels = {"stage": "route", "partition": partition}
            yield SimpleNamespace(value=1.0, labels={**labels, "state": "running"})
            yield SimpleNamespace(value=0.0, labels={**labels, "state": "stalled"})


def test_cases_are_read_from_both_options() -> None:
    assert list(cases("1x4,8x64", "50")) == [
        {"pipelines": 1, "workers": 1, "raw_partitions": 4},
        {"pipelines": 1, "workers": 8, "raw_partitions": 64},
        {"pipelines": 50, "workers": 1, "raw_partitions": 1},
    ]
    assert list(cases("", "")) == []
    with pytest.raises(ValueError, match="invalid literal"):
        list(cases("8", ""))


def test_all_partitions_run_when_each_runs_once() -> None:
    fleet = Workers(["0", "1"], ["1"])  # whose owner changes: two say that they have it
    lookout = Lookout([fleet], 2)  # type: ignore[list-item]
    asked: list[int] = []

    def later() -> bool:
        asked.append(1)
        return True

    answers = iter([[["0", "1"], ["1"]], [["0"], None], [["0"], ["1"]]])
    look = lookout.look

    def next_look() -> None:
        fleet.running = next(answers)
        look()

    lookout.look = next_look  # type: ignore[method-assign]
    lookout.wait(later)
    assert asked == [1]  # neither while one ran twice, nor while one did not run
    assert list(answers) == []


def test_the_time_that_a_partition_stood_still_begins_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [100.0]
    monkeypatch.setattr("benchmarks.scale_groups.time.monotonic", lambda: now[0])
    fleet = Workers(["0", "1"])
    lookout = Lookout([fleet], 2)  # type: ignore[list-item]
    for second, running in ((0, ["0", "1"]), (7, ["0"]), (8, ["0", "1"])):
        now[0], fleet.running = 100.0 + second, [running]
        lookout.look()
    assert lookout.longest == {(0, ("route", "0")): 7.0, (0, ("route", "1")): 8.0}
    lookout.begin()
    now[0] = 110.0
    lookout.look()
    assert set(lookout.longest.values()) == {2.0}


@pytest.mark.broker
@pytest.mark.thorough
@pytest.mark.campaign
@pytest.mark.xdist_group("benchmarks")
@pytest.mark.timeout(900)
class TestOnABroker:
    """Figures are only looked at for what must hold on any machine."""

    @pytest.fixture
    def cluster(self) -> Iterator[KafkaCluster]:
        found = KafkaCluster(heap="384m", short_lived=True, properties={"group.initial.rebalance.delay.ms": "0"})
        with started(found):
            yield found

    def test_a_group(self, cluster: KafkaCluster) -> None:
        row = measure(cluster, {"pipelines": 1, "workers": 2, "raw_partitions": 4}, 50, 6.0)
        assert (row["what"], row["tasks"]) == ("group", 6)
        assert all(quantity.value(row) > 0 for quantity in GROUP)
        assert row["requests"]["EndTxn"] > 0

    def test_pipelines(self, cluster: KafkaCluster) -> None:
        row = measure(cluster, {"pipelines": 2, "workers": 1, "raw_partitions": 1}, 50, 6.0)
        assert (row["what"], row["tasks"]) == ("pipelines", 6)
        assert all(quantity.value(row) > 0 for quantity in PIPELINES)
