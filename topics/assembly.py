"""From the pieces of a batch to whole columns: reasons, codes and items of the accepted rows, bad rows set apart."""

import numpy as np
import numpy.typing as npt

from susurrus.topics.categories import Categories, combine, mark_too_large, renumber
from susurrus.topics.packing import Int32s, Int64s

Reasons = npt.NDArray[np.uint8]


def note(reason: Reasons, found: npt.NDArray[np.integer]) -> None:
    """The first reason of a row stands."""
    np.copyto(reason, found.astype(np.uint8), where=reason == 0)


def collect(chunks: list[tuple[Int64s, Reasons]], reason: Reasons) -> Int64s:
    if not chunks:
        return np.zeros(0, np.int64)
    note(reason, np.concatenate([found for _, found in chunks]))
    return np.concatenate([numbers for numbers, _ in chunks])


def resolve(
    parts: list[Categories], chunks: list[list[Int32s]], reason: Reasons, limit: int
) -> tuple[Int32s, list[bytes]]:
    """Codes and canonical bytes of a user (one part) or key (one or more); codes of bad rows mean nothing."""
    codes: list[Int32s] = []
    items: list[list[bytes]] = []
    for categories, pieces in zip(parts, chunks, strict=True):
        code = np.concatenate(pieces) if pieces else np.zeros(0, np.int32)
        canonical, why = categories.finish()
        if code.size and int(code.min()) < 0:
            note(reason, np.maximum(-code, 0))
            code = np.maximum(code, 0)
        if why.any():
            note(reason, why[code])
        codes.append(code)
        items.append(canonical or [b"null"] * bool(code.size))  # something to point at when all rows are bad
    if len(codes) == 1:
        return codes[0], items[0]
    combined, members = codes[0].astype(np.int64), [np.arange(len(items[0]), dtype=np.int32)]
    for code, canonical in zip(codes[1:], items[1:], strict=True):
        combined, before, last = combine(combined, code, len(canonical))
        members = [*(member[before] for member in members), last]
    texts = [[canonical[i] for i in member.tolist()] for canonical, member in zip(items, members, strict=True)]
    keys = [b"[" + b",".join(scalars) + b"]" for scalars in zip(*texts, strict=True)]
    why = np.zeros(len(keys), np.int32)
    mark_too_large(keys, limit, why)
    if why.any():
        note(reason, why[combined])
    return combined.astype(np.int32), keys


def spread(codes: Int32s, items: list[bytes], good: npt.NDArray[np.bool_]) -> tuple[Int32s, list[bytes]]:
    """Codes of the good rows at their rows, -1 elsewhere, with only the items they use."""
    renumbered, rows = renumber(codes)
    spread = np.full(good.size, -1, np.int32)
    spread[good] = renumbered
    return spread, [items[i] for i in codes[rows].tolist()]
