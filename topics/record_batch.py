"""The records of a Kafka record batch, message format 2: each one's offset, time stamp, key and value.

One producer writes a batch, and brokers look at little of what is in it. So this takes a batch as brokers do, and not as careful
clients write it: a batch that a broker has taken and that could not be read would hold up its partition for ever.

- The names and values of headers are passed over: brokers do not ask whether a name is UTF-8.
- A record's attributes are any byte.
- A record's offset is its place in the batch. What the record itself says of its offset is compared by nobody, where the batch is
  not compressed. Only where compaction has removed records it must do; then offsets rise within the batch.
- Time stamps wrap around, as they do in Kafka.

`parse` is the definition. The compiled form is topics/rust/src/batch.rs. Records of batches that are `usual` may be read by any
client's parser instead: it reads them in the same way (agents/runtime/faust/record_batches.py).
"""

from itertools import starmap

from susurrus.topics.compiled import compiled
from susurrus.topics.records.scanning import DecompressedBatch, InputRecord, MalformedBatch

_WORD = (1 << 64) - 1
_SIGN = 1 << 63
_LAST_SHIFT = 63


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
    return _plain_attributes(section)


def _plain_attributes(section: DecompressedBatch) -> bool:
    text = section.data[section.first : section.last]
    reader = _Reader(text)
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
    text = section.data[section.first : section.last]
    if not 0 <= section.first <= section.last <= len(section.data):
        raise MalformedBatch("the records lie outside the data")
    reader = _Reader(text)
    dense, last, found = section.number == section.span, -1, []
    kind = int(section.append_time)
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
        key, value = reader.text(), reader.text()
        for _ in range(reader.length()):
            reader.skip(reader.length())
            reader.skip(max(0, reader.number()))
        offset = section.base_offset + delta
        if reader.at - start != length or offset >= _SIGN:
            raise MalformedBatch("a record does not end where it says")
        found.append(InputRecord(offset, ((stamp + _SIGN) & _WORD) - _SIGN, kind, key, value))
    if reader.at != len(text):
        raise MalformedBatch("bytes follow the records")
    return found


class _Reader:
    """A position in the text of the records. Every step raises MalformedBatch behind the end."""

    __slots__ = ("_text", "at")

    def __init__(self, text: bytes) -> None:
        self._text, self.at = text, 0

    def skip(self, number: int) -> None:
        """Over so many bytes, at least 0."""
        self.at += number
        if self.at > len(self._text):
            raise MalformedBatch("a record runs over the end")

    def number(self) -> int:
        """A signed number in zigzag form, seven bits a byte, ten bytes at most."""
        text, at = self._text, self.at
        word = shift = 0
        try:
            while (byte := text[at]) >= 0x80:
                word |= (byte & 0x7F) << shift
                at, shift = at + 1, shift + 7
                if shift > _LAST_SHIFT:
                    raise MalformedBatch("a number is too long")
        except IndexError:
            raise MalformedBatch("a record runs over the end") from None
        word = (word | byte << shift) & _WORD
        self.at = at + 1
        return (word >> 1) ^ -(word & 1)

    def length(self) -> int:
        """A number of bytes or headers, which cannot be more than what is left."""
        length = self.number()
        if not 0 <= length <= len(self._text) - self.at:
            raise MalformedBatch("a length is impossible")
        return length

    def text(self) -> bytes | None:
        """Bytes behind their length; a negative one is none."""
        length = self.number()
        if length < 0:
            return None
        start = self.at
        self.skip(length)
        return self._text[start : self.at]
