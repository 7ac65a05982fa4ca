"""Where the parts of all records of a record batch are, as columns: for the whole batch at once, without an object per record.

A batch is a chain: only a record's length says where the next one begins. This chain is followed in one short loop; all that is
inside the records is then read by numpy, field by field. Whatever is not certain to be what record_batch.py reads, which is the
definition, is left to it: the batch as a whole, for a batch has one producer.
"""

from itertools import repeat
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from susurrus.topics.records.scanning import DecompressedBatch
from susurrus.topics.wire.packing import Int64s

_Text = npt.NDArray[np.uint8]

_MOST_BYTES = 5
"""Of a number here. Longer ones are valid, but no producer writes them in the usual way."""


class RecordLayout(NamedTuple):
    """The records of a batch. offset, timestamp: int64[n]. places: int64[6, n], where in the batch's data key, value and headers
    begin and end; -1 where there is no key or value."""

    offset: Int64s
    timestamp: Int64s
    places: Int64s


class _Uncertain(Exception):
    """Only the definition knows."""


def certain_layout(section: DecompressedBatch) -> RecordLayout | None:
    """The layout, None where only the definition knows it, or whether there is one."""
    if not (0 <= section.first <= section.last <= len(section.data) and section.number > 0):
        return None
    try:
        return _layout(section)
    except (_Uncertain, IndexError):  # what runs over the end
        return None


def certainly_plain(section: DecompressedBatch) -> bool | None:
    """Whether the attributes of all records are numbers of one byte; None where only the definition knows it."""
    data = section.data[section.first : section.last]
    try:
        heads = np.array(_heads(data, section.number), np.int64)
        text, begin = np.frombuffer(data, np.uint8), heads[:-1]
        if heads[-1] > len(data) or (text[begin] & 1).any():
            return None
        return bool((text[_behind(text, begin)] < 0x80).all())
    except (_Uncertain, IndexError):
        return None


def _layout(section: DecompressedBatch) -> RecordLayout:
    number = section.number
    data = section.data[section.first : section.last]
    text = np.frombuffer(data, np.uint8)
    heads = np.array(_heads(data, number), np.int64)
    begin, end = heads[:-1], heads[1:]
    if end[-1] != len(data) or (text[begin] & 1).any():  # an odd number stands for a negative length
        raise _Uncertain
    at = _behind(text, begin) + 1  # any attributes
    late, at = _numbers(text, at)
    dense = number == section.span
    if dense:
        delta, at = np.arange(number), _behind(text, at)
    else:
        delta, at = _numbers(text, at)
        if delta[0] < 0 or delta[-1] >= section.span or (np.diff(delta) <= 0).any():
            raise _Uncertain
    if section.base_offset + int(delta[-1]) >= 1 << 63:
        raise _Uncertain
    places = np.empty((6, number), np.int64)
    for of in (0, 2):
        size, at = _numbers(text, at)
        places[of] = at
        at = at + np.maximum(size, 0)
        places[of + 1] = at
        places[of : of + 2, size < 0] = -1 - section.first
    places[4], places[5] = at, end
    if not ((text[at] == 0) & (at + 1 == end)).all() and (_behind_headers(text, at) != end).any():
        raise _Uncertain
    places += section.first
    if section.append_time:
        stamps = np.full(number, section.max_timestamp, np.int64)
    else:
        stamps = late + np.int64(section.first_timestamp)  # wraps around, as in Kafka
    return RecordLayout(section.base_offset + delta, stamps, places)


def _heads(data: bytes, number: int) -> list[int]:
    """Where each record begins with its length, and where the last one ends; if the lengths are even and of up to three bytes."""
    at, found = 0, [0]
    add = found.append
    for _ in repeat(None, number):
        length = data[at]
        if length < 0x80:
            at += (length >> 1) + 1
        else:
            length = length & 0x7F | data[at + 1] << 7
            if length < 1 << 14:
                at += (length >> 1) + 2
            else:
                length = length & 0x3FFF | data[at + 2] << 14
                if length >= 1 << 21:
                    raise _Uncertain
                at += (length >> 1) + 3
        add(at)
    return found


def _numbers(text: _Text, at: Int64s) -> tuple[Int64s, Int64s]:
    """(the signed numbers in zigzag form at these places, the places behind them). Raises IndexError behind the end."""
    byte = text[at]
    word = (byte & 0x7F).astype(np.int64)
    at = at + 1
    rows, shift = np.flatnonzero(byte >= 0x80), 7
    while len(rows):
        if shift == 7 * _MOST_BYTES:
            raise _Uncertain
        byte = text[at[rows]]
        word[rows] |= (byte & 0x7F).astype(np.int64) << shift
        at[rows] += 1
        rows, shift = rows[byte >= 0x80], shift + 7
    return (word >> 1) ^ -(word & 1), at


def _behind(text: _Text, at: Int64s) -> Int64s:
    """The places behind the numbers at these places."""
    rows = np.flatnonzero(text[at] >= 0x80)
    at, size = at + 1, 1
    while len(rows):
        if size == _MOST_BYTES:
            raise _Uncertain
        more = text[at[rows]] >= 0x80
        at[rows] += 1
        rows, size = rows[more], size + 1
    return at


def _behind_headers(text: _Text, at: Int64s) -> Int64s:
    """The places behind all headers, whose number is at these places."""
    left, end = _numbers(text, at)
    if (left < 0).any():
        raise _Uncertain
    rows = np.flatnonzero(left)
    while len(rows):
        size, place = _numbers(text, end[rows])
        if (size < 0).any():  # a header has a name
            raise _Uncertain
        size, place = _numbers(text, place + size)
        end[rows] = place + np.maximum(size, 0)
        left[rows] -= 1
        rows = rows[left[rows] > 0]
    return end
