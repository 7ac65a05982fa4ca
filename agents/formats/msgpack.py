"""Raw events in MessagePack, by the package msgpack.

Its bytes may ask for much: an array names its length before its items, and nests. What a payload of so many bytes cannot hold is
refused before anything is reserved for it.
"""

from collections.abc import Callable, Sequence
from importlib import import_module
from typing import Any, Final

from susurrus.agents.formats.format import ObjectFormat, RefusedPayload
from susurrus.mechanisms.errors import ConfigurationError
from susurrus.topics.records.fields import Path
from susurrus.topics.records.reason import Reason
from susurrus.topics.records.refusal import MAX_DEPTH
from susurrus.topics.records.seen import seen

_CONTAINERS: Final = bytes((*range(0x80, 0xA0), 0xDC, 0xDD, 0xDE, 0xDF))
"""First bytes of arrays and maps."""
_FEW: Final = 8
"""Arrays that may nest without a look at them: each can ask for eight times the payload."""
_SIZED: Final = {0xC4: 1, 0xC5: 2, 0xC6: 4, 0xD9: 1, 0xDA: 2, 0xDB: 4, 0xC7: 1, 0xC8: 2, 0xC9: 4}
"""First bytes of texts, bytes and extensions, and how many bytes say their length."""
_EXTENSIONS: Final = frozenset((0xC7, 0xC8, 0xC9))
"""Of these, those with one more byte for the type."""
_FIXED: Final = {
    0xC0: 0, 0xC2: 0, 0xC3: 0, 0xCA: 4, 0xCB: 8, 0xCC: 1, 0xCD: 2, 0xCE: 4, 0xCF: 8, 0xD0: 1, 0xD1: 2, 0xD2: 4, 0xD3: 8,
    0xD4: 2, 0xD5: 3, 0xD6: 5, 0xD7: 9, 0xD8: 17,
}  # fmt: skip
"""First bytes of all others, and how many bytes follow."""
_TIMESTAMPS: Final = 3
"""msgpack's number for datetimes in UTC, whose nanoseconds are cut."""


class MessagePack(ObjectFormat):
    """One map a record. Of two equal names the last counts. Whole numbers as names are their digits.

    Timestamps (extension -1) are instants; any other extension is its bytes. Raises ConfigurationError where the
    package is missing.
    """

    name = "msgpack"
    meaning = 'one MessagePack map a record; needs the extra `formats` (`pip install "susurrus[formats]"`)'

    def __init__(self, paths: Sequence[Path], setting: Any) -> None:
        super().__init__(paths, setting)
        try:
            self._unpack: Any = import_module("msgpack").unpackb
        except ImportError as error:
            raise ConfigurationError(
                f'input.format = "{self.name}": needs the package msgpack', "install susurrus[formats]"
            ) from error

    def parser_of(self, payload: bytes) -> tuple[bytes, Callable[[bytes], Any]]:
        """All are parsed alike."""
        return b"", self.parse

    def parse(self, payload: bytes) -> Any:
        """Parses as `ObjectFormat.parse` says."""
        if _is_costly(payload):
            check(payload)
        try:
            return self._unpack(
                payload,
                timestamp=_TIMESTAMPS,
                strict_map_key=False,
                object_pairs_hook=_object,
                ext_hook=_extension,
            )
        except UnicodeDecodeError:
            raise RefusedPayload(Reason.INVALID_UTF8) from None
        except Exception:
            found = seen(payload)
            raise RefusedPayload(Reason.UNDECODABLE if found in (None, Reason.MESSAGE_PACK) else found) from None


def _object(pairs: Sequence[tuple[Any, Any]]) -> dict[str, Any]:
    return {name if type(name) is str else _name(name): value for name, value in pairs}


def _name(name: Any) -> str:
    if type(name) is int:
        return str(name)
    if type(name) is bytes:  # what was written before the format had texts of its own
        return name.decode()
    raise ValueError("a name is no text")


def _extension(code: int, data: bytes) -> bytes:
    return data


def _is_costly(payload: bytes) -> bool:
    """Whether a payload must be walked: it may nest too deep, or ask for much more than it has bytes."""
    return (
        payload.count(0xDC) + payload.count(0xDD) > _FEW
        or len(payload) - len(payload.translate(None, _CONTAINERS)) > MAX_DEPTH
    )


def check(payload: bytes) -> None:
    """Raises RefusedPayload where a payload nests too deep or says that more follows than there are bytes. The time is linear."""
    left: list[int] = []  # values that are to come, of each array and map around
    wanted, at, size = 1, 0, len(payload)
    while wanted:
        if at + wanted > size:  # a value has one byte at least
            raise RefusedPayload(Reason.UNDECODABLE)
        first = payload[at]
        at, values = _behind(payload, at, first)
        wanted += values - 1
        if left:
            left[-1] -= 1
        if values:
            left.append(values)
            if len(left) > MAX_DEPTH:
                raise RefusedPayload(Reason.TOO_DEEP)
        while left and not left[-1]:
            left.pop()


def _behind(payload: bytes, at: int, first: int) -> tuple[int, int]:
    """Where a value ends, or a container's head; and how many values a container has."""
    at += 1
    if first < 0x80 or first >= 0xE0:
        return at, 0
    if first < 0x90:
        return at, 2 * (first & 0x0F)
    if first < 0xA0:
        return at, first & 0x0F
    if first < 0xC0:
        return at + (first & 0x1F), 0
    if first in _FIXED:
        return at + _FIXED[first], 0
    if first in _SIZED:
        width = _SIZED[first]
        return at + width + int.from_bytes(payload[at : at + width], "big") + (first in _EXTENSIONS), 0
    if first == 0xC1:  # never used
        raise RefusedPayload(Reason.UNDECODABLE)
    width = 2 if first in (0xDC, 0xDE) else 4
    number = int.from_bytes(payload[at : at + width], "big")
    return at + width, number if first in (0xDC, 0xDD) else 2 * number
