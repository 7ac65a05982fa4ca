"""The records of a Kafka record batch, message format 2: each one's offset, time stamp, key, value and headers.

One producer writes a batch, and brokers look at little of what is in it. So this takes a batch as brokers do, and not as careful
clients write it: a batch that a broker has taken and that could not be read would hold up its partition for ever.

- Brokers do not ask whether a header's name is UTF-8. A name that is not is read as one that no field can have.
- A record's attributes are any byte.
- A record's offset is its place in the batch. What the record itself says of its offset is compared by nobody, where the batch is
  not compressed. Only where compaction has removed records it must do; then offsets rise within the batch.
- Time stamps wrap around, as they do in Kafka.

`_rows` is the definition. The compiled form is topics/rust/src/batch.rs, and layout.py finds the same places for a whole batch at
once. Records of batches that are `usual` may be read by any client's parser instead: it reads them in the same way
(agents/runtime/faust/record_batches.py).
"""

from itertools import starmap

import numpy as np

from susurrus.topics.compiled import compiled
from susurrus.topics.records.layout import RecordLayout, certain_layout, certainly_plain
from susurrus.topics.records.scanning import DecompressedBatch, InputRecord
from susurrus.topics.wire.batch_reader import BatchReader, MalformedBatch

_WORD = (1 << 64) - 1
_SIGN = 1 << 63

_Row = tuple[int, ...]
"""Offset, time stamp, and where key, value and headers begin and end in the data; -1 where there is no key or value."""


def parse(section: DecompressedBatch) -> list[InputRecord]:
    """The records in order. Raises MalformedBatch."""
    if compiled is None:
        return _parse(section)
    try:
        return list(starmap(InputRecord, compiled.records(section)))
    except (ValueError, OverflowError) as error:
        raise MalformedBatch(*error.args) from None


def usual(section: DecompressedBatch) -> bool:
    """Whether no record was compacted away, and the attributes of all records are numbers of one byte, as some parsers expect."""
    if section.number != section.span:
        return False
    if compiled is not None:
        return bool(compiled.plain_attributes(section))
    plain = certainly_plain(section)
    return _plain_attributes(section) if plain is None else plain


def _plain_attributes(section: DecompressedBatch) -> bool:
    text = section.data[section.first : section.last]
    reader = BatchReader(text)
    try:
        for _ in range(section.number):
            length = reader.length()
            attributes = text[reader.at : reader.at + 1]
            if not attributes or attributes >= b"\x80":
                return False
            reader.skip(length)
    except MalformedBatch:
        return False
    return True


def _parse(section: DecompressedBatch) -> list[InputRecord]:
    data, kind = section.data, int(section.append_time)
    return [
        InputRecord(
            offset,
            stamp,
            kind,
            None if key < 0 else data[key:key_end],
            None if value < 0 else data[value:value_end],
            data[headers:headers_end],
        )
        for offset, stamp, key, key_end, value, value_end, headers, headers_end in _rows(section)
    ]


def lay_out(section: DecompressedBatch) -> RecordLayout:
    """Where the parts of all records are. Raises MalformedBatch."""
    if (found := certain_layout(section)) is not None:
        return found
    offset, stamp, *places = np.array(_rows(section), np.int64).reshape(-1, 8).T
    return RecordLayout(offset, stamp, np.array(places))


def _rows(section: DecompressedBatch) -> list[_Row]:
    """The records in order. Raises MalformedBatch."""
    if not 0 <= section.first <= section.last <= len(section.data):
        raise MalformedBatch("the records lie outside the data")
    text, first = section.data[section.first : section.last], section.first
    reader = BatchReader(text)
    dense, last, found = section.number == section.span, -1, []
    for row in range(section.number):
        length = reader.length()
        start = reader.at
        reader.skip(1)  # attributes
        late, delta = reader.number(), reader.number()
        if dense:
            delta = row
        elif not last < delta < section.span:
            raise MalformedBatch("offsets do not rise within the batch")
        last = delta
        stamp = section.max_timestamp if section.append_time else section.first_timestamp + late
        key, value, headers = reader.place(), reader.place(), reader.at
        for _ in range(reader.length()):
            reader.skip(reader.length())
            reader.skip(max(0, reader.number()))
        offset = section.base_offset + delta
        if reader.at - start != length or offset >= _SIGN:
            raise MalformedBatch("a record does not end where it says")
        places = [-1 if at is None else first + at for at in (*key, *value, headers, reader.at)]
        found.append((offset, ((stamp + _SIGN) & _WORD) - _SIGN, *places))
    if reader.at != len(text):
        raise MalformedBatch("bytes follow the records")
    return found
