"""How much a window writes, keeps and takes: bytes by the encoders of the topics, seconds by what stages were measured to cost.

    records, as the caps leave them ──Filed──▶ counts per trigger ──encoders──▶ bytes per topic, changelog and store
    the run itself ──▶ rows, states, seconds of the mechanism on this machine

Bytes are uncompressed, of keys and values, on one replica, without Kafka's own overhead of a record batch.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from susurrus.agents.histogram import user_changes
from susurrus.agents.histogram.intervals import ordered
from susurrus.agents.histogram.settings import HistogramSettings
from susurrus.agents.planning.offline import OfflineRun
from susurrus.agents.planning.spool import Spool
from susurrus.agents.planning.workload import UserRecords
from susurrus.mechanisms.arrays import Int64s
from susurrus.mechanisms.histogram.strategy import Strategy
from susurrus.topics import bounded, by_user, changelog, histogram, progress, published_keys, tick
from susurrus.topics.wire.timestamps import format_time

ROUTE_SECONDS, BOUND_SECONDS = 0.5e-6, 0.9e-6
"""Seconds of a core for each raw record, in the stages route and bound with compiled loops: docs/performance.md, one process."""
ROW_SECONDS = 6e-6
"""Seconds of a core for each touched or published key in the stage release, beside the mechanism: decoding, packing, RocksDB."""
WORKER_RATE = 300_000
"""Raw records a second of one worker process with its broker on the same two cores: half of what docs/performance.md measured,
where records are short and simple."""
HEADROOM: Final = 2.0
"""A worker is planned for this part of its rate, so that it can catch up."""
USER_BYTES: Final = 16
"""Assumed length of a user's id as JSON: samples keep none, and a forecast prints none."""
FETCH: Final = 5_000
"""Assumed records of one raw fetch."""
ENCODED: Final = 20_000
"""Rows that are encoded to find the bytes of one."""
_DIGEST = bytes(32)
_ROLLING_BYTES: Final = sum(
    len(f'"{name}":"{format_time(0)}",') for name in ("period_start", "period_end", "counted_from", "counted_until")
)
"""By so much a row of the rolling view is longer than one of a window."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Volumes:
    """The volumes of one window.

    topics: bytes by topic. state: bytes by stage, at the window's end. busiest: records of the busiest trigger. rows: published
    rows, over all triggers. last_rows: of the last trigger. seconds: about so many of one core for the busiest trigger, by stage.
    mechanism_seconds: measured here, for the trigger that took the strategy longest. workers: processes. open_records: most
    records of one trigger in one by-user partition.
    """

    topics: Mapping[str, float]
    state: Mapping[str, float]
    busiest: float
    rows: float
    last_rows: float
    seconds: Mapping[str, float]
    mechanism_seconds: float
    workers: int
    open_records: float

    @classmethod
    def mean(cls, windows: Sequence["Volumes"]) -> "Volumes":
        """The mean of windows; the most workers."""

        def of(name: str) -> float:
            return float(np.mean([getattr(each, name) for each in windows]))

        def by(name: str) -> dict[str, float]:
            return {
                key: float(np.mean([getattr(each, name)[key] for each in windows])) for key in getattr(windows[0], name)
            }

        return cls(
            topics=by("topics"),
            state=by("state"),
            seconds=by("seconds"),
            busiest=of("busiest"),
            rows=of("rows"),
            last_rows=of("last_rows"),
            mechanism_seconds=of("mechanism_seconds"),
            open_records=of("open_records"),
            workers=max(each.workers for each in windows),
        )


class Filed:
    """Counts what each stage handles, chunk by chunk, as `spool` files the records. Users are spread evenly over partitions."""

    def __init__(self, settings: HistogramSettings, strategy: Strategy[Any]) -> None:
        self.triggers = strategy.plan.triggers
        self._partitions = settings.topics.by_user_partitions
        self._columns = len(settings.layout.values)
        self.records = np.zeros(self.triggers + 1, np.int64)
        """int64[T + 1], by trigger."""
        self.user_changes = 0
        """Times that a user has kept records at a trigger."""
        self.kept = 0
        """Kept records."""
        self.users = 0
        """Users with a kept record."""
        self.block: by_user.ByUserBlock | None = None
        self._cells: list[Int64s] = []
        self._keys = 1

    def __call__(self, records: UserRecords, trigger: npt.NDArray[np.int32], kept: npt.NDArray[np.bool_]) -> None:
        self.records += np.bincount(trigger, minlength=self.triggers + 1)
        rows = np.flatnonzero(kept)
        user, key, when = records.user[rows].astype(np.int64), records.key[rows].astype(np.int64), trigger[rows]
        # Records are in order of (user, time), so a user's rows of one trigger stand together.
        self.user_changes += int(np.count_nonzero((user[1:] != user[:-1]) | (when[1:] != when[:-1]))) + bool(len(rows))
        self.kept += len(rows)
        self.users += len(np.unique(user))
        self._keys = max(self._keys, int(key.max(initial=0)) + 1)
        cells = (when.astype(np.int64) * self._partitions + user % self._partitions) << 32 | key
        self._cells.append(np.unique(cells))
        if self.block is None and len(records.key):
            self.block = self._block(records)

    def cells(self) -> Int64s:
        """int64[n]: distinct (trigger, partition of by-user, key) of kept records."""
        return np.unique(np.concatenate(self._cells)) if self._cells else np.zeros(0, np.int64)

    def touched(self) -> Int64s:
        """int64[T + 1]: distinct keys with kept records, by trigger."""
        cells = self.cells()
        pair = np.unique((cells >> 32) // self._partitions << 32 | (cells & 0xFFFFFFFF))
        return np.bincount(pair >> 32, minlength=self.triggers + 1)

    def _block(self, records: UserRecords) -> by_user.ByUserBlock:
        """The share of one fetch that goes to one partition of by-user, with ids of assumed length."""
        some = np.argsort(records.time, kind="stable")[: FETCH : self._partitions]
        users, user = np.unique(records.user[some], return_inverse=True)
        keys, key = np.unique(records.key[some], return_inverse=True)
        self._block_keys = keys
        values = np.zeros((len(some), self._columns), np.int64)
        if records.values is not None:
            values = records.values[some]
        return by_user.ByUserBlock(
            source=0,
            offset=np.sort(np.random.default_rng(0).permutation(FETCH)[: len(some)]).astype(np.int64),
            interval=np.zeros(len(some), np.int64),
            window=np.zeros(len(some), np.int64),
            user=user.astype(np.int32),
            key=key.astype(np.int32),
            values=values,
            users=[b"%0*d" % (USER_BYTES, name) for name in users.tolist()],
            keys=[b"?"] * len(keys),
        )

    def by_user_bytes(self, names: Sequence[bytes]) -> float:
        """The bytes of one record of by-user."""
        if self.block is None:
            return 0.0
        # Distinct names of the right lengths are all that the encoder asks for.
        for at, code in enumerate(self._block_keys.tolist()):
            self.block.keys[at] = names[code]
        return by_user.size(self.block) / len(self.block)


def volumes_of(
    settings: HistogramSettings, strategy: Strategy[Any], spooled: Spool, filed: Filed, done: OfflineRun
) -> Volumes:
    """Returns the volumes of one window, after its run."""
    T, names = strategy.plan.triggers, spooled.key_names
    sources, partitions = settings.topics.by_user_partitions, settings.topics.bounded_partitions
    cells, touched = filed.cells(), filed.touched()
    row_bytes = histogram_row_bytes(settings, strategy, done, names)
    key_bytes, state_bytes = _state_bytes(strategy, done, names)
    window = len(ordered(0))
    beat = tick.encode(tick.Tick(0, 0, 0, _DIGEST))
    ticks = len(beat) * sources * partitions * T
    said = progress.encode(
        progress.Progress(
            window=0,
            trigger=T,
            of_triggers=T,
            partition=0,
            of_partitions=partitions,
            rows=done.rows[-1],
            epoch="0" * 32,
        )
    )
    # A user is named once; then it is a small number, and so is a key whose code the row has once.
    rows = len(np.unique(cells >> 32)) * (1 + window + window + user_changes.HEADER_BYTES)
    changes = rows + filed.users * (USER_BYTES + 1) + filed.user_changes + 1.5 * filed.kept + 4 * len(cells)
    touched_rows = int(touched.sum()) * (1 + window + key_bytes + 4 + state_bytes)
    record = len(changelog.encode(changelog.ChangelogRecord(0, "0" * 22))[0])
    topics = {
        "by-user": spooled.records * filed.by_user_bytes(names) + len(beat) * sources * sources * T,
        "bound-changelog": changes + record * sources * T,
        "bounded": len(cells) * _bounded_bytes(strategy, cells, names) + ticks,
        "release-changelog": touched_rows + record * partitions * T,
    }
    if strategy.feedback:
        topics["published-keys"] = _published_keys_bytes(done, names, partitions, T)
    topics |= {
        "histogram": float(sum(done.rows)) * row_bytes,
        "latest": float(sum(done.rows)) * row_bytes,
        "progress": float(sum(map(len, said)) * partitions * T),
    }
    if settings.top is not None:
        limit = settings.top.limit
        handed_on = sum(min(rows, limit * partitions) for rows in done.rows)
        topics |= {
            "candidates": handed_on * row_bytes + len(beat) * partitions * T,
            "rank-changelog": float(record * T),
            "top": sum(min(rows, limit) for rows in done.rows) * row_bytes,
        }
    kept_rows = 0.0
    if settings.window.rolling:
        kept_rows = 8.0 * strategy.plan.width * sum(done.rows) + key_bytes * done.rows[-1]
        shown = _rolling_rows(done.rows, settings.window.trigger_every, settings.calendar.windows.usual)
        topics["rolling"] = shown * (row_bytes + _ROLLING_BYTES)
        topics["release-changelog"] += kept_rows
    stored = np.count_nonzero(np.bincount(cells & 0xFFFFFFFF)) if len(cells) else 0
    busiest = int(filed.records.max())
    slowest = max(done.trigger_seconds, default=0.0)
    handled = int(touched.max(initial=0)) + max(done.rows, default=0)
    rate = busiest / (settings.window.trigger_every / 1000)
    seconds = {
        "route": busiest * ROUTE_SECONDS,
        "bound": busiest * BOUND_SECONDS,
        "release": slowest + handled * ROW_SECONDS,
    }
    busy = sum(seconds.values()) / (settings.window.trigger_every / 1000)
    return Volumes(
        topics={name: float(size) for name, size in topics.items()},
        state={
            "bound": float(changes),
            "release": float(stored * (1 + window + key_bytes + 4 + state_bytes) + 2 * kept_rows),
        },
        busiest=busiest,
        rows=float(sum(done.rows)),
        last_rows=float(done.rows[-1]),
        seconds=seconds,
        mechanism_seconds=slowest,
        workers=max(1, int(np.ceil(HEADROOM * max(rate / WORKER_RATE, busy)))),
        open_records=busiest / sources,
    )


def histogram_row_bytes(
    settings: HistogramSettings, strategy: Strategy[Any], done: OfflineRun, names: Sequence[bytes]
) -> float:
    """Mean bytes of a published row, key and value, in JSON. output.format may make them fewer."""
    shown = np.flatnonzero(done.published.known)[:ENCODED]
    if not len(shown):
        return 0.0
    start = settings.some_window
    release = histogram.TriggerHeader(
        window_start=start,
        window_end=settings.calendar.end_of(start),
        trigger=strategy.plan.triggers,
        of_triggers=strategy.plan.triggers,
        strategy=strategy.name,
        epoch="0" * 32,
    )
    columns = [
        each.rows(done.published.estimates[shown], done.published.std_errors[shown])
        for each in settings.layout.published
    ]
    keys, values = histogram.encode_rows(release, [names[code] for code in shown.tolist()], columns)
    return (sum(map(len, keys)) + sum(map(len, values))) / len(shown)


def _rolling_rows(rows: Sequence[int], every: int, length: int) -> int:
    """Rows of the rolling view over a window: of keys that the window before found before its end, and of those found now. Both
    windows are taken to be alike."""
    to_end = length // every
    found_early = max(rows[:-1], default=0)
    return sum(max(found_early, now) for now in rows[: to_end - 1]) + sum(rows[to_end - 1 : to_end])


def _state_bytes(strategy: Strategy[Any], done: OfflineRun, names: Sequence[bytes]) -> tuple[float, float]:
    """(bytes of a key's name, of its state): means over keys with data at the window's end."""
    if done.states is None:
        return 0.0, 0.0
    codes = np.flatnonzero(done.states.part >= 0)
    if len(codes) > ENCODED:
        codes = codes[:: -(-len(codes) // ENCODED)]
    if not len(codes):
        return 0.0, 0.0
    packed = strategy.pack(done.states.get(codes))
    name = sum(len(names[code]) for code in codes.tolist()) / len(codes)
    return name, sum(map(len, packed)) / len(packed)


def _bounded_bytes(strategy: Strategy[Any], cells: Int64s, names: Sequence[bytes]) -> float:
    """The bytes of a row, from one block of a usual size."""
    if not len(cells):
        return 0.0
    # Cells are sorted: those of one trigger and partition stand together.
    block = cells[(cells >> 32) == cells[len(cells) // 2] >> 32][:ENCODED]
    n, ones = len(block), np.ones(len(block), np.int64)
    some = bounded.BoundedBlock(
        partition=0,
        interval=0,
        window=np.zeros(n, np.int64),
        users=ones + np.arange(n) % 2,
        weight=(ones + np.arange(n) % 2) << 20,
        sums=np.repeat((ones + np.arange(n) % 2)[:, None], strategy.plan.width, axis=1),
        keys=[names[code] for code in (block & 0xFFFFFFFF).tolist()],
    )
    return bounded.size(some) / n


def _published_keys_bytes(done: OfflineRun, names: Sequence[bytes], partitions: int, triggers: int) -> float:
    """The bytes of all triggers: every published key once, and what every partition says at every trigger."""
    shown = np.flatnonzero(done.published.known)
    empty = published_keys.block_of(0, 0, _DIGEST, bytes(16), {}, {0: 0})
    keys = float(sum(len(names[code]) for code in shown.tolist()))
    return keys + 9.0 * len(shown) + len(published_keys.encode(empty)) * partitions * triggers
