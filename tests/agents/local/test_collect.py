"""Collect decides each report alone, in any fetch, beside any neighbours, in each format; and no report costs the others much."""

import io
import json
import random
import sys
from collections import defaultdict
from collections.abc import Callable
from datetime import datetime
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import numpy as np
import pytest

from susurrus.agents.formats.schemas import Schemas
from susurrus.agents.kafka.clients import TopicRecord
from susurrus.agents.local import collect as collect_module
from susurrus.agents.local.collect import CollectStage
from susurrus.agents.local.settings import LocalSettings
from susurrus.agents.runtime.services import Services
from susurrus.mechanisms.local.window import GRID
from susurrus.topics import report_totals as totals_codec
from susurrus.topics import threshold as threshold_codec
from susurrus.topics.dead_letter import decode_headers
from susurrus.topics.reports import encode_one
from susurrus.topics.threshold import ThresholdRecord
from susurrus.topics.wire.packing import Kind, kind_of
from tests.agents.stages import SECRET, WINDOW, MemoryClients, MemoryLedger, Runner, WallClock
from tests.golden.make_digests import other
from tests.proto import INTEGER, message_class

fastavro = pytest.importorskip("fastavro")
pytest.importorskip("google.protobuf")
pytest.importorskip("authlib")

INTERVAL = 60_000
EPSILON, BOUND = 2.0, 1000.0
Fates = tuple[dict[int, str], dict[tuple[int, int], list[int]], list[int]]
"""Reasons of dead letters by offset; totals by interval and version; reports of phase 1 by bucket."""


class Clients(MemoryClients):
    """Thresholds up to a version, each with the mark of its transaction behind it; ``readings``: how often they were read."""

    def __init__(self, versions: int) -> None:
        super().__init__({0: 0})
        self.versions, self.readings = versions, 0

    def read(self, topic: str, start: int = 0, *, group: str, complete: bool = True) -> list[TopicRecord]:
        self.readings += 1
        found = []
        for version in range(1, self.versions + 1):
            alpha = (0.0, 0.5, 1.0)[version % 3]
            threshold = ThresholdRecord(
                version=version, theta=100.0, epsilon=EPSILON, alpha=alpha, reports=1, phase1_epsilon=EPSILON, bound=BOUND
            )  # fmt: skip
            records = threshold_codec.encode(threshold)
            found += [TopicRecord(key, value, 3 * version + row) for row, (key, value) in enumerate(records)]
        return [record for record in found if record.offset >= start]


def collect(directory: Path, versions: int = 3, **source: Any) -> Runner:
    configured = other(
        "local",
        {"bound": BOUND, "epsilon": EPSILON, "interval": INTERVAL},
        topics={"by_user_partitions": 1},
        input=source,
        start={"first_window": WINDOW},
    )
    assert isinstance(configured, LocalSettings)
    services = Services(
        settings=configured,
        clients=Clients(versions),  # type: ignore[arg-type]
        ledger=MemoryLedger(configured, sources=1),  # type: ignore[arg-type]
        calendar=configured.calendar,
        config_digest=bytes(32),
        secret=SECRET,
    )
    return Runner(CollectStage, services, directory)


@pytest.fixture(autouse=True)
def clock(monkeypatch: pytest.MonkeyPatch) -> WallClock:
    clock = WallClock()
    clock.now = WINDOW + 10 * INTERVAL
    monkeypatch.setattr(collect_module, "time", clock)
    return clock


