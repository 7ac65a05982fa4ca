"""Texts that are not in UTF-8: from the encoding of a payload to UTF-8, which formats of text read."""

import codecs
from collections.abc import Callable
from functools import partial
from typing import Final, NamedTuple

from susurrus.topics.records.reason import Reason


class Encoding(NamedTuple):
    """One encoding. read: the same text in UTF-8, or why there is none; None where it is in UTF-8."""

    meaning: str
    read: Callable[[bytes], bytes | Reason] | None


def _decoded(payload: bytes, name: str) -> bytes | Reason:
    try:
        return payload.decode(name).encode()
    except UnicodeError:
        return Reason.INVALID_UTF8


def _marked(payload: bytes) -> bytes | Reason:
    """By the byte order mark. Python's own way without one depends on the machine."""
    if payload.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        return _decoded(payload, "utf-16")
    return Reason.INVALID_UTF8


UTF8: Final = "utf-8"
ENCODINGS: Final = {
    UTF8: Encoding("a byte order mark is passed over", None),
    "utf-16": Encoding("each value begins with a byte order mark", _marked),
    "utf-16-le": Encoding("little-endian", partial(_decoded, name="utf-16-le")),
    "utf-16-be": Encoding("big-endian", partial(_decoded, name="utf-16-be")),
    "iso-8859-1": Encoding("Latin 1", partial(_decoded, name="iso-8859-1")),
    "windows-1252": Encoding("Western Windows", partial(_decoded, name="windows-1252")),
}
"""By their names in the configuration."""
