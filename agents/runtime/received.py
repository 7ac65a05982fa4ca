"""Compares what each source says that it has written with what has come: nothing may be missing, nothing may come twice.

A source is a partition of the stage before. It counts the records that it writes to each partition of its output, and each of its
ticks carries that count, so whoever closes an interval has all of it. Two things can go wrong, and both are refused:
- Kafka loses records that it had acknowledged (seen once: docs/known-limits.md);
- the source's changelog is an older copy, so the source writes again what it had written.
Route's blocks also carry raw offsets, which each raw partition takes once and in order: there a repetition shows at once.

Records that are read again after a restart are no repetition: what a commit carries is what came before the position it claims, as
with the ticks in histogram/open_intervals.py.
"""

from collections import deque
from collections.abc import Iterable, Mapping, Sequence

from susurrus.agents.kafka.offset import Offset
from susurrus.agents.runtime.commit import Output
from susurrus.mechanisms.errors import Refusal
from susurrus.mechanisms.histogram.calendar import Interval
from susurrus.topics.tick import Tick, encode


class Written:
    """How many records one source has written to each partition of one topic, ticks not among them."""

    def __init__(self, source: int, topic: str, known: Sequence[int], *, config_digest: bytes) -> None:
        """known: by partition, what ``to_meta`` of the last commit said; zeros at the beginning."""
        self._source = source
        self._topic = topic
        self._records = list(known)
        self._digest = config_digest

    def count(self, outputs: Iterable[Output]) -> None:
        """Add up the records that this commit writes to the topic."""
        for output in outputs:
            self._records[output.partition] += len(output.messages)

    def ticks(self, interval: Interval, sources: tuple[tuple[int, int], ...] = ()) -> list[Output]:
        """The tick of an interval for every partition, behind all that was counted."""
        return [
            Output(
                self._topic,
                partition,
                [{"value": encode(Tick(self._source, interval, records, self._digest, sources))}],
            )
            for partition, records in enumerate(self._records)
        ]

    def to_meta(self) -> list[int]:
        """The part that a commit carries."""
        return list(self._records)


class Received:
    """Records and highest raw offset taken of each source, now and as of the position that a commit may claim."""

    def __init__(self, place: str, known: Mapping[int, Sequence[int]], *, way_out: str) -> None:
        """place: what a refusal calls the input. known: what ``to_meta`` of the last commit said. way_out: for the operator."""
        self._place = place
        self._way_out = way_out
        self._base = {int(source): (int(records), int(last)) for source, (records, last) in known.items()}
        self._live = dict(self._base)
        self._recent: deque[tuple[Offset, int, tuple[int, int]]] = deque()

    def take(self, source: int, offset: Offset, raw: tuple[int, int] | None = None) -> None:
        """A record at input offset ``offset``. raw: the first and the last raw offset it brings, where it has any.

        Raises Refusal for raw offsets that came before.
        """
        records, last = self._live.get(source, (0, -1))
        if raw is not None:
            if raw[0] <= last:
                raise Refusal(
                    f"{self._place} offset={offset}: source={source} brings raw offsets from {raw[0]} on, but has come up to "
                    f"{last} before, so the changelog of route is an older copy, and records would count twice: restore it as it "
                    f"was at the last commit, or {self._way_out}"
                )
            last = raw[1]
        self._live[source] = records + 1, last
        self._recent.append((offset, source, self._live[source]))

    def compare(self, tick: Tick, offset: Offset) -> None:
        """A tick at input offset ``offset`` says how many records its source has written here.

        Raises Refusal where another number came.
        """
        records, _ = self._live.get(tick.source, (0, -1))
        if records == tick.records:
            return
        found = f"{self._place} offset={offset}: source={tick.source} says records={tick.records}, and records={records} came"
        if records < tick.records:
            raise Refusal(
                f"{found}, so Kafka has lost what it had acknowledged: restore the topic as it was, or {self._way_out}"
            )
        raise Refusal(
            f"{found}, so the source's changelog is an older copy, and its records would count twice: restore it as it was at the "
            f"last commit, or {self._way_out}"
        )

    def to_meta(self, position: Offset) -> dict[int, tuple[int, int]]:
        """The part that a commit carries: of records below its position only."""
        while self._recent and self._recent[0][0] < position:
            _, source, state = self._recent.popleft()
            self._base[source] = state
        return dict(self._base)
