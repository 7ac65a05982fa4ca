"""What one release partition writes to public topics at a trigger, and the chain of digests over the exact input.

    histogram, latest   the rows that are shown, in key order; in latest also that a key is not there any more
    candidates          those that may be first in a ranking (candidates.py), where there is one
    rolling             where there is a rolling view: its rows (rolling.py)
    progress            that the trigger is complete; also when it is empty
    ledger              the digest of the trigger

The digest of a trigger covers the digest before it. So a trigger that has been published is never published again from other
data: it must lead to the same digest, and then nothing is written.

State key: ``c`` window -> digest of its newest trigger.
"""

from dataclasses import replace
from hashlib import blake2b

import msgspec
import numpy as np

from susurrus.agents.histogram.candidates import Candidates
from susurrus.agents.histogram.columns.layout import PublishedColumn
from susurrus.agents.histogram.evidence import EvidenceOf
from susurrus.agents.histogram.intervals import ordered
from susurrus.agents.histogram.level_keys import PublicKeys
from susurrus.agents.histogram.remembered import COUNTING, Remembered
from susurrus.agents.histogram.rolling import RollingRows, RollingView, forget
from susurrus.agents.histogram.services import HistogramServices
from susurrus.agents.histogram.shown_rows import Display
from susurrus.agents.histogram.table import Gathered, SortedRows
from susurrus.agents.histogram.window_plans import WindowPlans
from susurrus.agents.runtime.chain import chain_key
from susurrus.agents.runtime.commit import Commit, Output
from susurrus.agents.runtime.store import Store
from susurrus.mechanisms.calendar import Trigger, WindowIndex, WindowStart
from susurrus.mechanisms.errors import ReplayMismatch
from susurrus.topics import histogram as histogram_codec
from susurrus.topics import ledger as ledger_codec
from susurrus.topics import progress as progress_codec
from susurrus.topics.histogram import ColumnRows
from susurrus.topics.progress import Progress

_CHAIN = b"c"
_DIGESTS_KEPT_WINDOWS = 32
"""The ledger keeps the digests of so many windows. A replay of older ones needs a lost changelog, which is refused on its own
(Ledger.check_started)."""


