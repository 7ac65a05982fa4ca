"""Unsigned integers of one to five bytes: seven bits each, the low ones first, the highest bit set where more follow (LEB128).

For columns of mostly small numbers with a few large ones, where packing.py's columns of one width would follow the largest.
"""

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from susurrus.topics.wire.packing import Int64s, MalformedRecord

MAX = (1 << 32) - 1
_MOST_BYTES = 5


def encode(values: npt.NDArray[np.integer] | Sequence[int]) -> bytes:
    """The numbers, one behind the other. Raises ValueError where one is negative or above 2^32 - 1."""
    numbers = np.asarray(values, np.int64)
    if not len(numbers):
        return b""
    if int(numbers.min()) < 0 or int(numbers.max()) > MAX:
        raise ValueError(f"numbers of {int(numbers.min())} to {int(numbers.max())}: must be in [0, {MAX}]")
    if int(numbers.max()) < 1 << 7:
        return numbers.astype(np.uint8).tobytes()
    length = np.ones(len(numbers), np.int64)
    for bits in range(7, 35, 7):
        length += numbers >= 1 << bits
    ends = np.cumsum(length)
    data = np.empty(int(ends[-1]), np.uint8)
    starts = ends - length
    for index in range(int(length.max())):
        some = length > index
        more = np.where(length[some] > index + 1, 128, 0)
        data[starts[some] + index] = (numbers[some] >> 7 * index) & 127 | more
    return data.tobytes()


def decode(data: bytes, at: int, number: int) -> tuple[Int64s, int]:
    """(int64[number], where the bytes behind them begin). Raises MalformedRecord."""
    if number < 0 or number > len(data) - at:
        raise MalformedRecord(f"{number} numbers do not follow at={at}")
    if not number:
        return np.zeros(0, np.int64), at
    body = np.frombuffer(data, np.uint8, min(len(data) - at, number * _MOST_BYTES), at)
    last = np.flatnonzero(body < 128)[:number]
    if len(last) < number:
        raise MalformedRecord(f"{number} numbers at={at} run over the record's end={len(data)}")
    end = at + int(last[-1]) + 1
    if len(last) == end - at:
        return body[:number].astype(np.int64), end
    starts = np.concatenate(([0], last[:-1] + 1))
    length = last - starts + 1
    if int(length.max()) > _MOST_BYTES:
        raise MalformedRecord(f"a number at={at} is longer than {_MOST_BYTES} bytes")
    values = np.zeros(number, np.int64)
    for index in range(int(length.max())):
        some = length > index
        values[some] |= (body[starts[some] + index].astype(np.int64) & 127) << 7 * index
    if int(values.max()) > MAX:
        raise MalformedRecord(f"a number at={at} is above {MAX}")
    return values, end
