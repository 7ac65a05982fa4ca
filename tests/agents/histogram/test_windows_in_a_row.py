"""Windows in a row, in pipelines that dice choose: every row is that of the slow reference.

Records are late, windows are skipped, nobody comes, keys are remembered, shares follow the output, and evidence adds up, all in one
pipeline. Restarts, spilled rounds and purges disturb each run. A campaign plays ten times as many (SUSURRUS_SAMPLES=10).
"""

import json
import random
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from susurrus.agents.histogram.remembered import Memory
from susurrus.agents.histogram.table import SortedRows
from susurrus.agents.histogram.window_plans import WindowPlans
from susurrus.mechanisms.calendar import Trigger, WindowIndex
from susurrus.mechanisms.histogram import calibration, smoothing
from susurrus.topics import histogram
from tests.agents.histogram.test_remembered import FAR, HOUR, LENGTH, SOURCES, Both, Event, ours, start_of
from tests.agents.histogram.test_skipped_lists import Decided
from tests.agents.stages import EPOCH, SECRET, WINDOW
from tests.reference import NO_LAST_LOOK, canonical, expected, lasted_of_levels
from tests.reference import Memory as ReferenceMemory
from tests.samples import samples

Rows = dict[tuple[int, int, bytes], list[int | float | None]]
"""(window start, trigger, key) -> estimates, and the smoothed number of the first column where there is one."""
SEEDS, GROUPED_SEEDS = 15, 7
FEW_ROWS = 6
"""So many rows are enough to calibrate and to smooth them, in half of the pipelines."""
LEVELS: list[dict[str, Any]] = [
    {"key": ["group"], "max_records_per_user": 3},
    {"key": ["group", "url"], "max_records_per_user": 8},
    {"key": [], "share": 0.1},
]


