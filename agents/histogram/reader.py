"""Read released histograms as a downstream reader should: read_committed, and a trigger only when it is complete.

A trigger is complete when every release partition has announced it in ``progress`` and all the rows it announced have
arrived. Both are needed: a transaction's commit reaches its partitions one after the other, so the announcement can
be visible before the rows. Later rows of a key are held back until their own trigger is complete, so a table never
mixes two triggers. A table never mixes two epochs either, for each has noise of its own: the newest epoch that has a complete
trigger is shown.
"""

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from confluent_kafka import Message

from susurrus.agents.config.settings import Settings
from susurrus.agents.formats.outputs import reader_of
from susurrus.agents.kafka.clients import clients_of
from susurrus.agents.kafka.follow import Follower
from susurrus.mechanisms.calendar import WindowStart
from susurrus.topics import histogram, progress
from susurrus.topics.histogram import Row
from susurrus.topics.wire.timestamps import format_time


@dataclass(frozen=True, slots=True, kw_only=True)
class Snapshot:
    """A histogram at its newest complete trigger; ``rows`` are sorted by canonical key. Times in RFC 3339."""

    window_start: str
    window_end: str
    trigger: int
    of_triggers: int
    rows: tuple[Row, ...]

    @property
    def final(self) -> bool:
        """Whether this is the window's last trigger."""
        return self.trigger == self.of_triggers


@dataclass(slots=True)
class WindowState:
    """One window in one epoch as far as it was read.

    number: of the epoch; 0 until an announcement was read. announced: by partition, the number of rows of each trigger that is
    not older than what is shown. rows: by partition and key, the rows that are not older than what is shown, oldest first.
    """

    window: WindowStart
    number: int = 0
    of_partitions: int = 0
    of_triggers: int = 0
    announced: dict[int, dict[int, int]] = field(default_factory=dict)
    rows: dict[int, dict[bytes, list[Row]]] = field(default_factory=lambda: defaultdict(dict))

    def announce(self, said: progress.Progress) -> None:
        """Keep an announcement. The topic has one partition, so the last one read is the newest."""
        self.number, self.of_partitions, self.of_triggers = said.epoch_number, said.of_partitions, said.of_triggers
        self.announced.setdefault(said.partition, {})[said.trigger] = said.rows
        complete = self.complete_trigger() or 0
        for counts in self.announced.values():
            for old in [trigger for trigger in counts if trigger < min(complete, max(counts))]:
                del counts[old]

    def add(self, partition: int, key: bytes, row: Row) -> None:
        """Keep a row, and of its older ones the newest complete one."""
        complete = self.complete_trigger() or 0
        rows = self.rows[partition].setdefault(key, [])
        rows.append(row)
        while len(rows) > 1 and rows[1].trigger <= complete:
            rows.pop(0)

    def complete_trigger(self) -> int | None:
        """The newest trigger that all partitions have announced."""
        if not self.of_partitions or len(self.announced) < self.of_partitions:
            return None
        return min(max(counts) for counts in self.announced.values())

    def arrived(self, partition: int, trigger: int) -> bool:
        """Whether all rows of a partition's trigger are here.

        The rows of a partition come in order. A key that was published is published at every later trigger, so a newer row shows
        that the older ones have come.
        """
        counts = self.announced[partition]
        if trigger not in counts:
            trigger = max(counts)  # compacted away; later rows are here, so its own have come, too
        return sum(rows[-1].trigger >= trigger for rows in self.rows[partition].values()) >= counts[trigger]

    def snapshot(self) -> Snapshot | None:
        """The newest trigger with every announced row, or None while there is none or rows are still on their way."""
        trigger = self.complete_trigger()
        if trigger is None or not all(self.arrived(partition, trigger) for partition in self.announced):
            return None
        kept = [(key, row) for keys in self.rows.values() for key, rows in keys.items() for row in rows]
        newest = {key: row for key, row in kept if row.trigger <= trigger}
        rows = tuple(newest[key] for key in sorted(newest))
        return Snapshot(
            window_start=format_time(self.window),
            window_end=rows[0].window_end if rows else "",
            trigger=trigger,
            of_triggers=self.of_triggers,
            rows=rows,
        )


