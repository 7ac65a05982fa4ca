"""Which tests go to one process, and in which order."""

import json
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace

import pytest

from tests import order


@dataclass(eq=False)
class Item:
    """What is asked of a test."""

    nodeid: str
    marks: dict[str, pytest.Mark] = field(default_factory=dict)
    fixturenames: tuple[str, ...] = ()

    @property
    def location(self) -> tuple[str]:
        return (self.nodeid.partition("::")[0],)

    def get_closest_marker(self, name: str) -> pytest.Mark | None:
        return self.marks.get(name)

    def add_marker(self, mark: pytest.MarkDecorator) -> None:
        self.marks[mark.name] = mark.mark


def item(nodeid: str, *names: str, **arguments: tuple[str, ...]) -> Item:
    return Item(nodeid, {name: getattr(pytest.mark, name).mark for name in names}, **arguments)


def names(items: list[Item], seconds: dict[str, float], *, cases_in_turn: bool = False) -> list[str]:
    found = order.ordered(items, order.group(items), seconds, cases_in_turn=cases_in_turn)
    return [each.nodeid for each in found]


def test_files_without_a_broker_stay_together_and_statistical_tests_are_units_of_their_own() -> None:
    items = [item("a.py::1"), item("a.py::2", "statistical"), item("a.py::3", "broker"), item("a.py::4")]
    assert order.group(items) == set()
    assert [order.unit_of(each) for each in items] == ["a.py", "a.py::2", "a.py::3", "a.py"]


@pytest.mark.parametrize(("alone", "wanted"), [(1.0, "c1 b1 b2 c2 a1"), (20.0, "c1 a1 c2 b1 b2")])
def test_the_longest_come_first_and_what_waits_takes_turns_with_what_computes(alone: float, wanted: str) -> None:
    items = [item("a::1"), item("b::1"), item("b::2"), item("c::1", "broker"), item("c::2", "broker")]
    found = names(items, {"a": alone, "b": 9.0, "c::1": 50.0, "c::2": 50.0})
    assert " ".join(found).replace("::", "") == wanted


def test_what_only_one_process_may_do_comes_first() -> None:
    cluster = item("c.py::1", "broker", fixturenames=("kafka_cluster",))
    assert names([item("a.py::1"), cluster], {"a.py": 99.0, "cluster": 1.0}) == ["c.py::1", "a.py::1"]


def test_a_test_that_was_never_timed_is_neither_first_nor_last() -> None:
    items = [item("a.py::short"), item("b.py::new"), item("c.py::long")]
    assert names(items, {"a.py": 1.0, "c.py": 60.0}) == ["c.py::long", "b.py::new", "a.py::short"]


@pytest.mark.parametrize(("cases_in_turn", "wanted"), [(False, "1[a] 1[b] 2"), (True, "1[a] 2 1[b]")])
def test_a_campaign_runs_the_first_case_of_every_test_before_the_second_of_any(
    cases_in_turn: bool, wanted: str
) -> None:
    items = [item(f"a.py::{name}", "broker") for name in ("1[a]", "1[b]", "2")]
    found = names(items, {"a.py::1": 9.0, "a.py::2": 1.0}, cases_in_turn=cases_in_turn)
    assert " ".join(name.partition("::")[2] for name in found) == wanted


def test_what_can_wait_comes_last_and_in_the_order_of_a_text() -> None:
    items = [item(f"{name}.py::1") for name in "abcdefgh"]
    items += [item("s.py::1", "thorough"), item("s.py::2")]  # a file of which one test cannot wait
    waiting = {each.nodeid for each in items if each.nodeid[0] in "bdfh"} | {"s.py::1"}
    lengths = {f"{name}.py": float(at) for at, name in enumerate("abcdefgh")}

    def found(shuffle: str) -> list[str]:
        ordered = order.ordered(
            items,  # type: ignore[arg-type]
            order.group(items),  # type: ignore[arg-type]
            lengths,
            cases_in_turn=False,
            can_wait=lambda each: each.nodeid in waiting,
            shuffle=shuffle,
        )
        return [each.nodeid.partition(".")[0] for each in ordered]

    assert found("") == ["s", "s", *"gecahfdb"]
    shuffled = [found(text) for text in ("2026-11-28", "2026-11-29", "2026-11-30")]
    assert all(names[:6] == ["s", "s", *"geca"] and sorted(names[6:]) == [*"bdfh"] for names in shuffled)
    assert shuffled[0] == found("2026-11-28")
    assert len({tuple(names) for names in shuffled}) > 1


def test_a_record_has_groups_as_a_whole_and_the_longest_case_of_a_test(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(order, "DURATIONS", tmp_path / "durations.json")
    recorder = order.Recorder()
    for nodeid, duration in [
        ("a.py::1@a.py", 2.0),
        ("a.py::2@a.py", 3.0),
        ("b.py::1[x@y]", 1.0),
        ("b.py::1[x@y]", 2.5),
        ("b.py::1[z]", 4.0),
    ]:
        recorder.pytest_runtest_logreport(SimpleNamespace(nodeid=nodeid, duration=duration))  # type: ignore[arg-type]
    recorder.pytest_sessionfinish()
    assert json.loads(order.DURATIONS.read_text()) == order.recorded() == {"a.py": 5.0, "b.py::1": 4.0}
