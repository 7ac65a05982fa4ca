"""What a pipeline must publish, computed the slow and obvious way: dictionaries, one record at a time, every key at every trigger.

Shares the strategy's arithmetic with the product and nothing else: no blocks, no ticks, no columns, no skip index.
"""

import hashlib
import json
import zlib
from bisect import bisect_left
from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace
from datetime import date as date_type
from datetime import datetime, time, timedelta
from fractions import Fraction
from functools import partial
from typing import Any
from zoneinfo import ZoneInfo

import numpy as np

from susurrus.agents.config.settings import Settings
from susurrus.mechanisms.histogram.evidence_memory import PastRows
from susurrus.mechanisms.histogram.registry import build_strategy
from susurrus.mechanisms.histogram.strategy import Increments
from susurrus.mechanisms.histogram.user_lists import public_units
from susurrus.mechanisms.noise import NoiseSource
from susurrus.topics.records.raw import BucketField, ComputedField, Measurable
from tests.slow_bounding import Purse, list_sums
from tests.slow_memory import Numbers, SlowMemory, kappa_of

NO_LAST_LOOK: dict[str, Any] = {"unknown_share": 0.0, "public_share": 0.0}
"""Parameters of `closing` for its stream alone."""
Event = tuple[int, int, int, dict[str, Any]]
"""(raw partition, raw offset, time stamp in ms, decoded record)."""


def canonical(value: Any) -> bytes:
    """Canonical JSON."""
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False).encode()


def _value(record: dict[str, Any], field: Measurable) -> Any:
    """A measured field; a test that computes one itself puts it under the expression's text."""
    return record[field.path.expression if isinstance(field.path, ComputedField) else field.path]


def _square(distance: int, shift: int) -> int:
    """To the nearest multiple of 2^shift; halves go up."""
    return int(Fraction(distance**2, 2**shift) + Fraction(1, 2))


