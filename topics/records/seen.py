"""What a payload that a format refused looks like: so its dead letter can say what it is, and which setting reads it.

Nothing here decides what is accepted. The first bytes are compared with what serializers write before a record.
"""

from typing import Final

from susurrus.topics.records.reason import Reason

_ID: Final = slice(1, 5)
_IDS: Final = 1 << 31
_SINGLE_OBJECT: Final = b"\xc3\x01"
_GLUE: Final = (b"\x03\x00", b"\x03\x05")


def seen(payload: bytes) -> Reason | None:
    """The reason that names what a refused payload seems to be, None where it looks like nothing known."""
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
