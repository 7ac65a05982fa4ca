"""Records whose schema is not known (yet): held together with all records behind them.

A record is bad input if its schema id is still unknown at ``patience`` after the record was stamped or appended; the earlier of the
two counts. No field says when a record was appended, and stamps can be forged ahead. But all records below the log's end had been
appended when the end was read. So a schema registered within ``patience`` is always found. The end is read once a second while a
record waits, so the waits of several records do not add up: see docs/guarantees/membership.md.
"""

import contextlib
import logging
import time
from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from typing import Any, Generic, Protocol, TypeVar

from confluent_kafka import KafkaException

from susurrus.agents.finding import Finding
from susurrus.agents.formats.reader import RecordReader
from susurrus.topics.records.payloads import Chunk
from susurrus.topics.records.scanning import DecompressedBatch, Over, Scanned, UnknownNumbers, over_by_row
from susurrus.topics.records.table import RecordTable
from susurrus.topics.wire.batch_reader import MalformedBatch

log = logging.getLogger(__name__)

_ASK_AGAIN_SECONDS = 1.0


class UnreadableBatch(Exception):
    """A record batch whose checksum is right cannot be parsed or decompressed. offset: where it begins. what: the error's type.

    Operator action: let another replica lead the partition, or find the producer of such batches.
    """

    def __init__(self, offset: int, what: str) -> None:
        super().__init__(offset, what)
        self.offset, self.what = offset, what


class Fetch(Protocol):
    """What was fetched of a partition, from the offset ``start`` on, and not yet parsed (runtime/faust/record_batches.py)."""

    start: int

    def records(self) -> list[Any]:
        """The records. Raises UnreadableBatch."""

    def sections(self) -> list[DecompressedBatch] | None:
        """The record batches, of which the first may begin before ``start``; None where there are none. Raises UnreadableBatch."""

    def table(self) -> RecordTable | None:
        """The records as columns; None where there are no record batches. Raises UnreadableBatch."""

    def since(self, start: int) -> "Fetch":
        """What is from an offset on."""


C = TypeVar("C")
"""What a batch is decoded to: a column per field."""
C_co = TypeVar("C_co", covariant=True)


class WholeDecoder(Protocol[C_co]):
    """Decodes record batches without parsing them, like topics/raw_batches.py."""

    def decode(
        self, sections: Sequence[DecompressedBatch], start: int, below: int | None, over: Over
    ) -> tuple[Scanned, C_co]:
        """The records with start <= offset < below, and their columns. over: which may no longer wait. Raises MalformedBatch, and
        UnknownNumbers where one has to."""


class Patience:
    """How long records of one partition may wait. patience: ms. Instants are ms of the wall clock."""

    def __init__(self, patience: int) -> None:
        self._patience = patience
        self._ends: list[int] = []
        self._instants: list[int] = []
        """When the log was seen to end at each of ``_ends``, which increase."""

    def saw(self, end: int, now: int) -> None:
        """Note that all records below ``end`` had been appended by ``now``. An earlier note about the same records stands."""
        if not self._ends or end > self._ends[-1]:
            self._ends.append(end)
            self._instants.append(now)

    def passed(self, position: int) -> None:
        """Forget the notes that only records below ``position`` need."""
        number = bisect_right(self._ends, position)
        del self._ends[:number], self._instants[:number]

    def over(self, offset: int, stamp: int, now: int) -> bool:
        """Whether a record whose schema is unknown at ``now`` has waited long enough."""
        number = bisect_right(self._ends, offset)
        appended = self._instants[number] if number < len(self._ends) else now
        return now >= min(stamp, appended) + self._patience