class Publication:
    """What one bounded partition has published in one epoch."""

    def __init__(
        self,
        services: HistogramServices,
        partition: int,
        store: Store,
        plans: WindowPlans,
        candidates: Candidates | None = None,
    ) -> None:
        """plans: of windows. candidates: what takes the rows of a ranking; None without one."""
        self._services = services
        self._plans = plans
        self._candidates = candidates
        self._ledger = services.ledger
        self._calendar = services.calendar
        self._partition = partition
        self._store = store
        settings = services.settings
        self._columns = settings.layout.published
        names, parts = settings.level_names, settings.level_parts
        self._public_keys = PublicKeys(names, parts, len(settings.input.key)) if names else None
        self._key = chain_key(services.secret, bytes.fromhex(services.ledger.epoch))
        self._known_digests = services.ledger.digests(partition)
        self._rolling = RollingView(services, store, plans) if services.settings.window.rolling else None
        self._forgets = self._rolling is None
        """Whether rows of an earlier rolling view may still be kept."""
        self.announced: Progress | None = None
        """What the newest trigger says in public of its window, as far as that is known here."""

    def publish(
        self,
        window: WindowIndex,
        trigger: Trigger,
        news: Gathered,
        rows: SortedRows,
        display: Display,
        commit: Commit,
        entering: Remembered | None = None,
        evidence: EvidenceOf | None = None,
    ) -> bool:
        """Add a trigger to the commit; False where it is public already. Raises ReplayMismatch where it was other data.

        rows: of all public keys. display: what is shown of them. entering: the remembered keys that are public from this trigger
        on, if there are such; the digest covers them. evidence: of the windows before, at the last trigger where windows add up;
        the digest covers it.
        """
        digest, known = self._link(window, trigger, news, entering, evidence)
        place = _CHAIN + ordered(window)
        if trigger < self._calendar.triggers_of(window):
            commit.puts.append((place, digest))
        else:
            commit.drops.append((place, place + b"\0"))
        view = self._view(window, trigger, rows, commit)
        number = len(display.rows.keys)
        self.announced = said = msgspec.structs.replace(
            self._progress(window, trigger),
            rows=number,
            rolling_rows=None if view is None else len(view),
            remembered=display.remembered,
            persistence=self._plans.announced(window),
        )
        if known is None:
            commit.outputs += self._rows(window, trigger, display)
            commit.outputs += self._view_rows(window, trigger, view)
            commit.outputs.append(self._announce(said))
            commit.outputs += self._digests(window, trigger, number, digest.hex())
        return known is None

    def is_public(
        self,
        window: WindowIndex,
        trigger: Trigger,
        news: Gathered,
        entering: Remembered | None = None,
        evidence: EvidenceOf | None = None,
    ) -> bool:
        """Whether the trigger is public already. Raises ReplayMismatch where it was other data. The others as for `publish`."""
        return self._link(window, trigger, news, entering, evidence)[1] is not None

    def _link(
        self,
        window: WindowIndex,
        trigger: Trigger,
        news: Gathered,
        entering: Remembered | None,
        evidence: EvidenceOf | None,
    ) -> tuple[bytes, str | None]:
        """(the trigger's digest, the public one in hex if there is any). Raises ReplayMismatch where they differ."""
        before = (self._store.get_one(_CHAIN + ordered(window)) or b"") if trigger > 1 else b""
        link = before.ljust(32, b"\0") + self._services.config_digest + ordered(trigger) + input_digest(news, self._key)
        if entering is not None:
            link += entering.digest()
        if evidence is not None:
            link += evidence.digest()
        link += self._plans.pinned(window, trigger)
        digest = blake2b(link, digest_size=32, key=self._key).digest()
        known = self._known_digests.get((self._calendar.window_start(window), trigger))
        if known not in (None, digest.hex()):
            after = entering is not None or bool(self._plans.pinned(window, trigger))
            raise self.mismatch(window, trigger, remembers=after)
        return digest, known

    def mismatch(self, window: WindowIndex, trigger: Trigger, *, remembers: bool = False) -> ReplayMismatch:
        """The refusal for a trigger that was published with other data; remembers: or with other memory of earlier windows."""
        other = (
            " or with another list of keys that are remembered from the window before, or other shares that follow them"
            if remembers
            else ""
        )
        return ReplayMismatch(
            f"trigger={trigger} of window={self._calendar.window_start(window)} was published from different data{other}, "
            "and the same noise must never cover two inputs",
            f"restore the raw topic and the internal topics as they were at the last commit, or {self._ledger.way_out}",
        )

    def _stamp(self, window: WindowIndex, trigger: Trigger) -> int:
        """The trigger's time, for public records: the producer's own would show how long the exact input took to handle."""
        return self._calendar.boundary(self._calendar.interval_of(window, trigger))

    def _view(self, window: WindowIndex, trigger: Trigger, rows: SortedRows, commit: Commit) -> RollingRows | None:
        """The rolling view's rows, where there is one. Its state follows every trigger, also one that is public already."""
        if self._rolling is not None:
            return self._rolling.take(window, trigger, rows, commit)
        if self._forgets:
            forget(self._store, commit)
            self._forgets = False
        return None

    def _view_rows(self, window: WindowIndex, trigger: Trigger, view: RollingRows | None) -> list[Output]:
        services = self._services
        if view is None or not len(view):
            return []
        keys, rows = view.encoded(services.settings.layout, services.strategy.refined)
        topic = services.topic("rolling")
        [messages] = services.publisher.messages([topic], keys, rows, [self._stamp(window, trigger)] * len(rows))
        return [Output(topic, self._partition, messages)]

    def _rows(self, window: WindowIndex, trigger: Trigger, display: Display) -> list[Output]:
        services, start, table = self._services, self._calendar.window_start(window), display.rows
        stamp = self._stamp(window, trigger)
        names = [services.topic(name) for name in ("histogram", "latest")]
        outputs = []
        if table.keys:
            release = services.header_of(window, trigger)
            columns = [self._column(column, table) for column in self._columns]
            levels, keys = self._public(table.keys)
            encoded_keys, rows = histogram_codec.public_rows(release, keys, columns, levels)
            if self._candidates is not None:
                self._candidates.add(start, columns, rows.json)
            messages = services.publisher.messages(names, encoded_keys, rows, [stamp] * len(rows))
            outputs += [Output(name, self._partition, rows) for name, rows in zip(names, messages, strict=True)]
        if display.withdrawn:
            levels, keys = self._public(display.withdrawn)
            gone = histogram_codec.encode_keys(start, keys, levels)
            messages_of_gone = services.publisher.withdrawals(gone, [stamp] * len(gone))
            outputs.append(Output(names[1], self._partition, messages_of_gone))
        return outputs

    def _public(self, keys: list[bytes]) -> tuple[list[bytes] | None, list[bytes]]:
        """(levels as JSON, None without any; keys) of rows, as the public knows them."""
        return (None, keys) if self._public_keys is None else self._public_keys.of(keys)

    def _column(self, column: PublishedColumn, table: SortedRows) -> ColumnRows:
        calibrated = not set(self._services.strategy.refined).isdisjoint(column.sources)
        rows = column.rows(table.estimates, table.std_errors, table.direct if calibrated else None)
        if table.smoothed is None or column.column.kind not in COUNTING:
            return rows
        [source] = column.sources
        smoothed = table.smoothed.estimates[:, source], table.smoothed.std_errors[:, source]
        present = table.smoothed.present[:, source]
        return replace(rows, smoothed=smoothed, smoothed_rows=present) if present.any() else rows

    def _progress(self, window: WindowIndex, trigger: Trigger) -> Progress:
        """What says that a trigger without rows is complete."""
        return Progress(
            window=self._calendar.window_start(window),
            trigger=trigger,
            of_triggers=self._calendar.triggers_of(window),
            partition=self._partition,
            of_partitions=self._services.settings.topics.bounded_partitions,
            rows=0,
            epoch=self._ledger.epoch,
            epoch_number=self._ledger.epoch_number,
        )

    def _announce(self, said: Progress) -> Output:
        key, value = progress_codec.encode(said)
        stamp = self._stamp(self._calendar.window_at(WindowStart(said.window)), Trigger(said.trigger))
        return Output(self._services.topic("progress"), 0, [{"key": key, "value": value, "timestamp": stamp}])

    def skipped(self, window: WindowIndex) -> Output:
        """What says in public that a window is skipped."""
        return self._announce(self._progress(window, Trigger(0)))

    def _digests(self, window: WindowIndex, trigger: Trigger, rows: int, digest: str) -> list[Output]:
        """The trigger's digest for the ledger; with a window's last one, those of an old window are withdrawn."""
        start = self._calendar.window_start(window)
        said = ledger_codec.Digest(partition=self._partition, window=start, trigger=trigger, digest=digest, rows=rows)
        outputs = [self._ledger.output(said)]
        old = WindowIndex(window - _DIGESTS_KEPT_WINDOWS)
        if trigger == self._calendar.triggers_of(window) and old >= self._ledger.first_window:
            old_start = self._calendar.window_start(old)
            names = [
                ledger_codec.digest_key(self._partition, old_start, t)
                for t in range(1, self._calendar.triggers_of(old) + 1)
            ]
            outputs.append(self._ledger.withdrawn(names))
        return outputs


def input_digest(news: Gathered, key: bytes) -> bytes:
    """32 bytes over the sorted exact input of one trigger; length-prefixed, so that no two inputs give the same bytes.

    key: of `chain_key`. Without the secret, no one can compute the digest or compare a guess with it.
    """
    digest = blake2b(digest_size=32, key=key, person=b"susurrus-input")
    if news.keys:
        digest.update(len(news.keys).to_bytes(8, "big"))
        digest.update(np.fromiter(map(len, news.keys), np.int64, len(news.keys)).tobytes())
        digest.update(b"".join(news.keys))
        for column in (news.users, news.weight, news.sums, *(() if news.lists is None else (news.lists,))):
            digest.update(np.ascontiguousarray(column).astype("<i8").tobytes())
    return digest.digest()
