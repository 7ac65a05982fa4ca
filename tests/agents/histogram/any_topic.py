"""Records of one raw topic through route as a worker runs it: who counts under which key, and what is bad."""

import json
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NamedTuple

from susurrus.agents.histogram.route import RouteStage
from susurrus.topics import by_user
from susurrus.topics.dead_letter import decode_headers
from susurrus.topics.wire.packing import Kind, kind_of
from tests.agents.released import settings
from tests.agents.stages import WINDOW, Runner, services_of

Headers = Sequence[tuple[str, bytes | None]]
Record = tuple[Any, bytes | None, Headers]
"""Value, key and headers. A value that is neither bytes nor None is written as JSON."""


def as_it_comes(offset: int) -> int:
    """The stamp of a record, ms: one ms after the one before it."""
    return WINDOW + offset


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """source: of `[input]`. sections: others of the file. stamped: stamps in ms, by offset. users: by key, as canonical JSON; sums:
    by key, of the field ``adds``. windows: by key, in ms after the first; compared where they are given."""

    source: dict[str, Any]
    records: list[Record]
    users: dict[str, set[Any]]
    sections: dict[str, Any] = field(default_factory=dict)
    stamped: Callable[[int], int] = as_it_comes
    letters: dict[str, int] = field(default_factory=dict)
    left_out: int = 0
    adds: Any = None
    sums: dict[str, int] = field(default_factory=dict)
    windows: dict[str, set[int]] | None = None


class Row(NamedTuple):
    """A row that counts. user: a tuple where it is several fields. key: canonical JSON, a text as it is. window: its start, ms."""

    user: Any
    key: str
    window: int
    values: list[int]


def values(*found: Any) -> list[Record]:
    """Records that have a value alone."""
    return [(value, None, ()) for value in found]


def check(case: Case, directory: Path, **source: Any) -> None:
    """Route a case's records and compare. source: more of `[input]`."""
    rows, letters, left_out = _routed(case, directory, source)
    users: dict[str, set[Any]] = {}
    windows: dict[str, set[int]] = {}
    sums: Counter[str] = Counter()
    for row in rows:
        users.setdefault(row.key, set()).add(row.user)
        windows.setdefault(row.key, set()).add(row.window - WINDOW)
        sums[row.key] += row.values[0] if row.values else 0
    assert (users, letters, left_out) == (case.users, case.letters, case.left_out)
    if case.adds is not None:
        assert sums == case.sums
    if case.windows is not None:
        assert windows == case.windows


def _routed(case: Case, directory: Path, source: Mapping[str, Any]) -> tuple[list[Row], Counter[str], int]:
    column = {"expression": case.adds["expression"]} if isinstance(case.adds, dict) else {"field": case.adds}
    added = [{"name": "sum", "kind": "sum", "bound": 10_000, "grid": 1, **column}] if case.adds is not None else []
    sections = {
        "start": {"from": "earliest", "first_window": WINDOW},
        "clock": {"kind": "broker"},
        "columns": [{"name": "n", "kind": "count"}, *added],
        **case.sections,
    }
    services = services_of(settings(input={"topic": "raw", **case.source, **source}, **sections), sources=1)
    services.clients.ends[0] = len(case.records)  # type: ignore[attr-defined]
    records = [
        SimpleNamespace(
            topic="raw", partition=0, offset=offset, timestamp=case.stamped(offset), timestamp_type=1, key=key, headers=headers,
            value=value if value is None or isinstance(value, bytes) else json.dumps(value).encode(),
        )
        for offset, (value, key, headers) in enumerate(case.records)
    ]  # fmt: skip
    runner = Runner(RouteStage, services, directory, 0)
    runner.feed(records, len(records))
    runner.commit(now=WINDOW)
    rows = []
    for _, _, _, packed, _ in runner.to("by-user"):
        if packed is None or kind_of(packed) is Kind.TICK:
            continue
        block = by_user.decode(packed)
        columns = (block.user.tolist(), block.key.tolist(), block.window.tolist(), block.values.tolist())
        for user, key, window, row in zip(*columns, strict=True):
            text = block.keys[key].decode()
            called = json.loads(text)
            rows.append(
                Row(_plain(json.loads(block.users[user])), called if isinstance(called, str) else text, window, row)
            )
    outputs = [output for commit in runner.commits for output in commit.outputs]
    letters = Counter(decode_headers(headers).reason.name for output in outputs for headers in output.headers or ())
    left_out = runner.stage.counters["filtered"]
    runner.close()
    return rows, letters, left_out


def _plain(scalar: Any) -> Any:
    return tuple(scalar) if isinstance(scalar, list) else scalar
