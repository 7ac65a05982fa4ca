"""What one interval changed in a window's table of users, as one row of the state and of the changelog.

    header, names of the users that entered, changed users, their keys, kept records where these are not 1, codes of the keys

- A user that enters is named once, and has the next number. From then on it is its number: differences between the numbers of
  changed users are small. How many keys a user changes stands in the same integer.
- The row has a list of its own of the keys that it changes, the most frequent first, so that most are one byte.
- Whether a key is new on a user's list is not said: the table knows.

Applied in order, the rows of a window rebuild its table exactly.
"""

import struct
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate, pairwise

import numpy as np
import numpy.typing as npt

from susurrus.mechanisms.arrays import Bools, Int64s
from susurrus.mechanisms.histogram.user_table import Changes, Codes, UserTable
from susurrus.topics.wire import varints
from susurrus.topics.wire.packing import MalformedRecord

_HEADER = struct.Struct("<IIIIIBq")
"""Users before, users that enter, changed users, changes, keys, flags, root."""
HEADER_BYTES = _HEADER.size
_PUBLIC, _ODD = 1, 2
_FEW = 3
"""A user that changes more keys than this says so elsewhere."""


@dataclass(frozen=True, slots=True, kw_only=True)
class UserChanges:
    """known: users of the table before. names: of those that enter, in order. Other fields: as `UserTable.apply` takes them."""

    known: int
    names: list[bytes]
    user: Int64s
    code: Codes
    unranked: Bools
    added: Int64s
    root: int

    def apply(self, table: UserTable) -> None:
        """Make the changes. The users that enter are in the table already. Raises MalformedRecord for rows of another order."""
        if len(self.user) and int(self.user[-1]) >= len(table):
            raise MalformedRecord("changes of users that never entered")
        table.apply(self.user, self.code, self.unranked, self.added, self.root)


def encode(
    known: int, names: Sequence[bytes], changes: Changes, codes: Codes, public: Bools | None, root: int
) -> bytes:
    """codes uint32[K], public bool[K]: of the batch's keys."""
    begins = np.flatnonzero(np.diff(changes.user, prepend=-1))
    users, each = changes.user[begins], np.diff(np.append(begins, len(changes.user)))
    steps = np.diff(users, prepend=-1) - 1
    times = np.bincount(changes.key, minlength=len(codes))
    used = np.flatnonzero(times)
    used = used[np.argsort(-times[used], kind="stable")]
    place = np.empty(len(codes), np.int64)
    place[used] = np.arange(len(used))
    odd = changes.added != 1
    flags = (0 if public is None else _PUBLIC) | (_ODD if odd.any() else 0)
    return b"".join(
        (
            _HEADER.pack(known, len(names), len(users), len(changes.user), len(used), flags, root),
            varints.encode(np.fromiter(map(len, names), np.int64, len(names))),
            *names,
            varints.encode(steps << 2 | np.minimum(each - 1, _FEW)),
            varints.encode(each[each > _FEW] - 1 - _FEW),
            varints.encode(place[changes.key]),
            np.packbits(odd).tobytes() + varints.encode(changes.added[odd]) if flags & _ODD else b"",
            codes[used].astype("<u4").tobytes(),
            b"" if public is None else np.packbits(public[used]).tobytes(),
        )
    )


def decode(data: bytes) -> UserChanges:
    """The changes of one row. Raises MalformedRecord."""
    if len(data) < _HEADER.size:
        raise MalformedRecord(f"changes of {len(data)} bytes")
    known, entered, users, number, keys, flags, root = _HEADER.unpack_from(data)
    lengths, at = varints.decode(data, _HEADER.size, entered)
    ends = list(accumulate(lengths.tolist(), initial=at))
    names = [data[start:end] for start, end in pairwise(ends)]
    heads, at = varints.decode(data, ends[-1], users)
    each = (heads & _FEW) + 1
    many = each > _FEW
    more, at = varints.decode(data, at, int(many.sum()))
    each[many] += more
    if int(each.sum()) != number:
        raise MalformedRecord(f"changes={number} where the users have {int(each.sum())}")
    place, at = varints.decode(data, at, number)
    added = np.ones(number, np.int64)
    if flags & _ODD:
        odd, at = _bits(data, at, number)
        added[odd], at = varints.decode(data, at, int(odd.sum()))
    codes = np.frombuffer(_piece(data, at, 4 * keys), "<u4").astype(np.uint32)
    at += 4 * keys
    public = np.zeros(keys, np.bool_)
    if flags & _PUBLIC:
        public, at = _bits(data, at, keys)
    if at != len(data) or (number and int(place.max()) >= keys):
        raise MalformedRecord("changes do not end where they should, or name keys that are not there")
    return UserChanges(
        known=known,
        names=names,
        user=np.repeat(np.cumsum((heads >> 2) + 1) - 1, each),
        code=codes[place],
        unranked=public[place],
        added=added,
        root=root,
    )


def _piece(data: bytes, at: int, size: int) -> bytes:
    if at + size > len(data):
        raise MalformedRecord(f"field of size={size} at={at} runs over the record's end={len(data)}")
    return data[at : at + size]


def _bits(data: bytes, at: int, number: int) -> tuple[npt.NDArray[np.bool_], int]:
    size = -(-number // 8)
    bits = np.unpackbits(np.frombuffer(_piece(data, at, size), np.uint8), count=number)
    return bits.astype(np.bool_), at + size
