"""For xdist (``--dist loadgroup --no-loadscope-reorder``): which tests go to one process, and in which order.

The longest come first, by the durations of tests/durations.json, so that no process is left alone with one of them at the end.
`make durations` writes the file; a test that is not in it counts as rather long.
"""

import json
from collections import Counter, defaultdict
from collections.abc import Callable, Mapping, Sequence
from hashlib import blake2b
from pathlib import Path

import pytest

DURATIONS = Path(__file__).with_name("durations.json")
UNKNOWN_SECONDS = 10.0
ONE_EACH_RUN = {
    "kafka_cluster": "cluster",
    "schema_registry": "registry",
    "guarded": "guarded broker",
    "oauth_door": "oauth broker",
}
"""Fixtures that only one of xdist's workers shall set up -> the group of tests that it gets."""


def group(items: Sequence[pytest.Item]) -> set[pytest.Item]:
    """Mark what goes to one process; return the tests that only one process may run.

    Tests that need no broker stay together by files, whose fixtures they share; statistical ones share none, and are long.
    """
    alone = set()
    for item in items:
        shared = [name for fixture, name in ONE_EACH_RUN.items() if fixture in getattr(item, "fixturenames", ())]
        if shared or item.get_closest_marker("xdist_group"):
            alone.add(item)
        if shared:
            item.add_marker(pytest.mark.xdist_group(shared[0]))
        elif item not in alone and not any(map(item.get_closest_marker, ("broker", "statistical"))):
            item.add_marker(pytest.mark.xdist_group(item.location[0]))
    return alone


def unit_of(item: pytest.Item) -> str:
    """What goes to one process as a whole: a group, or one test."""
    named = item.get_closest_marker("xdist_group")
    return str(named.args[0]) if named else item.nodeid


def ordered(
    items: Sequence[pytest.Item],
    alone: set[pytest.Item],
    seconds: Mapping[str, float],
    *,
    cases_in_turn: bool,
    can_wait: Callable[[pytest.Item], bool] = lambda _: False,
    shuffle: str = "",
) -> list[pytest.Item]:
    """The tests in their order.

    First what only one process may do: it takes minutes. Then units that wait for a broker and units that compute, each longest
    first; of both kinds the same share at any time, since the former leave the processor to the latter. cases_in_turn: the first
    case of every test comes before the second of any, for a campaign that may be short of time.

    can_wait: units of nothing else come last, in an order that the text `shuffle` decides. So where there is no time for
    all of them, it is not always the same ones that are left out.
    """
    units: dict[str, list[pytest.Item]] = defaultdict(list)
    for item in items:
        units[unit_of(item)].append(item)
    cases = Counter[str]()
    turns = {}
    for name in units:
        function = name_of(name)
        turns[name], cases[function] = cases[function] * cases_in_turn, cases[function] + 1

    def length(name: str) -> float:
        return seconds.get(name_of(name), UNKNOWN_SECONDS)

    def drawn(name: str) -> str:
        return blake2b(f"{shuffle} {name}".encode()).hexdigest()

    kinds: dict[tuple[bool, bool], list[str]] = defaultdict(list)
    for name, members in units.items():
        kinds[all(map(can_wait, members)), members[0].get_closest_marker("broker") is None].append(name)
    placed: list[tuple[bool, bool, float, float, str]] = []
    for (waiting, _), kind in kinds.items():
        shuffled = bool(waiting and shuffle)
        kind.sort(key=lambda name: (turns[name], drawn(name) if shuffled else "", -length(name)))
        whole, begun = sum(map(length, kind)) or 1.0, 0.0
        for name in kind:
            placed.append((waiting, units[name][0] not in alone, begun / whole, -length(name), name))
            begun += length(name)
    return [item for *_, name in sorted(placed) for item in units[name]]


def name_of(unit: str) -> str:
    """The name under which the durations of a unit stand: cases of a test take about as long as each other."""
    return unit.partition("[")[0]


def recorded() -> dict[str, float]:
    """The durations in seconds, of a group in all, and of a single test the longest of its cases."""
    return json.loads(DURATIONS.read_text()) if DURATIONS.exists() else {}


class Recorder:
    """A plugin of pytest in xdist's controller: writes durations.json, of a run of everything."""

    def __init__(self) -> None:
        self._seconds: dict[str, float] = defaultdict(float)

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Add the duration of one of a test's three phases. xdist has written the group behind the test's name, if it has one."""
        named = report.nodeid.rpartition("@")[2] if report.nodeid.rfind("@") > report.nodeid.rfind("]") else ""
        self._seconds[named or report.nodeid] += report.duration

    def pytest_sessionfinish(self) -> None:
        """Replace the file."""
        longest: dict[str, float] = {}
        for unit, seconds in self._seconds.items():
            longest[name_of(unit)] = max(longest.get(name_of(unit), 0.0), round(seconds, 1))
        DURATIONS.write_text(json.dumps(longest, indent=0, sort_keys=True) + "\n")