def fates(runner: Runner, payloads: list[bytes | None], ends: list[int], stamps: list[int] | None = None) -> Fates:
    """What becomes of the reports. ends: where fetches end. stamps: ms; half an interval after the start by default."""
    records = [
        SimpleNamespace(
            offset=n,
            timestamp=stamps[n] if stamps else WINDOW + INTERVAL // 2,
            timestamp_type=0,
            key=None,
            value=value,
            headers=(),
        )
        for n, value in enumerate(payloads)
    ]
    for end in ends:
        runner.feed(records, end)
    runner.commit(now=WINDOW)
    reasons: dict[int, str] = {}
    totals: dict[tuple[int, int], list[int]] = defaultdict(lambda: [0] * 5)
    first = np.zeros(totals_codec.BUCKETS, np.int64)
    for commit in runner.commits:
        for output in commit.outputs:
            letters = map(decode_headers, output.headers or [])
            reasons |= {letter.offset: letter.reason.name for letter in letters}
    for _, _, _, value, _ in runner.to("report-totals"):
        assert value is not None
        if kind_of(value) is Kind.TICK:
            continue
        block = totals_codec.decode(value)
        first += block.first_phase
        for interval, version, *numbers in zip(
            *(getattr(block, n).tolist() for n in totals_codec.COLUMNS), strict=True
        ):
            at = totals[interval, version]
            at[:] = [a + b for a, b in zip(at, numbers, strict=True)]
    runner.close()
    return reasons, dict(totals), first.tolist()


def added_up(parts: list[Fates]) -> Fates:
    """The fates of reports that were each alone, as of one log."""
    reasons: dict[int, str] = {}
    totals: dict[tuple[int, int], list[int]] = defaultdict(lambda: [0] * 5)
    first = np.zeros(totals_codec.BUCKETS, np.int64)
    for offset, (letters, counted, buckets) in enumerate(parts):
        reasons |= dict.fromkeys([offset] * len(letters), letters.get(0, ""))
        first += np.array(buckets)
        for place, numbers in counted.items():
            totals[place] = [a + b for a, b in zip(totals[place], numbers, strict=True)]
    return reasons, dict(totals), first.tolist()


FIELDS = {
    "phase": [1, 2, 2, 2, 0, 3, -1, 2**63 - 1, None],
    "threshold_version": [0, 1, 2, 2, 3, 3, 4, 2**31, 2**32 - 1, 2**32, -1, None],
    "interval": [
        WINDOW,
        WINDOW,
        WINDOW + 1,
        WINDOW + INTERVAL,
        WINDOW + 7 * 3_600_000,
        0,
        -1,
        -(2**63),
        2**63 - 1,
        None,
    ],
    "code": [0, 7, GRID - 1, GRID, GRID + 1, GRID + 2, 2**62, 2**63 - 1, -1, None],
}
USUAL = {"phase": 2, "threshold_version": 2, "interval": WINDOW, "code": 7}
SCHEMAS = {
    1: {"type": "long", "logicalType": "timestamp-millis"},
    2: {"type": "long", "logicalType": "local-timestamp-millis"},
    3: {"type": "long", "logicalType": "timestamp-micros"},
    4: "string",
    5: "double",
    6: {"type": "int", "logicalType": "date"},
    7: {"type": "bytes", "logicalType": "decimal", "precision": 30, "scale": 2},
    8: "long",
}


def schema_of(kind: Any) -> Any:
    fields = [{"name": name, "type": ["null", kind if name == "interval" else "long"]} for name in FIELDS]
    return fastavro.parse_schema({"type": "record", "name": "Report", "fields": fields})


PARSED = {number: schema_of(kind) for number, kind in SCHEMAS.items()}


def draw(dice: random.Random) -> dict[str, Any]:
    report: dict[str, Any] = {**USUAL, "phase": dice.choice([1, 2]), "threshold_version": dice.choice([0, 2, 3])}
    for name in dice.sample(list(FIELDS), dice.choice([0, 0, 0, 1, 1, 2])):
        report[name] = dice.choice(FIELDS[name])
    return report


def packed(dice: random.Random) -> bytes:
    while True:
        try:
            data = encode_one(**{name: value or 0 for name, value in draw(dice).items()})
        except (OverflowError, ValueError):
            continue
        if dice.random() < 0.3:
            at = dice.randrange(len(data) + 1)
            data = dice.choice(
                [data[:at], data[:at] + b"\xff" + data[at:], data[:at] + bytes([dice.randrange(256)]) + data[at + 1 :]]
            )
        return data


