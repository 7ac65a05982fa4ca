"""release: bounded -> histogram, latest, progress, published-keys.  Key: the GROUP BY key.  State: per (window, key) exact totals.

When every by-user partition has closed an interval, each open window has a trigger:
- The keys with news, the keys that are due and the published keys go through the strategy.
- What is published is written in key order.
- Progress says that the trigger is complete, also when it is empty.
A chain of digests over the exact input guards against publishing twice from different data.

State keys:
- ``s`` window key -> due trigger and state of an unpublished key;
- ``d`` window trigger key -> nothing: the index of what is due;
- ``p`` window key -> state of a published key;
- ``c`` window -> digest chain;
- ``w`` window key -> unit of a key that is public at the last trigger, for strategies that need the users' lists;
- those of intervals.py.
"""

import logging
from collections.abc import Iterator
from hashlib import blake2b
from typing import Any

import numpy as np
import numpy.typing as npt

from susurrus.agents.histogram.interval_stage import IntervalStage
from susurrus.agents.histogram.intervals import ordered
from susurrus.agents.histogram.services import HistogramServices
from susurrus.agents.histogram.table import Gathered, Rows, chain_key, gather, input_digest
from susurrus.agents.kafka.offset import Offset
from susurrus.agents.runtime.commit import Commit, Output
from susurrus.agents.runtime.stage import NotYet
from susurrus.agents.runtime.store import Store, prefix_end
from susurrus.mechanisms.calendar import Interval, Trigger, WindowIndex, WindowStart
from susurrus.mechanisms.errors import Refusal, ReplayMismatch
from susurrus.mechanisms.histogram.bounding import WEIGHT_ONE
from susurrus.mechanisms.histogram.strategy import Increments, Need
from susurrus.mechanisms.histogram.user_lists import ListSums
from susurrus.mechanisms.noise import NoiseSource, WindowNoise
from susurrus.topics import bounded as bounded_codec
from susurrus.topics import histogram as histogram_codec
from susurrus.topics import ledger as ledger_codec
from susurrus.topics import progress as progress_codec
from susurrus.topics import published_keys as published_keys_codec
from susurrus.topics.bounded import LIST_COLUMNS, BoundedBlock
from susurrus.topics.partitioner import partition as partition_of
from susurrus.topics.timestamps import format_time

log = logging.getLogger(__name__)

_STATE, _DUE, _PUBLISHED, _CHAIN, _UNITS = b"s", b"d", b"p", b"c", b"w"
_TRIGGER_BYTES = 4
_CHUNK = 50_000
_DIGESTS_KEPT_WINDOWS = 32
"""A replay of older windows is refused by the lost changelog alone (Ledger.check_started)."""


