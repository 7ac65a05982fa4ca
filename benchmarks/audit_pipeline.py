"""The audit's inputs through the whole pipeline: JSON or Avro records in raw partitions, all the way to published rows.

Flow: audit_scenarios.Scenario → raw records → route → by-user → bound → bounded → release → rows, run by audit_memory.Runner.
As in a worker, bound learns from the published-keys topic which keys are published, and the ledger's own code initializes it. Most
scenarios are archives (clock `replay`); those with `live` run moment by moment under clock `broker`.
"""

import json
import struct
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from hashlib import blake2b
from io import BytesIO
from itertools import chain, product
from pathlib import Path
from tempfile import TemporaryDirectory
from types import SimpleNamespace
from typing import Any
from unittest.mock import patch

import audit_closing_defects
import fastavro
import numpy as np
from audit_memory import FETCH, Clients, MemoryLedger, Runner, WallClock
from audit_remembering import remembers_exact_counts
from audit_scenarios import REAL, SCHEMA_ID, L, QuietNoise, Scenario, build, key_name, plan_of, remembered_by_prefix
from audit_statistics import Outputs
from confluent_kafka.schema_registry import Schema, SchemaRegistryError

from susurrus.agents.config.input import InputSettings
from susurrus.agents.config.settings import Settings
from susurrus.agents.expressions import evaluation, kinds
from susurrus.agents.expressions.kinds import Kinds
from susurrus.agents.expressions.lookup import Find, LookupTable
from susurrus.agents.expressions.shared import SharedComputation
from susurrus.agents.formats import reading, waiting
from susurrus.agents.formats.avro import Avro
from susurrus.agents.histogram import route as route_module
from susurrus.agents.histogram.feedback import PublishedKeys
from susurrus.agents.histogram.route import RouteStage
from susurrus.agents.histogram.services import HistogramServices
from susurrus.agents.pipelines import settings_from
from susurrus.mechanisms.histogram.plan import Plan
from susurrus.mechanisms.histogram.record_order import RecordOrder
from susurrus.mechanisms.histogram.registry import build_strategy
from susurrus.mechanisms.histogram.user_table import UserTable
from susurrus.mechanisms.noise import NoiseSource, WindowNoise
from susurrus.topics import histogram
from susurrus.topics.by_user import ByUserBlock
from susurrus.topics.records.fields import Path as FieldPath
from susurrus.topics.records.raw import MAX_ITEMS

FIRST_WINDOW = 1_767_225_600_000
TRIGGER_MS = 60_000
PARTITIONS = 2
TABLE = "keys.csv"
SECRET = bytes.fromhex("5a" * 32)
SCHEMA = {
    "type": "record",
    "name": "Event",
    "fields": [{"name": "user", "type": "string"}, {"name": "key", "type": "string"}, {"name": "value", "type": "int"}],
}


def play_pipeline(
    scenario: Scenario, strategy: str, *, present: bool, trials: int, seed: int, defect: str = REAL
) -> Outputs:
    """Like `audit_scenarios.play`, through route, bound and release.

    With two inputs, the pipeline begins a second time: its topics are deleted, its name and secret stay.
    """
    seen = []
    for number in range(scenario.inputs):
        here = present and number == scenario.inputs - 1
        life = 2 * number + present if defect != "noise reused" else int(present)
        dice = blake2b(struct.pack("<QQ", seed, life), digest_size=16)
        name, drawn = f"audit-{int(present)}", [dice.digest()]
        if scenario.apart:
            drawn = [blake2b(dice.digest() + b"%d" % trial, digest_size=16).digest() for trial in range(trials)]
        seen.append(_run(scenario, strategy, here, 1 if scenario.apart else trials, name, drawn, defect))
    return Outputs.joined(seen)