def in_json(dice: random.Random) -> bytes:
    report = draw(dice)
    if dice.random() < 0.3:
        report[dice.choice(list(FIELDS))] = dice.choice(
            [True, "2", 1.0, 2.5, -0.0, float("nan"), float("inf"), 2**64, -(2**70), [], {"a": 1}, "\ud800", 10**400]
        )
    text = json.dumps(report).encode()
    return dice.choice([text] * 8 + [text[:-1], text + text, b"\xff" + text, text.replace(b"7", b"1e309"), b"[" * 900])


def in_avro(dice: random.Random) -> bytes:
    number, report, out = dice.choice([*SCHEMAS]), draw(dice), io.BytesIO()
    kind = SCHEMAS[number]
    if isinstance(kind, dict) or kind == "long":
        # What a clock may say: an instant with and without a zone, a day, a number with a point.
        report["interval"] = dice.choice([None, 0, WINDOW, WINDOW + 1, 2**40])
    else:
        report["interval"] = {
            "string": "2026-01-01T00:00:00Z",
            "double": dice.choice([1e18, float("nan"), float("inf")]),
        }[kind]
    plain = schema_of("long" if isinstance(kind, dict) and kind["type"] == "long" else kind)
    if isinstance(kind, dict) and kind["type"] != "long":
        plain = schema_of(kind["type"])
        report["interval"] = 20_000 if kind["type"] == "int" else dice.choice([b"\0", b"\x7f" * 12])
    try:
        fastavro.schemaless_writer(out, plain, report)
    except (ValueError, OverflowError, TypeError):
        return b"\0\0\0\0\1"
    data = out.getvalue()
    return b"\0" + number.to_bytes(4, "big") + (data if dice.random() < 0.9 else data[:-1])


def in_protobuf(dice: random.Random) -> bytes:
    report = sys.modules["collect_pb2"].Report()  # type: ignore[attr-defined]
    for name, value in draw(dice).items():
        if value is not None:
            setattr(report, name, value)
    data = report.SerializeToString()
    return b"\0\0\0\0\1\0" + (data if dice.random() < 0.9 else data + b"\x0a")


WRITERS: dict[str, tuple[Callable[[random.Random], bytes], dict[str, Any]]] = {
    "json": (in_json, {}),
    "avro": (in_avro, {"format": "avro", "registry": {"url": "http://127.0.0.1:9"}}),
    "protobuf": (in_protobuf, {"format": "protobuf", "message": "collect_pb2:Report"}),
}


@pytest.fixture
def formats(monkeypatch: pytest.MonkeyPatch) -> None:
    module = ModuleType("collect_pb2")
    module.Report = message_class("collect.Report", dict.fromkeys(FIELDS, INTEGER))  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "collect_pb2", module)
    monkeypatch.setattr(Schemas, "get", lambda self, schema: PARSED[schema.value])


@pytest.mark.usefixtures("formats")
@pytest.mark.parametrize(
    "name", ["json", *(pytest.param(name, marks=pytest.mark.thorough) for name in WRITERS if name != "json")]
)
def test_a_report_has_the_fate_that_it_has_alone(name: str, tmp_path_factory: pytest.TempPathFactory) -> None:
    write, source = WRITERS[name]
    dice, reasons_seen, counted = random.Random(name), set[str](), 0
    for _ in range(4):
        payloads: list[bytes | None] = [
            dice.choice([write, write, packed, lambda dice: b"", lambda dice: None])(dice)  # type: ignore[list-item,arg-type]
            for _ in range(60)
        ]

        def run(some: list[bytes | None], ends: list[int]) -> Fates:
            return fates(collect(tmp_path_factory.mktemp("c"), **source), some, ends)

        alone = added_up([run([payload], [1]) for payload in payloads])
        assert run(payloads, [len(payloads)]) == alone
        cuts = sorted(dice.sample(range(1, len(payloads)), 5))
        assert run(payloads, [*cuts, len(payloads)]) == alone
        order = dice.sample(range(len(payloads)), len(payloads))
        reasons, *others = run([payloads[n] for n in order], [30, len(payloads)])
        assert ({order[at]: reason for at, reason in reasons.items()}, *others) == alone
        reasons_seen |= set(alone[0].values())
        counted += len(alone[1])
    assert reasons_seen >= {"NOT_A_REPORT", "WRONG_THRESHOLD", "IMPOSSIBLE_CODE"}
    assert counted > 2, "hardly a report of phase 2 was good: the comparison says little"