class Release(IntervalStage[BoundedBlock]):
    """One bounded partition."""

    name, input, source = "release", "bounded", "bound"
    counted = ("triggers", "rows")
    encode, decode = staticmethod(bounded_codec.encode), staticmethod(bounded_codec.decode)

    services: HistogramServices

    def __init__(self, services: HistogramServices, partition: int) -> None:
        super().__init__(services, partition)
        settings = services.settings
        self._strategy = services.strategy
        self._triggers = services.calendar.triggers
        self._pad = settings.window.publication_pad
        self._live = settings.clock.chosen.live
        self._published = settings.layout.published
        declared = settings.declared_keys
        targets = partition_of(declared, settings.topics.bounded_partitions).tolist()
        self._declared = [key for key, target in zip(declared, targets, strict=True) if target == partition]
        self._declared_set = frozenset(self._declared)
        self._noise: NoiseSource
        self._chain_key = b""
        self._ahead: progress_codec.Progress | None = None
        """What was public at the last start, though the state did not know it."""
        self._window_noise: dict[WindowIndex, WindowNoise] = {}
        self._published_digests: dict[tuple[WindowStart, Trigger], str] = {}
        self._charged: set[WindowIndex] = set()
        self._charges_sent: set[WindowIndex] = set()
        """Windows whose charge is committed but not read back yet."""

    # ---- input -------------------------------------------------------------------------------------------------------

    def first_sources(self) -> int:
        """The by-user partitions, whose number never changes."""
        return self.services.settings.topics.by_user_partitions

    def begin(self, start: Offset) -> tuple[dict[str, Any], Offset]:
        """As every stage of intervals; no window is charged."""
        meta, position = super().begin(start)
        return {**meta, "charges_sent": []}, position

    def resume(self, store: Store, meta: dict[str, Any], position: Offset) -> None:
        """The intervals, and what the ledger and the public topics say has been published. Raises as below."""
        super().resume(store, meta, position)
        services = self.services
        self._chain_key = chain_key(services.secret, bytes.fromhex(services.ledger.epoch))
        self._noise = services.noise_source()
        self._window_noise = {}
        self._published_digests = services.ledger.digests(self.partition)
        self._charges_sent = set(map(WindowIndex, meta["charges_sent"]))
        self._compare_with_public()

    def _compare_with_public(self) -> None:
        """Refuse to go on from a state that is older than what has been published: an older copy was put back.

        Progress is written in the transaction that closes its interval. So a state has all that was published before its owner
        fenced the owners before it. Another owner may have published since then. So the first time that a record is ahead, the
        task starts again and fences that owner: raises NotYet. Raises Refusal where the same record is still ahead after that.
        """
        public, ledger = self.services.public_progress, self.services.ledger
        if public is None:
            return
        public.refresh()
        said = public.ahead(
            self.partition, epoch=ledger.epoch, number=ledger.epoch_number, closed=self._intervals.closed
        )
        seen_before, self._ahead = self._ahead, said
        if said is None:
            return
        if said != seen_before:
            raise NotYet("more is public than the state knows; the changelog is read again")
        reached = format_time(self._calendar.boundary(self._intervals.closed))
        raise Refusal(
            f"stage=release partition={self.partition} knows epoch={ledger.epoch_number} up to {reached}, but topic={public.topic} "
            f"shows trigger={said.trigger} of window={format_time(said.window)} in epoch={said.epoch_number}, so internal topics "
            "are an older copy, and the same noise would be published over other data: restore them as they were at the last "
            f"commit, or {ledger.way_out}"
        )

    def take_block(self, block: BoundedBlock, offset: Offset, size: int) -> None:
        """Increments of one interval."""
        self._incoming.record(block.partition, offset)
        self._intervals.add(Interval(block.interval), block, len(block), offset, size)

    # ---- output ------------------------------------------------------------------------------------------------------

    def commits(self, now: int) -> Iterator[Commit]:
        """One commit per closed interval, because every interval has its own public results."""
        self._waiting = ""
        while (ready := self._ready) > self._intervals.closed:
            interval = Interval(self._intervals.closed + 1)
            if self._live and now < self._calendar.boundary(interval) + self._pad:
                self._waiting = f"interval={interval} is published at its boundary + publication_pad"
                break
            windows = [w for w in self._calendar.open_windows(interval) if w >= self.services.ledger.first_window]
            if not windows and self._intervals.next_with_rows(ready) is None and not self._intervals.spilled:
                interval = min(ready, max(interval, Interval(self._first_interval - 1)))
            uncharged = next((w for w in windows if not self._is_charged(w)), None)
            if uncharged is not None:
                if self.partition != 0:
                    self._waiting = "waiting for release-0 to charge the window"
                    break
                if uncharged in self._charges_sent:
                    # Committed, but some pipeline's open transaction still hides it: a second charge would count twice.
                    self._waiting = "waiting for the window's charge to appear in the log of charges"
                    break
                yield self._charge(uncharged)
                continue
            yield self._close(interval, windows)
        if self._intervals.outgrows(self._max_rows):
            yield self._spill()

    def _is_charged(self, window: WindowIndex) -> bool:
        if window not in self._charged and self.services.ledger.is_charged(self._calendar.window_start(window)):
            self._charged.add(window)
            self._charges_sent.discard(window)
        return window in self._charged

    def _charge(self, window: WindowIndex) -> Commit:
        """Charge a window, before anything of it is published. The order of the log of charges decides what the budget allows."""
        output = self.services.ledger.charge_output(self._calendar.window_start(window), self._strategy.guarantee)
        self._charges_sent.add(window)
        return Commit(*self._claim(), outputs=[output])

    def _meta(self, position: Offset) -> dict[str, Any]:
        return {**super()._meta(position), "charges_sent": sorted(self._charges_sent)}

    def _close(self, interval: Interval, windows: list[WindowIndex]) -> Commit:
        blocks, drops = self._intervals.take(interval)
        news = gather(blocks, len(self._strategy.plan.columns))
        commit = Commit(position=self._taken, meta={}, drops=drops)
        published: dict[WindowStart, Rows] = {}
        for window in windows:
            start = self._calendar.window_start(window)
            published[start] = self._trigger(window, interval, news.get(start), commit)
        if Need.PUBLISHED_KEYS in self._strategy.needs:
            units = self._new_units(interval, published, commit)
            commit.outputs.append(self._published_keys(interval, published, units))
        self._intervals.close(interval)
        commit.position, commit.meta = self._claim()
        return commit

    def _new_units(
        self, interval: Interval, published: dict[WindowStart, Rows], commit: Commit
    ) -> dict[WindowStart, dict[bytes, int]]:
        """Window start -> unit by key, of windows whose last trigger looks back at this interval; stored for that trigger."""
        lists, lag = self._strategy.lists, self._strategy.bounding.lag
        if lists is None or lag is None:
            return {}
        known = {}
        for start, rows in published.items():
            window = self._calendar.window_at(start)
            if self._calendar.trigger(window, interval) != self._triggers - lag:
                continue
            keys, estimates, _ = rows.sorted()
            found = lists.row_units(estimates).tolist()
            known[start] = dict(zip(keys, found, strict=True))
            prefix = _UNITS + ordered(window)
            commit.puts += [(prefix + key, unit.to_bytes(4, "little")) for key, unit in known[start].items()]
        return known

    def _published_keys(
        self, interval: Interval, published: dict[WindowStart, Rows], units: dict[WindowStart, dict[bytes, int]]
    ) -> Output:
        """The feedback to bound: this interval's new keys, how many there are in all, and that the interval is complete."""
        services = self.services
        block = published_keys_codec.block_of(
            self.partition,
            interval,
            services.config_digest,
            bytes.fromhex(services.ledger.epoch),
            {start: rows.first for start, rows in published.items()},
            {start: len(rows) for start, rows in published.items()},
            units,
        )
        pieces = published_keys_codec.split(block, services.max_record_bytes)
        values = [{"value": published_keys_codec.encode(piece)} for piece in pieces]
        return Output(services.topic("published-keys"), 0, values)

    # ---- one trigger of one window -----------------------------------------------------------------------------------

    def _trigger(self, window: WindowIndex, interval: Interval, news: Gathered | None, commit: Commit) -> Rows:
        trigger = self._calendar.trigger(window, interval)
        start = self._calendar.window_start(window)
        # Kept for the window: it remembers the noise of published keys.
        noise = self._window_noise.setdefault(window, self._noise.window(window))
        rows = Rows(len(self._strategy.plan.columns))
        pending = dict.fromkeys(news.keys) if news is not None else {}

        # 1. Published keys come first: they are in key order in the store, in chunks, with or without news.
        prefix = _PUBLISHED + ordered(window)
        for items in self._store.scan_chunks(prefix, prefix_end(prefix), _CHUNK):
            keys = [key[len(prefix) :] for key, _ in items]
            for key in keys:
                pending.pop(key, None)
            self._step(
                window, trigger, keys, self._strategy.unpack([v for _, v in items]), news, noise, rows, commit, {}
            )

        # 2. Then unpublished keys with news, declared keys that have not appeared yet, and keys that are due without news.
        if trigger == 1:
            for key in self._declared:
                pending.setdefault(key)
        due_prefix = _DUE + ordered(window)
        due_end = due_prefix + (trigger + 1).to_bytes(_TRIGGER_BYTES, "big")
        for key, _ in self._store.scan(due_prefix, due_end):
            pending.setdefault(key[len(due_prefix) + _TRIGGER_BYTES :])
        unpublished = sorted(pending)
        state_prefix = _STATE + ordered(window)
        for at in range(0, len(unpublished), _CHUNK):
            keys = unpublished[at : at + _CHUNK]
            stored = self._store.get([state_prefix + key for key in keys])
            known = [i for i, row in enumerate(stored) if row is not None]
            fresh = [i for i, row in enumerate(stored) if row is None]
            dues = {keys[i]: int.from_bytes((stored[i] or b"")[:_TRIGGER_BYTES], "big") for i in known}
            if known:
                states = self._strategy.unpack([(stored[i] or b"")[_TRIGGER_BYTES:] for i in known])
                self._step(window, trigger, [keys[i] for i in known], states, news, noise, rows, commit, dues)
            if fresh:
                states = self._strategy.empty(len(fresh))
                self._step(window, trigger, [keys[i] for i in fresh], states, news, noise, rows, commit, None)

        self._publish(window, trigger, start, news, rows, commit)
        if trigger == self._triggers:
            del self._window_noise[window]
            for table in (_STATE, _DUE, _PUBLISHED, _UNITS):
                commit.drop(table + ordered(window), table + ordered(WindowIndex(window + 1)))
        return rows

    def _step(
        self,
        window: WindowIndex,
        trigger: Trigger,
        keys: list[bytes],
        states: Any,
        news: Gathered | None,
        noise: Any,
        rows: Rows,
        commit: Commit,
        dues: dict[bytes, int] | None,
    ) -> None:
        """One call of the strategy, and what it does to the tables.

        dues: where unpublished keys stand in the index; None for keys never seen; empty for published keys.
        """
        increments = self._increments(window, trigger, keys, news)
        declared = np.fromiter((key in self._declared_set for key in keys), np.bool_, len(keys))
        was_published = dues is not None and not dues
        step = self._strategy.step(trigger, keys, states, increments, noise, declared)
        rows.add(keys, step.published, step.estimates, step.std_errors, first=not was_published)
        packed = self._strategy.pack(step.states)
        table = ordered(window)
        if was_published:
            for i in np.flatnonzero(step.changed).tolist():
                commit.puts.append((_PUBLISHED + table + keys[i], packed[i]))
            return
        due_now = step.due.tolist()
        changed = step.changed.tolist()
        for i, key in enumerate(keys):
            due_before = (dues or {}).get(key)
            due = due_now[i]
            if due_before is not None and due_before != due and due_before <= self._triggers:
                commit.deletes.append(_DUE + table + due_before.to_bytes(_TRIGGER_BYTES, "big") + key)
            if due == 0:
                commit.puts.append((_PUBLISHED + table + key, packed[i]))
                if due_before is not None:
                    commit.deletes.append(_STATE + table + key)
                continue
            if due_before != due and due <= self._triggers:
                commit.puts.append((_DUE + table + due.to_bytes(_TRIGGER_BYTES, "big") + key, b""))
            if changed[i] or due_before != due:
                commit.puts.append((_STATE + table + key, due.to_bytes(_TRIGGER_BYTES, "big") + packed[i]))

    def _increments(
        self, window: WindowIndex, trigger: Trigger, keys: list[bytes], news: Gathered | None
    ) -> Increments:
        columns = len(self._strategy.plan.columns)
        users, weight = np.zeros(len(keys), np.int64), np.zeros(len(keys), np.int64)
        sums, lists = np.zeros((len(keys), columns), np.int64), np.zeros((len(keys), LIST_COLUMNS), np.int64)
        if news is not None:
            at = np.fromiter((news.index.get(key, -1) for key in keys), np.int64, len(keys))
            touched = at >= 0
            users[touched], weight[touched] = news.users[at[touched]], news.weight[at[touched]]
            sums[touched] = news.sums[at[touched]]
            if news.lists is not None:
                lists[touched] = news.lists[at[touched]]
        measured = trigger == self._triggers and self._strategy.lists is not None
        return Increments(
            users=users,
            weight=weight,
            sums=sums,
            lists=ListSums.of(lists, self._units(window, keys)) if measured else None,
        )

    def _units(self, window: WindowIndex, keys: list[bytes]) -> npt.NDArray[np.int64]:
        """int64[n]: the units of these keys that trigger T - lag made known; 0: not public then."""
        prefix = _UNITS + ordered(window)
        stored = self._store.get([prefix + key for key in keys])
        declared = [WEIGHT_ONE if key in self._declared_set else 0 for key in keys]
        unit = [
            public if row is None else int.from_bytes(row, "little")
            for row, public in zip(stored, declared, strict=True)
        ]
        return np.array(unit, np.int64)

    def _publish(
        self,
        window: WindowIndex,
        trigger: Trigger,
        start: WindowStart,
        news: Gathered | None,
        rows: Rows,
        commit: Commit,
    ) -> None:
        services = self.services
        place = _CHAIN + ordered(window)
        previous = (self._store.get_one(place) or b"") if trigger > 1 else b""
        of_input = input_digest(news, self._chain_key)
        digest = blake2b(
            b"".join((previous.ljust(32, b"\0"), services.config_digest, ordered(trigger), of_input)),
            digest_size=32,
            key=self._chain_key,
        ).digest()
        if trigger < self._triggers:
            commit.puts.append((place, digest))
        else:
            commit.drops.append((place, place + b"\0"))
        published = self._published_digests.get((start, trigger))
        if published is not None:
            if published != digest.hex():
                raise ReplayMismatch(
                    f"trigger={trigger} of window={start} was published from different data, and the same noise must never "
                    "cover two inputs: restore the raw topic and the internal topics as they were at the last commit, or "
                    f"{services.ledger.way_out}"
                )
            return
        keys, estimates, std_errors = rows.sorted()
        # Public records carry the trigger's time: the producer's own would show how long the exact input took to handle.
        stamp = self._calendar.boundary(self._calendar.interval_of(window, trigger))
        if keys:
            release = histogram_codec.Release(
                window_start=start,
                window_end=start + self._calendar.window,
                trigger=trigger,
                of_triggers=self._triggers,
                strategy=self._strategy.plan.strategy,
                epoch=services.ledger.epoch,
            )
            columns = [column.rows(estimates, std_errors) for column in self._published]
            encoded_keys, values = histogram_codec.encode_rows(release, keys, columns)
            for topic in ("histogram", "latest"):
                messages = [
                    {"key": key, "value": value, "timestamp": stamp}
                    for key, value in zip(encoded_keys, values, strict=True)
                ]
                commit.outputs.append(Output(services.topic(topic), self.partition, messages))
        key, value = progress_codec.encode(
            progress_codec.Progress(
                window=start,
                trigger=trigger,
                of_triggers=self._triggers,
                partition=self.partition,
                of_partitions=services.settings.topics.bounded_partitions,
                rows=len(keys),
                epoch=services.ledger.epoch,
                epoch_number=services.ledger.epoch_number,
            )
        )
        commit.outputs.append(Output(services.topic("progress"), 0, [{"key": key, "value": value, "timestamp": stamp}]))
        commit.outputs.append(
            services.ledger.output(
                ledger_codec.Digest(
                    partition=self.partition, window=start, trigger=trigger, digest=digest.hex(), rows=len(keys)
                )
            )
        )
        old = WindowIndex(window - _DIGESTS_KEPT_WINDOWS)
        if trigger == self._triggers and old >= services.ledger.first_window:
            names = [
                ledger_codec.digest_key(self.partition, self._calendar.window_start(old), t)
                for t in range(1, self._triggers + 1)
            ]
            commit.outputs.append(services.ledger.withdrawn(names))
        self.counters["triggers"] += 1
        self.counters["rows"] += len(keys)