def _run(
    scenario: Scenario, strategy: str, present: bool, trials: int, name: str, drawn: list[bytes], defect: str
) -> Outputs:
    """One pipeline for each of what epochs are drawn from, with so many trials each. They share what has no state of an epoch."""
    plan = plan_of(scenario, strategy)
    settings = settings_of(scenario, plan, name, trials)
    raw = _raw(scenario, present, trials)
    fetch = FETCH if scenario.fetch is None else scenario.fetch * trials
    pooled, runs = bool(build_strategy(plan).refined), []
    with ExitStack() as stack:
        for plant in (
            remembered_by_prefix(defect),
            _planted(defect),
            remembers_exact_counts(scenario, scenario.build(present), defect),
        ):
            stack.enter_context(plant)
        # Where the defects are planted: evaluators hold what a lookup table finds.
        computation = _computation_of(settings)
        for dice in drawn:
            clock = None if scenario.live is None else WallClock(FIRST_WINDOW)
            services = services_of(scenario, plan, settings, raw, clock, dice, defect, computation)
            runner = Runner(services, raw, defect, fetch=fetch, lasting=scenario.lasting)
            values = runner.run(FIRST_WINDOW) if clock is None else _run_live(scenario, plan, runner, clock, defect)
            runs.append(_outputs(values, trials, scenario, plan, pooled))
    return Outputs.stacked(runs)


def _run_live(scenario: Scenario, plan: Plan, runner: Runner, clock: WallClock, defect: str) -> list[bytes]:
    live = scenario.live
    assert live is not None
    with ExitStack() as stack:
        for module in (route_module, waiting):
            stack.enter_context(patch.object(module, "time", clock))
        if live.registered_at is not None:
            stack.enter_context(_registry(clock, FIRST_WINDOW + live.registered_at, defect))
        return runner.run_live(clock, FIRST_WINDOW + (plan.triggers + 1) * TRIGGER_MS)


def _computation_of(settings: Settings) -> SharedComputation:
    return SharedComputation(settings.raw_schema().scalars, settings.input.where, settings.lookup_tables)


def settings_of(scenario: Scenario, plan: Plan, name: str, trials: int) -> Settings:
    """Of a pipeline of so many trials."""
    each = scenario.keys // max(1, scenario.levels)
    names: list[Any] = [key_name(trial, key) for trial in range(trials) for key in range(each)]
    length, lateness = f"{plan.triggers - scenario.late}m", f"{scenario.late}m"
    clock: dict[str, Any] = {"kind": "replay", "until": f"2026-01-01T00:{plan.triggers * scenario.windows:02d}:00Z"}
    source: dict[str, Any] = {"topics": topic_names(scenario), "user": "user", "key": ["key"]}
    item = ""
    if scenario.levels:
        levels = scenario.level_names
        source |= {
            "key": [{"name": level, "expression": "key"} for level in levels],
            "grouping_sets": [[level] for level in levels],
        }
        names = [[name] * len(levels) for name in names]
    if scenario.items:
        source |= {"each": {"of": "items", "as": "item"}, "key": ["item.key"]}
        item = "item."
    if scenario.table:
        source |= {"key": [{"name": "key", "expression": f"lookup('{TABLE}', key)"}], "null_key": "dead-letter"}
    if scenario.live is not None:
        clock = {"kind": "broker", "grace": scenario.live.grace, "idle_grace": scenario.live.idle_grace}
        if scenario.live.registered_at is not None:
            source |= {"format": Avro.name, "registry": {"url": "http://none:1"}}
    if scenario.fields:
        read = ", ".join(f"f{number}" for number in range(scenario.fields))
        source["where"] = f"f0 = 'x' AND concat({read}) IS NOT NULL"
    partitions = _partitions(scenario)
    limits = {"lower": 0, "upper": 2 * L} if scenario.centred else {"bound": L}
    columns: list[dict[str, Any]] = [
        {"name": column.name, "kind": column.kind}
        if column.kind != "sum"
        else {"name": column.name, "kind": "sum", "field": f"{item}value", "grid": 1, **limits}
        for column in plan.columns
    ]
    bounds: dict[str, Any] = {"max_records_per_user": plan.max_records, "max_records_per_key": plan.max_records_per_key}
    if plan.max_keys is not None:
        bounds["max_keys_per_user"] = plan.max_keys
    tables: dict[str, Any] = {
        "pipeline": {"name": name},
        "kafka": {"bootstrap_servers": "none:1"},
        "input": source,
        "start": {"from": "earliest", "first_window": "2026-01-01T00:00:00Z"},
        "clock": clock,
        "window": {
            "length": length,
            "trigger_every": "1m",
            "origin": "2026-01-01T00:00:00Z",
            "allowed_lateness": lateness,
        },
        "bounds": bounds,
        "columns": columns,
        "keys": {"declared": names if scenario.declared else []},
        # The plan is what counts.
        "privacy": {"epsilon": 1.0, "delta": 1e-6, "strategy": plan.strategy},
        "topics": {"by_user_partitions": partitions, "bounded_partitions": partitions},
    }
    if scenario.remember is not None:
        tables["keys"]["remember"] = scenario.remember
    with TemporaryDirectory() as directory:
        if scenario.table:
            rows = [f"{name},{name}\n" for name in names]
            (Path(directory) / TABLE).write_text("".join(["code,key\n", *rows]), encoding="utf-8")
        return settings_from(tables, directory=Path(directory), environ={"SUSURRUS_SECRET": SECRET.hex()})