@pytest.mark.usefixtures("formats")
def test_a_clients_own_type_for_instants_costs_nobody_elses_report(tmp_path: Path) -> None:
    """As it was: an instant without a zone (local-timestamp-millis) stopped its partition for ever."""
    report, payloads = {**USUAL, "interval": WINDOW}, list[bytes | None]()
    for number in (1, 2, 8):
        out = io.BytesIO()
        fastavro.schemaless_writer(out, schema_of("long"), report)
        payloads.append(b"\0" + number.to_bytes(4, "big") + out.getvalue())
    assert isinstance(fastavro.schemaless_reader(io.BytesIO((payloads[1] or b"")[5:]), PARSED[2])["interval"], datetime)
    reasons, totals, _ = fates(collect(tmp_path, **WRITERS["avro"][1]), payloads, [3])
    assert reasons == {1: "NOT_A_REPORT"}
    assert {place: numbers[0] for place, numbers in totals.items()} == {(WINDOW // INTERVAL, 2): 2}


def test_reports_of_thousands_of_invented_thresholds_cost_one_reading(tmp_path: Path) -> None:
    """As it was: one for each, which took longer than the watchdog waits, and again after the restart."""
    invented = [encode_one(phase=2, threshold_version=version, interval=WINDOW, code=7) for version in range(4, 5_004)]
    payloads: list[bytes | None] = [encode_one(**USUAL), *invented, encode_one(**USUAL)]
    runner = collect(tmp_path)
    reasons, totals, _ = fates(runner, payloads, [len(payloads)])
    assert set(reasons.values()) == {"WRONG_THRESHOLD"}
    assert totals[WINDOW // INTERVAL, 2][0] == 2
    assert runner.services.clients.readings == 1  # type: ignore[attr-defined]


def test_reports_of_one_fetch_are_read_by_the_same_thresholds_whatever_their_order(tmp_path: Path) -> None:
    """As it was: the one before the last but one counted where a report before it had a smaller version than the newest."""
    old, new = (encode_one(**{**USUAL, "threshold_version": version, "code": GRID}) for version in (1, 3))
    code = encode_one(**{**USUAL, "threshold_version": 1})
    for number, payloads in enumerate([[old, new], [new, old], [code, new], [new, code]]):
        runner = collect(tmp_path / str(number), versions=1)
        runner.feed([SimpleNamespace(offset=0, timestamp=WINDOW, timestamp_type=0, key=None, value=old, headers=())], 1)
        runner.services.clients.versions = 3  # type: ignore[attr-defined]
        records = [
            SimpleNamespace(offset=n, timestamp=WINDOW, timestamp_type=0, key=None, value=value, headers=())
            for n, value in enumerate([old, *payloads])
        ]
        runner.feed(records, 3)
        assert runner.stage.counters["phase_2"] == 2, number
        runner.close()


@pytest.mark.parametrize("stamp", [WINDOW + 10**12, 2**62, 2**63 - 1])
def test_a_stamp_forged_ahead_opens_no_interval_years_ahead(tmp_path: Path, stamp: int) -> None:
    """As it was: each such interval stayed in the server's state for years, and each commit writes all of that."""
    ahead = [encode_one(**{**USUAL, "interval": WINDOW + 10**12 + n * INTERVAL}) for n in range(50)]
    near = encode_one(**{**USUAL, "interval": WINDOW + 10 * INTERVAL + 3_500_000})
    payloads: list[bytes | None] = [*ahead, near]
    reasons, totals, _ = fates(collect(tmp_path), payloads, [51], [stamp] * 51)
    assert reasons == dict.fromkeys(range(50), "IN_FUTURE")
    assert [numbers[0] for numbers in totals.values()] == [1]