class Epochs:
    """One window as far as it was read: a state for each epoch that has published something of it, by the epoch's id."""

    def __init__(self, window: WindowStart) -> None:
        self._window = window
        self._states: dict[str, WindowState] = {}

    def announce(self, said: progress.Progress) -> None:
        """See `WindowState.announce`; an epoch that a newer complete one has followed is forgotten."""
        self._of(said.epoch).announce(said)
        newest = self.newest
        if newest is not None and newest.snapshot() is not None:
            self._states = {name: state for name, state in self._states.items() if state.number in (0, newest.number)}

    def add(self, partition: int, key: bytes, row: Row) -> None:
        """See `WindowState.add`."""
        self._of(row.epoch).add(partition, key, row)

    def _of(self, epoch: str) -> WindowState:
        return self._states.setdefault(epoch, WindowState(self._window))

    @property
    def newest(self) -> WindowState | None:
        """The newest epoch with a complete trigger; while there is none, the newest that was announced."""
        known = [state for state in self._states.values() if state.number]
        return max(known, key=lambda state: (state.complete_trigger() is not None, state.number), default=None)

    def snapshot(self) -> Snapshot | None:
        """The snapshot of the newest epoch whose announced rows are all here."""
        for state in sorted(self._states.values(), key=lambda state: state.number, reverse=True):
            found = state.snapshot() if state.number else None
            if found is not None:
                return found
        return None


class HistogramReader:
    """Follows the ``latest`` and ``progress`` topics of one pipeline. Use as a context manager; not thread-safe.

    window: start of the one window to keep, in ms; without it the newest ``keep`` windows are kept.
    """

    def __init__(self, settings: Settings, *, window: WindowStart | None = None, keep: int = 3) -> None:
        self._window = window
        self._keep = keep
        self._latest, self._progress = settings.topic("latest"), settings.topic("progress")
        self._json = reader_of(settings.output, settings.schemas[self._latest], settings.namespace)
        self.windows: dict[WindowStart, Epochs] = {}
        self._clients = clients_of(settings, quiet=True)
        places = [
            (topic, partition)
            for topic in (self._progress, self._latest)
            for partition in range(self._clients.partitions_to_read(topic))
        ]
        # Partitions are assigned by hand: no group is joined, and none is left behind.
        self._consumer = self._clients.reader("watch", lost="earliest")
        self._follower = Follower(self._consumer, dict.fromkeys(places, 0))

    @property
    def caught_up(self) -> bool:
        """Whether every partition has been read to its end once."""
        return self._follower.caught_up

    def poll(self, timeout: float) -> bool:
        """Take in what arrives within ``timeout`` seconds; True if anything did. Raises KafkaException for fatal
        errors."""
        behind = not self.caught_up
        messages = self._follower.read(timeout)
        for message in messages:
            self._take(message)
        if self._window is None:
            for old in sorted(self.windows)[: -self._keep]:
                del self.windows[old]
        return bool(messages) or (behind and self.caught_up)

    def _take(self, message: Message) -> None:
        value: Any = message.value()
        if value is None:
            return  # a window that has left the compacted topic
        if message.topic() == self._progress:
            said = progress.decode(value)
            if self._wanted(window := WindowStart(said.window)):
                self._state(window).announce(said)
        else:
            row = histogram.decode_row(self._json(value))
            if self._wanted(window := WindowStart(row.window)):
                key: Any = message.key()
                self._state(window).add(int(message.partition() or 0), bytes(key), row)

    def _state(self, window: WindowStart) -> Epochs:
        return self.windows.setdefault(window, Epochs(window))

    def _wanted(self, window: WindowStart) -> bool:
        if self._window is not None:
            return window == self._window
        return len(self.windows) < self._keep or window >= min(self.windows)

    def snapshot(self) -> Snapshot | None:
        """The newest window's newest complete trigger; of an older window while the newest has none."""
        for window in sorted(self.windows, reverse=True):
            found = self.windows[window].snapshot()
            if found is not None:
                return found
        return None

    def completed(self) -> Iterator[tuple[WindowStart, int, int]]:
        """(window start in ms, triggers complete, of triggers) of the windows kept, oldest first."""
        for window in sorted(self.windows):
            state = self.windows[window].newest
            yield (
                window,
                0 if state is None else state.complete_trigger() or 0,
                0 if state is None else state.of_triggers,
            )

    def close(self) -> None:
        """Leave the brokers."""
        self._consumer.close()
        self._clients.close()

    def __enter__(self) -> "HistogramReader":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