def topic_names(scenario: Scenario) -> list[str]:
    """The raw topics."""
    return ["raw", *(f"raw-{number}" for number in range(1, scenario.topics))]


def _partitions(scenario: Scenario) -> int:
    return 1 if scenario.lasting else PARTITIONS


def services_of(
    scenario: Scenario,
    plan: Plan,
    settings: Settings,
    raw: list[list[SimpleNamespace]],
    clock: WallClock | None,
    dice: bytes,
    defect: str,
    computation: SharedComputation | None = None,
) -> HistogramServices:
    """What the stages of a pipeline need; dice: what its epoch is drawn from. computation: of these settings, made before."""
    grows_at = scenario.live.grows_at if scenario.live is not None else None
    clients = Clients(
        raw,
        clock=clock,
        grows_at=None if grows_at is None else FIRST_WINDOW + grows_at,
        topics=topic_names(scenario),
    )
    calendar = settings.calendar
    ledger = MemoryLedger(
        settings,
        clients,  # type: ignore[arg-type]
        calendar,
        config_digest=plan.digest(),
        secret=SECRET,
        initializer=("release", 0),
        way_out="",
        published_before=str,
    )
    if defect == "epoch by name":
        dice = blake2b(settings.pipeline.name.encode(), digest_size=16).digest()
    with patch("os.urandom", lambda size: dice[:size]):
        ledger.found()
    strategy = build(plan, defect)
    if not scenario.apart:
        audit_closing_defects.show_evidence(strategy)
    index = None
    if strategy.lag is not None:
        index = PublishedKeys(
            settings.topic("published-keys"),
            partitions=_partitions(scenario),
            calendar=calendar,
            config_digest=plan.digest(),
        )
        index.epoch = bytes.fromhex(ledger.epoch)
    return HistogramServices(
        settings=settings,
        clients=clients,  # type: ignore[arg-type]
        ledger=ledger,
        calendar=calendar,
        config_digest=plan.digest(),
        secret=SECRET,
        strategy=strategy,
        computation=_computation_of(settings) if computation is None else computation,
        published_keys=index,
    )


@contextmanager
def _planted(defect: str) -> Iterator[None]:
    """Plants the defects of the stages. Those of mechanisms are in the definition, which takes the compiled table's place."""
    with ExitStack() as stack:
        if defect != REAL:
            stack.enter_context(patch("susurrus.agents.histogram.user_state.user_table", UserTable))
        if defect == "by-user order":
            stack.enter_context(
                patch.object(RecordOrder, "priorities", lambda _order, _window, user, key: np.zeros_like(key))
            )
            stack.enter_context(
                patch("susurrus.agents.histogram.interval_records.sorted", _sorts_no_blocks, create=True)
            )
        if defect == "noise scale":
            real = NoiseSource.window

            def quiet(source: NoiseSource, window: int) -> WindowNoise:
                return QuietNoise(real(source, window))

            stack.enter_context(patch.object(NoiseSource, "window", quiet))
        if defect == "kinds in one number":
            stack.enter_context(patch.object(evaluation, "groups", _grouped_by_one_number))
        if defect == "lookup remembers":
            stack.enter_context(patch.object(LookupTable, "finder", _remembers))
        for name, adds in (("items as one", _adds_items_up), ("caps for each topic", _adds_users_of_a_topic)):
            if defect == name:
                stack.enter_context(patch.object(RouteStage, "_add", adds))
                stack.enter_context(patch.object(RouteStage, "_without_over_cap", lambda route, rows, *columns: rows))
        if defect == "growth at a tick":
            stack.enter_context(patch.object(RouteStage, "_look_for_growth", _looks_when_it_ticks))
        yield


