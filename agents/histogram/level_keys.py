"""Keys of grouping sets: a key of the raw records becomes one key per level, and a level's key a key and a level of a row.

    raw key ["DE","Berlin"] ──LevelKeys.of──▶ ["a","DE"], ["b","DE","Berlin"], ["c"] ──public──▶ level, ["DE",null], ...

The letter is part of the key everywhere inside the pipeline: users' lists, states, published keys, addresses of noise. So keys of
two levels are two keys, also where their parts are equal. Keys stay canonical JSON, so no codec knows of levels.
"""

from collections.abc import Callable, Iterable, Sequence

import msgspec

from susurrus.mechanisms.histogram.levels import FIRST_LETTER, level_of

_REMEMBERED, _REMEMBERED_BYTES = 1 << 17, 1 << 23
"""Keys of each level that are remembered, and the bytes of these keys."""

_PARTS = msgspec.json.Decoder(list[msgspec.Raw])


def parts_of(key: bytes) -> list[bytes]:
    """The parts of a raw key, each as it is written: a key of one part is a scalar."""
    return list(map(bytes, _PARTS.decode(key))) if key.startswith(b"[") else [key]


def level_key(level: int, parts: Iterable[bytes]) -> bytes:
    """The key of a level, from its parts."""
    return b'["%c"%s]' % (FIRST_LETTER + level, b"".join(b"," + part for part in parts))


class LevelKeys:
    """The keys of levels. parts: by level, which parts of the raw key it groups by. What is remembered changes no result."""

    def __init__(self, parts: Sequence[Sequence[int]]) -> None:
        self._parts = parts
        self._known: dict[bytes, list[bytes]] = {}
        self._bytes = 0

    def of(self, keys: Sequence[bytes]) -> list[list[bytes]]:
        """By level, the key of each raw key."""
        known = self._known
        found = list(map(known.get, keys))
        for at, levels in enumerate(found):
            if levels is None:
                found[at] = known[keys[at]] = self._of(keys[at])
                self._bytes += len(keys[at])
        if len(known) > _REMEMBERED or self._bytes > _REMEMBERED_BYTES:
            self._known, self._bytes = {}, 0
        return [[levels[level] for levels in found if levels is not None] for level in range(len(self._parts))]

    def _of(self, key: bytes) -> list[bytes]:
        parts = parts_of(key)
        return [level_key(level, (parts[at] for at in of)) for level, of in enumerate(self._parts)]


def declared(keys: Iterable[bytes], parts: Sequence[Sequence[int]]) -> tuple[bytes, ...]:
    """The declared keys of all levels: those of declared raw keys, and the one key of a level without parts."""
    found = {key for levels in map(LevelKeys(parts)._of, keys) for key in levels}
    return tuple(sorted(found | {level_key(level, ()) for level, of in enumerate(parts) if not of}))


class PublicKeys:
    """What rows say of levels' keys. names: of the levels. parts: as for `LevelKeys`. arity: parts of the raw key."""

    def __init__(self, names: Sequence[str], parts: Sequence[Sequence[int]], arity: int) -> None:
        self._names = [msgspec.json.encode(name) for name in names]
        self._writers = [_writer(of, arity) for of in parts]

    def of(self, keys: Sequence[bytes]) -> tuple[list[bytes], list[bytes]]:
        """(the level's name as JSON, the key with null for each part that the level leaves out), by row."""
        levels = level_of(keys).tolist()
        return (
            [self._names[level] for level in levels],
            [self._writers[level](key) for level, key in zip(levels, keys, strict=True)],
        )


def _writer(parts: Sequence[int], arity: int) -> Callable[[bytes], bytes]:
    if arity == 1:
        return (lambda key: key[5:-1]) if parts else (lambda key: b"null")
    if list(parts) == list(range(len(parts))):
        rest = b",".join([b"null"] * (arity - len(parts)))
        if not parts:
            return lambda key: b"[" + rest + b"]"
        tail = b"," + rest + b"]" if rest else b"]"
        return lambda key: b"[" + key[5:-1] + tail

    def write(key: bytes) -> bytes:
        found = [b"null"] * arity
        for at, part in zip(parts, _PARTS.decode(key)[1:], strict=True):
            found[at] = bytes(part)
        return b"[" + b",".join(found) + b"]"

    return write