@dataclass(frozen=True, kw_only=True)
class Example:
    """A pipeline, its input, and what disturbs it.

    late: intervals. windows: how many. skipped: those that are not published, counted from 0. quiet: those in which nobody comes.
    keys: how many. small: two of three have few users. few_rows: `FEW_ROWS` are enough to calibrate and to smooth. steps: how many
    commits are disturbed.
    """

    seed: int
    late: int
    windows: int
    skipped: frozenset[int]
    quiet: frozenset[int]
    keys: int
    small: bool
    few_rows: bool
    steps: int
    sections: dict[str, Any]

    @classmethod
    def of(cls, seed: int, *, grouped: bool = False) -> "Example":
        dice = random.Random(f"levels {seed}" if grouped else seed)
        windows, late = dice.choice([4, 5, 6]), dice.choice([0, 0, 0, 1, 2, 3, 5])
        evidence = dice.choice([1, 2, 4])
        closing: dict[str, Any] = {"lag": dice.randrange(1, LENGTH + late + 2)}
        if dice.random() < 0.15:
            closing |= NO_LAST_LOOK
            evidence = 1
        elif dice.random() < 0.2:
            closing |= {"unknown_share": 0.2}
        if dice.random() < 0.3:
            closing |= {"ranked_keys": dice.choice([1, 3])}
        keys: dict[str, Any] = {"evidence_windows": evidence} if evidence > 1 else {}
        if dice.random() < 0.4:
            keys |= {"declared": [["g3", "k3"], ["g9", "nobody"]] if grouped else ["k3", "nobody", "k50"]}
        if dice.random() < 0.3:
            keys |= {"minimum_users": dice.choice([1, 2])}
        sections: dict[str, Any] = {
            "remember": dice.choice([0, 1, 4, 6, 6, 6, 20]),
            "privacy": {
                "epsilon": dice.choice([3.0, 6.0, 9.0]), "delta": dice.choice([1e-9, 1e-4, 1e-3]), "closing": closing,
            },
            "keys": keys,
        }  # fmt: skip
        if grouped:
            sections |= {
                "input": {
                    "topic": "raw", "user": "host", "key": ["group", "url"], "null_key": "value",
                    "grouping_sets": [level["key"] for level in LEVELS],
                },
                "levels": LEVELS,
                "columns": [
                    {"name": "visits", "kind": "users"},
                    {"name": "paid", "kind": "sum", "field": "amount", "bound": 50, "grid": 1},
                ],
            }  # fmt: skip
        skips = dice.choice([0.0, 0.3])
        skipped = frozenset(n for n in range(windows) if dice.random() < skips)
        return cls(
            seed=seed,
            late=late,
            windows=windows,
            skipped=skipped if len(skipped) < windows else frozenset(),
            quiet=frozenset(n for n in range(windows) if dice.random() < 0.06),
            keys=dice.choice([20, 50]) if grouped else dice.choice([20, 60, 90]),
            small=dice.random() < 0.5,
            few_rows=dice.random() < 0.5,
            steps=dice.choice([40, 120, 240]),
            sections=sections,
        )

    @property
    def grouped(self) -> bool:
        return "levels" in self.sections

    def events(self) -> list[Event]:
        """Three quarters of all keys come in a window, the others do not."""
        dice = random.Random(f"events {self.seed}")
        found: list[tuple[int, int, int, bytes, bytes, int]] = []
        for window in set(range(self.windows)) - self.quiet:
            brought: list[tuple[int, int]] = []
            for key in range(self.keys):
                if dice.random() < 0.75:
                    users = dice.randrange(2, 9) if self.small and key % 3 else dice.randrange(10, 40)
                    brought += [(key, who) for who in dice.sample(range(900), users)]
            dice.shuffle(brought)
            for key, who in brought:
                interval, source = window * LENGTH + dice.randrange(LENGTH + self.late), dice.randrange(SOURCES)
                name = b'["g%d","k%d"]' % (key % 7, key) if self.grouped else b'"k%d"' % key
                found.append((interval, source, start_of(window), b'"u%d"' % who, name, dice.randrange(-50, 51)))
        found.sort(key=lambda event: event[0])
        return [(source, offset, interval, *of) for offset, (interval, source, *of) in enumerate(found)]  # type: ignore[misc]

    def services(self) -> Any:
        return ours(
            late=self.late, **{name: dict(of) if isinstance(of, dict) else of for name, of in self.sections.items()}
        )

    def published(self, directory: Path) -> Rows:
        """By the stages, disturbed."""
        made = self.services()
        first = made.ledger.first_window
        both = Both(directory, made, self.events(), last=made.calendar.last_interval(first + self.windows - 1))
        decided = Decided({first + window for window in self.skipped})

        def skip() -> None:
            for release in both.releases:
                release.stage._beginnings._standing = decided  # type: ignore[attr-defined]

        skip()
        dice = random.Random(f"steps {self.seed}")
        for _ in range(self.steps):
            runner = dice.choice(both.runners)
            runner.stage._max_rows = dice.choice([100, 10**9])  # type: ignore[attr-defined]
            both.commit(runner, dice.choice([1, 1, 2, 3]))
            if dice.random() < 0.3:
                both.feed(runner)
                next(iter(runner.stage.commits(FAR)), None)  # made, and lost with its owner
                runner.restart()
                skip()
            if dice.random() < 0.1:
                both.index.read_again()
            if dice.random() < 0.1:
                begin = both.index.purge_before()
                both.index.clear()
                for offset, value in enumerate(both.index.log[begin:], begin):
                    both.index.take(value, offset)
        both.finish()
        rows: Rows = {}
        for release in both.releases:
            for *_, value, _ in release.to("histogram"):
                row = histogram.decode_row(value or b"")
                if row.window >= start_of(self.windows):
                    continue  # one that begins while the last of these takes late records
                key = row.key
                if self.grouped:
                    level = made.settings.level_names.index(row.level)
                    key = ["abc"[level], *(row.key[part] for part in made.settings.level_parts[level])]  # type: ignore[index]
                visits, paid = row.values["visits"], row.values["paid"]
                smoothed = visits.smoothed and visits.smoothed.estimate
                rows[row.window, row.trigger, canonical(key)] = [visits.estimate, paid.estimate, smoothed]
        for runner in both.runners:
            runner.close()
        return rows

    def expected(self) -> tuple[Rows, ReferenceMemory]:
        """By the slow reference."""
        made, memory = self.services(), ReferenceMemory()
        raw, read_at = [], {}
        for source, offset, interval, start, user, key, value in self.events():
            parts = (
                dict(zip(("group", "url"), json.loads(key), strict=True)) if self.grouped else {"url": json.loads(key)}
            )
            raw.append((source, offset, start, {"host": json.loads(user), "amount": value, **parts}))
            read_at[source, offset] = WINDOW + interval * HOUR
        first = made.ledger.first_window
        windows = [first + window for window in range(self.windows) if window not in self.skipped]
        rows: Rows = {}
        given: dict[str, Any] = {"secret": SECRET, "epoch": EPOCH, "read_at": read_at, "windows": windows}
        if self.grouped and made.settings.follows_persistence:
            given["lasted"] = lasted_of_levels(made.settings, raw, **given)
        for level in range(len(LEVELS)) if self.grouped else (None,):
            of_level = expected(made.settings, raw, level=level, memory=memory, **given)
            rows |= {at: [*row, memory.smoothed.get(at, {}).get(0, (None,))[0]] for at, row in of_level.items()}
        return rows, memory