def _sorts_no_blocks(items: Iterable[Any], *, key: Callable[[Any], Any] | None = None) -> list[Any]:
    """The planted defect: blocks stay in log order. They are what the module sorts by a key; windows are sorted as ever."""
    return sorted(items) if key is None else list(items)


def _grouped_by_one_number(columns: Any, rows: int, reasons: Any, longest: int) -> list[tuple[Kinds, Any]]:
    """The planted defect: kinds are hexadecimal digits of 64 bits, unless those of all records are equal."""
    found = kinds.groups(columns, rows, reasons, longest)
    if len(found) == 1:
        return found
    packed = [
        (sum(kind << 4 * place for place, kind in enumerate(reversed(one))) % 2**64, group) for one, group in found
    ]
    return [
        (tuple(number >> 4 * place & 15 for place in reversed(range(len(columns)))), group) for number, group in packed
    ]


_finder = LookupTable.finder


def _remembers(table: LookupTable, column: str | None) -> Find:
    """The planted defect: what is found stays for keys that the table has not."""
    find, last = _finder(table, column), [None]

    def find_or_last(key: str | None) -> str | None:
        found = find(key)
        last[0] = last[0] if found is None else found
        return last[0]

    return find_or_last


_add = RouteStage._add


def _adds_items_up(route: RouteStage, block: ByUserBlock, rows: Any, partitions: Any) -> None:
    """The planted defect: the items of one record and key are one row, with the sum of their values."""
    of = np.stack([block.offset[rows] // MAX_ITEMS, block.user[rows], block.key[rows]])
    _, first, row_of = np.unique(of, axis=1, return_index=True, return_inverse=True)
    values = np.zeros_like(block.values)
    np.add.at(values, rows[first][row_of.ravel()], block.values[rows])
    _add(route, replace(block, values=values), np.sort(rows[first]), partitions)


def _adds_users_of_a_topic(route: RouteStage, block: ByUserBlock, rows: Any, partitions: Any) -> None:
    """The planted defect: what a user has in another topic is another user's, so each topic has caps of its own."""
    users = [b"%s@%d" % (user, route.partition) for user in block.users]
    _add(route, replace(block, users=users), rows, partitions)


def _looks_when_it_ticks(route: RouteStage, now: int) -> None:
    """The planted defect: source 0 looks for partitions when it ticks, and a record decides when that is."""
    growth, interval = route._growth, route._clock.closed
    if growth is None or interval <= growth.looked:
        return
    growth.looked = interval
    found = growth.saw({route._topic: route.services.clients.partitions(route._topic)}, interval)
    for grown in found:
        route._announce(grown, {})


class Registry:
    """A schema registry with one schema, which it knows from a moment on."""

    def __init__(self, clock: WallClock, registered_at: int) -> None:
        self._clock, self._registered_at = clock, registered_at

    def get_schema(self, schema_id: int, *_: Any, **__: Any) -> Schema:
        if schema_id != SCHEMA_ID or self._clock.now < self._registered_at:
            raise SchemaRegistryError(404, 40403, "Schema not found")
        return Schema(json.dumps(SCHEMA), "AVRO")


class Grudges(dict[int, Any]):
    """The planted defect: an id that was unknown once stays unknown."""

    def clear(self) -> None: ...


@contextmanager
def _registry(clock: WallClock, registered_at: int, defect: str) -> Iterator[None]:
    grudges = Grudges()

    def decoder_of(source: InputSettings, paths: list[FieldPath]) -> Avro:
        assert source.registry is not None
        decoder = Avro(paths, source.registry)
        assert decoder.schemas is not None
        decoder.schemas._client = Registry(clock, registered_at)
        if defect == "unknown id kept":
            decoder.schemas._waiting = grudges
        return decoder

    with patch.object(reading, "decoder_of", decoder_of):
        yield


def _outputs(values: list[bytes], trials: int, scenario: Scenario, plan: Plan, pooled: bool) -> Outputs:
    keys, levels = scenario.keys, scenario.level_names
    names = [column.name for column in plan.columns]
    triggers = plan.triggers * scenario.windows
    published = np.zeros((trials, keys, triggers), np.bool_)
    estimates = np.zeros((trials, keys, len(names), triggers))
    evidence, calibrated = np.zeros((trials, keys, len(names), scenario.windows)), np.zeros(trials, np.bool_)
    each = keys // max(1, len(levels))
    for value in values:
        row = histogram.decode_row(value)
        window = (row.window - FIRST_WINDOW) // (plan.triggers * TRIGGER_MS)
        if window >= scenario.windows:
            continue
        at = window * plan.triggers + row.trigger - 1
        number = levels.index(row.level) if row.level is not None else 0
        trial, *_, key = str(row.key[number] if levels else row.key).split("/")
        place = int(trial), number * each + int(key)
        published[*place, at] = True
        for number, name in enumerate(names):
            column = row.values[name]
            direct = column if column.direct is None else column.direct
            estimates[*place, number, at] = direct.estimate
            if column.direct is not None:
                evidence[*place, number, window] = column.estimate / audit_closing_defects.EVIDENCE
                calibrated[int(trial)] |= column.estimate != direct.estimate
    # Every column counts as keys of its own: one row of numbers a trial.
    return Outputs(
        published=published,
        estimates=estimates.reshape(trials, keys * len(names), triggers),
        evidence=evidence.reshape(trials, -1) if pooled else None,
        calibrated=calibrated if pooled else None,
    )


def _raw(scenario: Scenario, present: bool, trials: int) -> list[list[SimpleNamespace]]:
    """Raw partitions of all trials, sorted by time; at equal times the audited users' records come first.

    With fields or a table, a trial's records stand beside each other: an expression evaluates some thousand records of a fetch at
    once.
    """
    given = scenario.build(present)
    sources = 1 + max([*scenario.build(True).source, *scenario.build(False).source, 0])
    stamps = given.stamp or [(trigger - 1) * TRIGGER_MS for trigger in given.trigger]
    order = np.lexsort((np.asarray(given.user) != 0, stamps))
    logs: list[list[SimpleNamespace]] = [[] for _ in range(sources)]
    rows: list[int] = order.tolist()
    every = (
        product(range(trials), rows)
        if scenario.fields or scenario.table
        else ((trial, row) for row in rows for trial in range(trials))
    )
    together: dict[tuple[int, int, int, int], list[dict[str, Any]]] = {}
    """The items of the records that there are, by trial, source, user and time."""
    for trial, row in every:
        log = logs[given.source[row]]
        schema = None if given.schema is None else given.schema[row]
        event: dict[str, Any] = {
            "user": f"{trial}.{given.user[row]}",
            "key": key_name(trial, given.key[row]),
            "value": 2 * L if scenario.centred else L,
        }
        if scenario.items:
            item = {"key": event.pop("key"), "value": event.pop("value")}
            record = (trial, given.source[row], given.user[row], stamps[row])
            if record in together:
                together[record].append(item)
                continue
            event["items"] = together[record] = [item]
        for number in range(scenario.fields):
            event[f"f{number}"] = "x" if given.user[row] or number < scenario.fields - 1 else 1
        log.append(
            SimpleNamespace(
                offset=len(log),
                timestamp=FIRST_WINDOW + stamps[row],
                timestamp_type=0 if scenario.live is None else 1,
                key=None,
                headers=(),
                value=event
                if scenario.items
                else json.dumps(event).encode()
                if schema is None
                else _avro(schema, event),
            )
        )
    if scenario.items:  # all of them are known now
        for record in chain.from_iterable(logs):
            record.value = json.dumps(record.value).encode()
    return logs


_PARSED = fastavro.parse_schema(SCHEMA)


def _avro(schema_id: int, event: dict[str, Any]) -> bytes:
    data = BytesIO()
    fastavro.schemaless_writer(data, _PARSED, event)
    return b"\0" + schema_id.to_bytes(4, "big") + data.getvalue()