class Intake(Generic[C]):
    """What was fetched of one raw partition, decoded in its order; a record that waits holds up all behind it.

    decode: columns of records, from all of their chunks. position: the input offset at which it begins. stage, topic, partition:
    whose intake it is, and what it reads. watermarks: the first and the end offset of a topic's partition; may raise
    KafkaException. whole: decodes record batches to the same columns, unless something may have to wait. Neither function refers to
    the stage, which has the intake: it would keep itself when its task has ended.
    """

    def __init__(
        self,
        form: RecordReader,
        decode: Callable[[Iterable[Chunk], Sequence[Any]], C],
        *,
        position: int,
        stage: str,
        topic: str,
        partition: int,
        watermarks: Callable[[str, int], tuple[int, int]],
        whole: WholeDecoder[C] | None = None,
    ) -> None:
        self.place = f"topic={topic} partition={partition}"
        """The partition in messages."""
        self._whole = whole
        self._form, self._decode_chunks, self._owner = form, decode, f"{stage}-{partition}"
        self._topic, self._partition, self._watermarks = topic, partition, watermarks
        self._patience = Patience(form.patience)
        self.held: list[Any] | RecordTable = []
        """Records that were fetched but not decoded. After `decode` the first of them waits."""
        self._fetch: Fetch | None = None
        """Instead of records: what waits for nothing but `decode`, not yet parsed."""
        self.waits: Finding | None = None
        """What the first record held waits for, and where it is."""
        self._fetched, self._again_at = position, 0.0

    def close(self) -> None:
        """Close the connections of the format."""
        self._form.close()

    def take(self, fetched: Fetch | list[Any], end: int) -> None:
        """Take a fetch, which ends before offset ``end``. Raises UnreadableBatch."""
        if not isinstance(fetched, list):
            if not self.pending:
                self._fetch, self._fetched = fetched, end
                return
            fetched = fetched.records()
        self._parse()
        self.held = [*self.held, *fetched] if self.held else fetched
        self._fetched = end

    @property
    def pending(self) -> bool:
        """Whether something was fetched that is not decoded."""
        return bool(self.held) or self._fetch is not None

    def _parse(self) -> None:
        fetch, self._fetch = self._fetch, None
        if fetch is not None:
            table = fetch.table()
            self.held = fetch.records() if table is None else table

    @property
    def position(self) -> int:
        """The input offset up to which all is decoded."""
        if self._fetch is not None:
            return self._fetch.start
        return self.held[0].offset if self.held else self._fetched

    @property
    def due(self) -> bool:
        """Whether records are held and it is time to try again."""
        return self.pending and (self.waits is None or time.monotonic() >= self._again_at)

    def decode(self, now: int, below: int | None = None) -> tuple[Sequence[Any], C, int]:
        """The records held, up to the first that waits, with their columns. now: ms of the wall clock.

        below: records from this offset on are dropped once all before them are decoded. The last item is their number.
        Raises UnreadableBatch.
        """

        def over(offset: int, stamp: int) -> bool:
            return self._patience.over(offset, stamp, now)

        if (whole := self._decode_whole(below, over)) is not None:
            return whole
        self._parse()
        records: list[Any] | RecordTable = self.held
        if below is not None:
            records = (
                records.below(below)
                if isinstance(records, RecordTable)
                else [record for record in records if record.offset < below]
            )

        taken = left_out = 0

        def counted() -> Iterator[Chunk]:
            nonlocal taken
            for chunk in self._form.read(records, over_by_row(records, over)):
                taken += chunk.payloads
                yield chunk

        columns = self._decode_chunks(counted(), records)
        if self._form.waits is None:
            self.waits = None
        else:
            place = f"{self.place} offset={records[taken].offset}"
            self._wait(replace(self._form.waits, text=f"{place}: {self._form.waits.text}"))
        if taken < len(records):
            self.held = self.held[taken:]
        else:
            left_out = len(self.held) - taken
            self.held = []
        self._patience.passed(self.position)
        return records[:taken], columns, left_out

    def _decode_whole(self, below: int | None, over: Over) -> tuple[Scanned, C, int] | None:
        """The same without parsing, where that is possible."""
        fetch = self._fetch
        if self._whole is None or fetch is None or (sections := fetch.sections()) is None:
            return None
        # Of a batch that is not as it must be, the fetch says what is wrong and where. What has to wait, waits one by one.
        with contextlib.suppress(MalformedBatch, UnknownNumbers):
            records, columns = self._whole.decode(sections, fetch.start, below, over)
            self._fetch = self.waits = None
            self._patience.passed(self.position)
            return records, columns, records.beyond
        return None

    def _wait(self, waits: Finding) -> None:
        if waits != self.waits:
            self.waits = waits
            log.warning("%s waits: %s", self._owner, waits)
        self._again_at = time.monotonic() + _ASK_AGAIN_SECONDS
        # While the broker does not answer, earlier notes have to do.
        with contextlib.suppress(KafkaException):
            self._patience.saw(self._watermarks(self._topic, self._partition)[1], int(time.time() * 1000))