def difference(found: Rows, wanted: Rows) -> str:
    """Nothing where they are the same."""
    other = sorted(at for at in found.keys() | wanted.keys() if found.get(at) != wanted.get(at))
    if not other:
        return ""
    return (
        f"{len(wanted.keys() - found.keys())} of {len(wanted)} rows are missing, {len(found.keys() - wanted.keys())} are more, "
        f"{len([at for at in other if at in found and at in wanted])} are others; the first: "
        + "; ".join(f"{at}: {found.get(at)}, not {wanted.get(at)}" for at in other[:3])
    )


def play(example: Example, directory: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """How what is published differs from what the reference says; nothing where it does not."""
    if example.few_rows:
        monkeypatch.setattr(calibration, "LEAST_ROWS", FEW_ROWS)
        monkeypatch.setattr(smoothing, "LEAST_ROWS", FEW_ROWS)
    wanted, memory = example.expected()
    print(f"{example}\nkappa by window: {memory.kappas}, {len(wanted)} rows")  # pytest shows it of a test that fails
    return difference(example.published(directory), wanted)


def seeds(number: int) -> list[Any]:
    """So many; what a campaign adds is the campaign's alone."""
    return [pytest.param(n, marks=[pytest.mark.campaign] if n >= number else []) for n in range(samples(number))]


@pytest.mark.parametrize("seed", seeds(SEEDS))
def test_rows_are_those_of_the_slow_reference(seed: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    example = Example.of(seed)
    if found := play(example, tmp_path, monkeypatch):
        pytest.fail(f"{example}: {found}")


@pytest.mark.parametrize("seed", seeds(GROUPED_SEEDS))
def test_rows_of_several_levels_are_those_of_the_slow_reference(
    seed: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    example = Example.of(seed, grouped=True)
    if found := play(example, tmp_path, monkeypatch):
        pytest.fail(f"{example}: {found}")


# ---- that a defect is seen ---------------------------------------------------------------------------------------------


def enters(by: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """The list enters by so many triggers too late, or too early."""
    monkeypatch.setattr(Memory, "enters", property(lambda memory: Trigger(memory._calendar.late_intervals + 1 + by)))


def skipped_tells_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """A skipped window says that nothing had lasted, instead of what the window before it says."""
    tell = WindowPlans.tell

    def told(plans: WindowPlans, *given: Any) -> Any:
        if given[2] is None:
            plans._lasted = 0, 0
        return tell(plans, *given)

    monkeypatch.setattr(WindowPlans, "tell", told)


def skipped_forgets(monkeypatch: pytest.MonkeyPatch) -> None:
    """A skipped window hands on no list, instead of its own."""
    hand_on = Memory.hand_on

    def handed_on(memory: Memory, window: WindowIndex, rows: Any, commit: Any) -> Any:
        none = np.zeros((0, 2))
        empty = SortedRows(keys=[], estimates=none.astype(np.int64), std_errors=none, direct=None)
        return hand_on(memory, window, empty if rows is None else rows, commit)

    monkeypatch.setattr(Memory, "hand_on", handed_on)


PLANTS: dict[str, Any] = {
    "the list enters early": partial(enters, -1),
    "the list enters late": partial(enters, 1),
    "a skipped window tells nothing": skipped_tells_nothing,
    "a skipped window hands on nothing": skipped_forgets,
}


@pytest.mark.parametrize(
    ("defect", "seed"),
    [
        ("the list enters early", 14),
        ("the list enters late", 14),
        ("a skipped window tells nothing", 10),
        ("a skipped window hands on nothing", 14),
    ],
)
def test_a_defect_is_seen(defect: str, seed: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Pipelines that the first test plays without one."""
    PLANTS[defect](monkeypatch)
    assert play(Example.of(seed), tmp_path, monkeypatch)