def expected(
    settings: Settings,
    events: Iterable[Event],
    *,
    secret: bytes,
    epoch: str,
    level: int | None = None,
    memory: "Memory | None" = None,
    read_at: Mapping[tuple[int, int], int] | None = None,
    windows: Collection[int] | None = None,
    lasted: Mapping[int, tuple[int, int]] | None = None,
    lasting: dict[int, tuple[int, int]] | None = None,
) -> dict[tuple[int, int, bytes], list[int]]:
    """(window start, trigger, key) -> measured estimates in grid units of the rows that are shown.

    memory: gets what follows from keys that are remembered.
    read_at: (raw partition, raw offset) -> the clock's time in ms, which says at which trigger of its window a record counts; None
    for clocks whose stamps are the event times, to which nothing is late.
    windows: numbers of those that are published, with or without records. The others are skipped, from the epoch's first window to
    the last. None: all that have a record, which where keys are remembered is every one from the first to the last.

    level: of a pipeline with grouping sets, the number of one. Its keys are those inside the pipeline, and no other level is there.
    lasted: by window, what its last rows say of later windows, of all levels; None: it is computed. lasting: gets what they say of
    this level.
    """
    events = list(events)
    plan, every = settings.plan(), settings.window.trigger_every
    names, declared = settings.input.key_names, set(settings.declared_keys)
    if level is not None:
        plan = plan.level_plans()[level]
        letter = "abcdefgh"[level]
        declared = {key for key in declared if json.loads(key)[0] == letter}
        names = [names[at] for at in settings.grouping[level].parts]
    columns, layout, measured_columns = plan.width, settings.layout, settings.measured_columns  # computed at every look
    late = -(-settings.window.allowed_lateness // every)  # triggers behind the end of a window
    spans: dict[int, tuple[int, int]] = {}  # window -> (start, triggers)
    for window in {_number(settings, stamp) for _, _, stamp, _ in events} if windows is None else windows:
        start, end = _bounds(settings, window)
        spans[window] = start, (end - start) // every + late
    by_trigger: dict[int, dict[int, dict[bytes, list[tuple[int, int, bytes, list[int]]]]]] = defaultdict(
        lambda: defaultdict(lambda: defaultdict(list))
    )
    for partition, offset, stamp, record in events:
        window = _number(settings, stamp)
        if window not in spans:
            continue
        read = stamp if read_at is None else read_at[partition, offset]
        trigger = (read - spans[window][0]) // every + 1
        user = canonical(record[settings.input.user])
        parts = [record[name] for name in names]
        key = canonical(parts[0] if len(parts) == 1 else parts) if level is None else canonical([letter, *parts])
        values = [
            bisect_left(field.borders[1:-1], _value(record, field))
            if isinstance(field, BucketField)
            else max(field.lowest, min(field.highest, round(_value(record, field) / field.grid)))
            for field in layout.values
        ]
        by_trigger[window][trigger][user].append((partition, offset, key, values))

    plans = b"".join(each.digest() for each in settings.plans())
    config = hashlib.blake2b(settings.config_digest() + plans, digest_size=32, person=b"susurrus-digest").digest()
    noise_source = NoiseSource(secret, epoch=bytes.fromhex(epoch), config=config, pipeline=settings.pipeline.name)
    result: dict[tuple[int, int, bytes], list[int]] = {}
    # Where windows add up: window -> its strategy and noise, and key -> closing row, for keys that somebody weighed; key -> the
    # newest window that published it.
    measured: dict[int, tuple[Any, Any, dict[bytes, tuple[float, bool]]]] = {}
    named: dict[bytes, int] = {}
    remembering = SlowMemory.of(settings, plan, declared)
    errors: dict[tuple[int, int, bytes], list[float]] = {}
    of_zero = plan
    ends = {window: start + triggers * every for window, (start, triggers) in spans.items()}
    lasting = {} if lasting is None else lasting
    if lasted is None:
        lasted = lasting
        if level is not None and settings.follows_persistence:
            lasted = lasted_of_levels(settings, events, secret=secret, epoch=epoch, read_at=read_at, windows=spans)
    for window in sorted(spans):
        start, triggers = spans[window]
        # Of the newest window that is over before this one begins.
        over = [before for before in lasted if ends[before] <= start]
        kappa = kappa_of(lasted[max(over)]) if over and settings.follows_persistence else 0
        plan = replace(of_zero.at_persistence(kappa), triggers=triggers)
        strategy: Any = build_strategy(plan)
        noise, handed_on = noise_source.window(window), remembering.handed_on.keys()
        per_key: dict[bytes, dict[bytes, int]] = defaultdict(dict)  # user -> its list: key -> kept
        purses: dict[bytes, Purse] = defaultdict(partial(Purse, strategy.bounding.ledger))
        states: dict[bytes, bytes] = {}
        ranked: dict[bytes, int] = defaultdict(int)  # user -> ranks taken
        since: dict[bytes, int] = {}  # key -> its first published trigger
        found_before: set[bytes] = set()  # of the list, what the window publishes before that enters
        lag = strategy.bounding.lag
        unit: dict[bytes, int] = {}  # key -> weight at the last trigger, of what is public then
        for trigger in range(1, plan.triggers + 1):
            enters = trigger == late + 1
            if enters:
                # The last row that made the list is of the trigger before.
                found_before = since.keys() & handed_on
                since |= dict.fromkeys(handed_on - since.keys(), late)
                if lag == triggers - late:
                    unit |= dict.fromkeys(handed_on - unit.keys(), 1 << 20)
            users: dict[bytes, int] = defaultdict(int)
            weight: dict[bytes, int] = defaultdict(int)
            sums: dict[bytes, list[int]] = defaultdict(lambda: [0] * columns)
            for user, records in by_trigger[window][trigger].items():
                seen, purse = per_key[user], purses[user]
                turn = partial(priority, secret, window, user)
                for _, _, key, values in sorted(records, key=lambda record: (turn(record[2]), *record[:2])):
                    kept = seen.get(key, 0) < plan.max_records_per_key and (
                        sum(seen.values()) < plan.max_records if purse.ledger is None else purse.pays(key, trigger)
                    )
                    if not (kept or strategy.bounding.whole_lists):
                        continue
                    listed = key not in seen
                    first = kept and seen.get(key, 0) == 0
                    seen[key] = seen.get(key, 0) + kept
                    public = lag is not None and (key in declared or since.get(key, trigger) <= trigger - lag)
                    if listed and not public:
                        rank = ranked[user]
                        ranked[user] += 1
                        table = strategy.bounding.weights
                        if table is None:
                            gained = 1 << 20
                        else:
                            gained = int(table[rank, trigger - 1]) if rank < len(table) else 0
                        weight[key] += gained
                        users[key] += gained > 0
                    if not kept:
                        continue
                    places = [place.start for place in layout.places]
                    for index, column in zip(places, measured_columns, strict=True):
                        if column.kind == "count":
                            sums[key][index] += 1
                        elif column.kind == "users":
                            sums[key][index] += first
                        elif column.kind == "cells":
                            sums[key][index + values[layout.values.index(column.field)]] += 1
                        else:
                            value = values[layout.values.index(column.field)]
                            middle = (column.field.lowest + column.field.highest) // 2
                            match type(column).__name__:
                                case "CentredSum":
                                    value -= middle
                                case "CentredSquare":
                                    value = _square(value - middle, column.shift) - column.middle
                            sums[key][index] += value
            lists = None
            if strategy.lists is not None and trigger == plan.triggers:
                lists = {key: [0, 0, 0] for seen in per_key.values() for key in seen}
                for seen in per_key.values():
                    mine = list(seen)
                    units_of_mine = [unit.get(key, (1 << 20) * (key in declared)) for key in mine]
                    weights = strategy.lists.weigh(np.array([0, len(mine)]), np.array(units_of_mine, np.int64))
                    for key, unknown, known in zip(mine, *map(np.ndarray.tolist, weights), strict=True):
                        for index, gained in enumerate((unknown > 0, unknown, known)):
                            lists[key][index] += gained
            undiscovered = declared | handed_on if enters else declared
            adds_up = strategy.evidence_windows > 1 and trigger == plan.triggers
            before = {key for *_, rows in measured.values() for key in rows} if adds_up else set()
            closing_rows: dict[bytes, tuple[float, bool]] = {}
            keys = sorted(set(states) | set(sums) | undiscovered | before)
            known = [key in states for key in keys]
            pooled: list[tuple[list[bytes], Any]] = []
            for there in (True, False):
                some = [key for key, is_known in zip(keys, known, strict=True) if is_known == there]
                if not some:
                    continue
                state = strategy.unpack([states[key] for key in some]) if there else strategy.empty(len(some))
                step = strategy.step(
                    trigger,
                    some,
                    state,
                    Increments(
                        users=np.array([users[key] for key in some], np.int64),
                        weight=np.array([weight[key] for key in some], np.int64),
                        sums=np.array([sums[key] for key in some], np.int64).reshape(len(some), plan.width),
                        lists=None
                        if lists is None
                        else list_sums(
                            some, lists, {key: unit.get(key, (1 << 20) * (key in declared)) for key in some}
                        ),
                        past=past_rows(some, window, measured, named, strategy.evidence_windows) if adds_up else None,
                    ),
                    noise,
                    np.array([key in undiscovered for key in some]),
                )
                for row, (key, packed) in enumerate(zip(some, strategy.pack(step.states), strict=True)):
                    states[key] = packed
                    if adds_up and step.published[row]:
                        named[key] = window
                    elif adds_up and step.closing.users[row]:
                        closing_rows[key] = float(step.closing.values[row]), bool(step.closing.opened[row])
                    if step.published[row]:
                        since.setdefault(key, trigger)
                        result[(start, trigger, key)] = step.estimates[row].tolist()
                        errors[(start, trigger, key)] = step.std_errors[row].tolist()
                        if strategy.lists is not None and trigger == plan.triggers - strategy.bounding.lag:
                            unit[key] = int(
                                public_units(step.estimates[row, strategy.counting[0] : strategy.counting[0] + 1])[0]
                            )
                if step.pooled_rows is not None:
                    pooled.append((some, step))
            if pooled:
                evidence = np.concatenate([step.pooled_rows.evidence for _, step in pooled])
                for some, step in pooled:
                    index, own = step.pooled_rows.index, step.pooled_rows.evidence
                    estimates, std_errors = strategy.calibrate(
                        step.estimates[index], step.std_errors[index], own, evidence
                    )
                    for row, numbers, stds in zip(index.tolist(), estimates.tolist(), std_errors.tolist(), strict=True):
                        result[(start, trigger, some[row])] = numbers
                        errors[(start, trigger, some[row])] = stds
            if adds_up:
                measured[window] = strategy, noise, closing_rows
            if settings.remember:
                rows = {key: (result[at], errors[at]) for key in states if (at := (start, trigger, key)) in result}
            if settings.remember and trigger > late:
                drawn = remembering.smoothed(rows)
                for key in (hidden := remembering.hidden(rows, drawn, found_before)):
                    del result[start, trigger, key]
                if memory is not None:
                    memory.smoothed |= {(start, trigger, key): of for key, of in drawn.items() if key not in hidden}
        if settings.remember:
            remembering.hand_on(rows, drawn)
            if of_zero.follows_persistence:
                lasting[window] = remembering.lasted
            if memory is not None:
                memory.kappas[start] = kappa
                memory.lists[start + settings.window.length] = remembering.handed_on
    return result


def priority(secret: bytes, window: int, user: bytes, key: bytes) -> int:
    """Whose record of a user and trigger comes first: the one with the smaller number, then (partition, offset)."""
    mask = (1 << 64) - 1
    own = hashlib.blake2b(secret, person=b"susurrus-order", digest_size=32).digest()
    words = hashlib.blake2b(window.to_bytes(8, "little", signed=True), key=own, digest_size=16).digest()
    mixed = _crc(user) << 32 | _crc(key)
    for at, shift, multiplier in ((0, 30, 0xBF58476D1CE4E5B9), (8, 27, 0x94D049BB133111EB)):
        mixed ^= int.from_bytes(words[at : at + 8], "little")
        mixed = (mixed ^ mixed >> shift) * multiplier & mask
    return mixed >> 32


def _crc(name: bytes) -> int:
    """CRC-32 with the end of MurmurHash3."""
    mixed = zlib.crc32(name)
    for shift, multiplier in ((16, 0x85EBCA6B), (13, 0xC2B2AE35)):
        mixed = (mixed ^ mixed >> shift) * multiplier & 0xFFFFFFFF
    return mixed ^ mixed >> 16


def past_rows(
    keys: list[bytes], window: int, measured: dict[int, tuple[Any, Any, Any]], named: dict[bytes, int], windows: int
) -> PastRows:
    """What earlier windows measured of every key, whether anybody brought it or not."""
    past = PastRows.none(len(keys), windows - 1)
    for row, key in enumerate(keys):
        for column in range(windows - 1):
            then = window - 1 - column
            if then not in measured or then <= named.get(key, -1):
                continue
            strategy, noise, rows = measured[then]
            [value] = [rows[key][0]] if key in rows else strategy.unbrought([key], noise)
            past.in_play[row, column], past.values[row, column] = True, value
            past.opened[row, column] = key in rows and rows[key][1]
            past.heights[row, column], past.variances[row, column] = strategy.look.height, strategy.look.variance
    return past


@dataclass
class Memory:
    """What follows from keys that are remembered. smoothed: (window start, trigger, key) -> measured column -> number and error, of
    rows that are shown. lists: start of a window -> key -> measured column -> what is remembered, and its error. kappas: start of a
    window -> tenths."""

    smoothed: dict[tuple[int, int, bytes], Numbers] = field(default_factory=dict)
    lists: dict[int, dict[bytes, Numbers]] = field(default_factory=dict)
    kappas: dict[int, int] = field(default_factory=dict)


def lasted_of_levels(settings: Settings, events: list[Event], **given: Any) -> dict[int, tuple[int, int]]:
    """By window, what its last rows say of later ones, in a pipeline with grouping sets: one answer of all levels. given: for
    `expected`. Each round has one window more right."""
    lasted: dict[int, tuple[int, int]] = {}
    while True:
        found: dict[int, tuple[int, int]] = {}
        for level in range(len(settings.grouping)):
            of_level: dict[int, tuple[int, int]] = {}
            expected(settings, events, level=level, lasted=lasted, lasting=of_level, **given)
            for window, (known, rows) in of_level.items():
                before = found.get(window, (0, 0))
                found[window] = before[0] + known, before[1] + rows
        if found == lasted:
            return lasted
        lasted = found


def _number(settings: Settings, stamp: int) -> int:
    """Of the window of an instant. Of calendar windows days alone."""
    if settings.window.time_zone is None:
        return (stamp - settings.window.origin) // settings.window.length
    day = datetime.fromtimestamp(stamp / 1000, ZoneInfo(settings.window.time_zone)).date()
    return (day - date_type(1970, 1, 1)).days


def _bounds(settings: Settings, number: int) -> tuple[int, int]:
    """(start, end) of a window. Of calendar windows days alone, in years without days that begin late."""
    length, zone = settings.window.length, settings.window.time_zone
    if zone is None:
        start = settings.window.origin + number * length
        return start, start + length
    there, day = ZoneInfo(zone), date_type(1970, 1, 1) + timedelta(days=number)
    start, end = (
        round(datetime.combine(date, time(), there).timestamp() * 1000) for date in (day, day + timedelta(days=1))
    )
    return start, end
