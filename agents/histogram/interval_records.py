"""The records of one interval, as bound's pass takes them: from blocks of several sources to columns per window.

blocks in log order ──IntervalRecords.of──▶ in the order (source, raw offset), one list of keys ──by_window──▶ columns per window
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Self

import numpy as np
import numpy.typing as npt

from susurrus.mechanisms.arrays import Int32s, Int64s
from susurrus.mechanisms.calendar import WindowStart
from susurrus.topics.bounded import BoundedBlock
from susurrus.topics.by_user import ByUserBlock
from susurrus.topics.wire.blobs import some_of


@dataclass(frozen=True, slots=True, kw_only=True)
class WindowRecords:
    """A window's records of one interval, in the order (source, raw offset): that of a user's records of one key.

    users: by block, codes int32 and the names that they lead into; key: int32[n], places in the interval's keys; values:
    int64[n, fields].
    """

    users: list[tuple[npt.NDArray[np.int32], Sequence[bytes]]]
    key: Int32s
    values: Int64s


@dataclass(frozen=True, slots=True, kw_only=True)
class IntervalRecords:
    """blocks: by source, those of one source in the order of their offsets. keys: distinct; code: int32, by block, of its keys."""

    blocks: list[ByUserBlock]
    keys: list[bytes]
    code: list[npt.NDArray[np.int32]]

    @classmethod
    def of(cls, blocks: list[ByUserBlock]) -> Self:
        """The records of blocks in log order, which has the blocks of one source in the order of their offsets."""
        blocks = sorted(blocks, key=lambda block: block.source)
        keys = list(dict.fromkeys(chain.from_iterable([block.keys for block in blocks])))
        number = dict(zip(keys, range(len(keys)), strict=True))
        return cls(
            blocks=blocks,
            keys=keys,
            code=[np.array(list(map(number.__getitem__, block.keys)), np.int32) for block in blocks],
        )

    def by_window(self) -> Iterator[tuple[WindowStart, WindowRecords]]:
        """The windows in order of time."""
        windows = [distinct(block.window) for block in self.blocks]
        for start in sorted(set(chain.from_iterable(windows))):
            users, key, values = [], [], []
            for block, code, starts in zip(self.blocks, self.code, windows, strict=True):
                if start not in starts:
                    continue
                if len(starts) == 1:
                    users.append((block.user, block.users))
                    key.append(code[block.key])
                    values.append(block.values)
                    continue
                rows = np.flatnonzero(block.window == start)
                used, user = np.unique(block.user[rows], return_inverse=True)
                users.append((user.astype(np.int32), some_of(block.users, used)))
                key.append(code[block.key[rows]])
                values.append(block.values[rows])
            yield WindowStart(start), WindowRecords(users=users, key=np.concatenate(key), values=np.concatenate(values))


def distinct(column: Int64s) -> list[int]:
    """The values of a column, ascending. Small blocks are many, and most have one."""
    if len(column) and column.min() == column.max():
        return [int(column[0])]
    values: list[int] = np.unique(column).tolist()
    return values


def concatenated(blocks: Sequence[BoundedBlock]) -> BoundedBlock:
    """The rows of blocks of one partition and interval that have no lists."""
    columns = {
        name: np.concatenate([getattr(block, name) for block in blocks])
        for name in ("window", "users", "weight", "sums")
    }
    return BoundedBlock(
        partition=blocks[0].partition,
        interval=blocks[0].interval,
        keys=list(chain.from_iterable([block.keys for block in blocks])),
        **columns,
    )
