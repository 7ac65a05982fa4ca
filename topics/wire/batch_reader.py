"""Steps through a Kafka record batch, message format 2: numbers, lengths, texts and headers (topics/record_batch.py)."""

from collections.abc import Sequence

_WORD = (1 << 64) - 1
_LAST_SHIFT = 63

Headers = Sequence[tuple[str, bytes | None]]
"""Of one record, in their order."""


class MalformedBatch(ValueError):
    """A record batch is not as Kafka's message format 2 says."""


class BatchReader:
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

    def place(self) -> tuple[int, int] | tuple[None, None]:
        """Over bytes behind their length, where these begin and end; a negative length is none."""
        length = self.number()
        if length < 0:
            return None, None
        start = self.at
        self.skip(length)
        return start, self.at

    def text(self) -> bytes | None:
        """Bytes behind their length; a negative one is none."""
        start, end = self.place()
        return None if start is None else self._text[start:end]


def unpack_headers(packed: bytes) -> list[tuple[str, bytes | None]]:
    """The headers of one record, from their bytes in the batch, which `record_batch.parse` has found well-formed."""
    reader = BatchReader(packed)
    found = []
    for _ in range(reader.length()):
        name = reader.text() or b""
        found.append((name.decode(errors="surrogateescape"), reader.text()))
    return found
