"""What a payload that a format refused looks like, so that its dead letter names it and the setting that reads it.

Only refused payloads come here, so nothing in this file decides what is accepted. The first bytes are compared with what
serializers and compressors write there.
"""

from typing import Final

from susurrus.topics.records.reason import Reason

GZIP: Final = b"\x1f\x8b\x08"
ZSTD: Final = b"\x28\xb5\x2f\xfd"
_BYTE_ORDER_MARKS: Final = (b"\xff\xfe", b"\xfe\xff")
_LOOKED_AT: Final = 16
"""Bytes in which every other one is 0, if a text in UTF-16 begins with characters of ASCII."""
_MAPS: Final = {**dict.fromkeys(range(0x81, 0x90), 1), 0xDE: 3, 0xDF: 5}
"""First bytes of MessagePack's maps, and where their first key begins."""
_TEXTS: Final = frozenset((*range(0xA0, 0xC0), 0xD9, 0xDA, 0xDB))
"""First bytes of MessagePack's texts."""
_ID: Final = slice(1, 5)
_IDS: Final = 1 << 31
_SINGLE_OBJECT: Final = b"\xc3\x01"
_GLUE: Final = (b"\x03\x00", b"\x03\x05")


def seen(payload: bytes) -> Reason | None:
    """The reason that names what a refused payload is; None where it looks like nothing known."""
    if payload.startswith((GZIP, ZSTD)):
        return Reason.COMPRESSED
    if payload.startswith(_BYTE_ORDER_MARKS) or _has_every_other_zero(payload[:_LOOKED_AT]):
        return Reason.UTF16
    key = _MAPS.get(payload[0]) if payload else None
    if key is not None and len(payload) > key and payload[key] in _TEXTS:
        return Reason.MESSAGE_PACK
    return framing_seen(payload)


def framing_seen(payload: bytes) -> Reason | None:
    """The framing that a payload seems to have. Ids of schemas begin with 1, in Confluent's registry and in Apicurio's."""
    if payload[:2] == _SINGLE_OBJECT and len(payload) >= 10:
        return Reason.FRAMING_SINGLE_OBJECT
    if payload[:2] in _GLUE and len(payload) >= 18:
        return Reason.FRAMING_GLUE
    if payload[:1] != b"\0" or len(payload) < 5:
        return None
    number = int.from_bytes(payload[_ID], "big")
    if number == 0:
        return Reason.FRAMING_APICURIO if len(payload) >= 9 and any(payload[5:9]) else None
    return Reason.FRAMING_CONFLUENT if number < _IDS else None


def _has_every_other_zero(start: bytes) -> bool:
    halves = start[::2], start[1::2]
    zeros, others = halves if start[:1] == b"\0" else halves[::-1]
    return len(start) >= 4 and len(zeros) == len(others) and not any(zeros) and 0 not in others
