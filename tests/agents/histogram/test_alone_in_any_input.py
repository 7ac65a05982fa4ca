"""No record's oddity changes the fate of another one, its bytes or its order: in every format, with `input.each`, with users and
times that are computed or stand beside the value, and with conditions. Through the real stage, in fetches of any sizes.
"""

import random
import sys
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from susurrus.agents.histogram.route import RouteStage
from susurrus.topics import by_user
from susurrus.topics.dead_letter import decode_headers
from susurrus.topics.records.raw import MAX_ITEMS
from susurrus.topics.wire.packing import Kind, kind_of
from tests.agents.histogram.input_cases import CASES, PROTOBUF, Case, Registry, Sent
from tests.agents.histogram.odd_input import odd_records, usual_records
from tests.agents.released import settings
from tests.agents.stages import WINDOW, Runner, services_of
from tests.samples import many_odd

Fate = tuple[Any, ...]
"""Of one record: its rows and its dead letters, in the order of its items, and how many of its rows were left out."""
DAY = 86_400_000


@pytest.fixture(autouse=True)
def outside(monkeypatch: pytest.MonkeyPatch) -> None:
    """A registry, and a module that protoc could have generated."""
    monkeypatch.setattr("confluent_kafka.schema_registry.SchemaRegistryClient", Registry)
    # On a slow machine records of a large fetch would wait for the next look.
    monkeypatch.setattr("susurrus.agents.formats.schemas._ASKING_SECONDS", 3_600.0)
    module = ModuleType("susurrus_odd_pb2")
    module.Event = PROTOBUF  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "susurrus_odd_pb2", module)


class Route:
    """Route over records of one case, which are fed in fetches."""

    def __init__(self, case: Case, directory: Path) -> None:
        directory.mkdir(parents=True)
        for name, data in case.files.items():
            (directory / name).write_bytes(data)
        self.services = services_of(
            settings(
                directory=directory,
                input={"topic": "raw", **case.source},
                start={"from": "earliest", "first_window": WINDOW},
                clock={"kind": "broker", "max_future": "3d"},
                window={"trigger_every": "6h", "allowed_lateness": "2d"},
                bounds={"max_records_per_user": 1_000, "max_records_per_key": 1_000},
                columns=[
                    {"name": "visits", "kind": "count"},
                    {"name": "size", "kind": "sum", "expression": case.adds, "bound": 50},
                ],
            ),
            sources=1,
        )
        self._runner = Runner(RouteStage, self.services, directory / "state")

    def fates(self, records: Sequence[Sent], ends: Sequence[int]) -> list[Fate]:
        """What becomes of each record. ends: where fetches end."""
        log = [
            SimpleNamespace(
                topic="raw", partition=0, offset=n, timestamp=WINDOW + DAY, timestamp_type=1, value=one.value, key=one.key,
                headers=list(one.headers),
            )
            for n, one in enumerate(records)
        ]  # fmt: skip
        runner = self._runner
        for end in ends:
            runner.feed(log, end)
            if end % 3 == 0:
                runner.commit(now=WINDOW + DAY)
        runner.commit(now=WINDOW + DAY)
        assert runner.next == len(log)
        assert runner.stage._intake.waits is None
        counters = runner.stage.counters
        rows, letters = self._rows(), self._letters()
        assert counters["routed"] == sum(map(len, rows.values()))
        assert counters["dead_letter"] == sum(map(len, letters.values()))
        assert (counters["late"], counters["capped"]) == (0, 0)
        assert counters["in"] == counters["routed"] + counters["filtered"] + counters["dead_letter"]
        runner.close()
        return [(tuple(sorted(rows[n])), tuple(letters[n])) for n in range(len(log))]

    def _rows(self) -> defaultdict[int, list[Any]]:
        """Of each offset: (item, user, key, values, interval, window). A user's rows are in the order of the log."""
        found: defaultdict[int, list[Any]] = defaultdict(list)
        last: Counter[bytes] = Counter()
        for _, _, _, value, _ in self._runner.to("by-user"):
            if value is None or kind_of(value) is Kind.TICK:
                continue
            block = by_user.decode(value)
            each = self.services.settings.input.lists
            for row, place in enumerate(block.offset.tolist()):
                offset, item = divmod(place, MAX_ITEMS) if each else (place, 0)
                user, key = block.users[block.user[row]], block.keys[block.key[row]]
                assert place >= last[user]
                last[user] = place + 1
                facts = (int(block.interval[row]), int(block.window[row]))
                found[offset].append((item, user, key, tuple(block.values[row].tolist()), *facts))
        return found

    def _letters(self) -> defaultdict[int, list[Any]]:
        found: defaultdict[int, list[Any]] = defaultdict(list)
        for commit in self._runner.commits:
            for output in commit.outputs:
                for headers in output.headers or ():
                    letter = decode_headers(headers)
                    found[letter.offset].append((letter.item, letter.reason.name))
        return found


def cut(number: int, sizes: Sequence[int], dice: random.Random) -> list[int]:
    """Where fetches of such sizes end."""
    ends = []
    while not ends or ends[-1] < number:
        ends.append(min(number, (ends[-1] if ends else 0) + dice.choice(sizes)))
    return ends


def directories(root: Path) -> Iterator[Path]:
    yield from (root / str(number) for number in range(1_000))


@pytest.mark.parametrize("name", CASES)
def test_no_record_changes_what_becomes_of_another(name: str, tmp_path: Path) -> None:
    case, dice, new = CASES[name], random.Random(name), directories(tmp_path)
    usual = usual_records(case)
    pool = [*usual, *odd_records(case, 40, dice)]
    alone = Route(case, next(new)).fates(pool, range(1, len(pool) + 1))
    assert sum(bool(rows) for rows, _ in alone[: len(usual)]) > len(usual) / 2
    assert any(letters for _, letters in alone)
    # A stage that has seen nothing else decides as one that has seen all.
    for number in dice.sample(range(len(pool)), 3):
        assert Route(case, next(new)).fates([pool[number]], [1]) == [alone[number]]
    for sizes in ((len(pool) * 3,), (1, 2, 30), (7,)):
        order = dice.choices(range(len(pool)), k=len(pool) * 2)
        found = Route(case, next(new)).fates([pool[number] for number in order], cut(len(order), sizes, dice))
        assert found == [alone[number] for number in order]


@pytest.mark.fuzz
@pytest.mark.parametrize("name", CASES)
def test_of_many_odd_records_none_is_lost_and_none_changes_another(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Else rows that bound would drop anyway are dropped here, by fetches.
    monkeypatch.setattr(RouteStage, "_without_over_cap", lambda self, rows, *columns: rows)
    case, dice, new = CASES[name], random.Random(f"many {name}"), directories(tmp_path)
    records = odd_records(case, many_odd(20_000), dice)
    ordered = Route(case, next(new)).fates(records, cut(len(records), (1, 40, 900, 9_000), dice))
    order = list(range(len(records)))
    dice.shuffle(order)
    shuffled = Route(case, next(new)).fates([records[n] for n in order], cut(len(order), (3_000, 20_000), dice))
    assert shuffled == [ordered[n] for n in order]
    some = dice.sample(order, 300)
    assert Route(case, next(new)).fates([records[n] for n in some], range(1, 301)) == [ordered[n] for n in some]
