"""What formats of text have in common: the characters of a payload, and values of several lines.

A value of several lines is a list of items: `input.each = { of = "$value" }` takes it apart, and an item that is a Reason becomes a
dead letter of its own. Where a field of the value is asked for, the value must have one line.
"""

from codecs import BOM_UTF8
from collections.abc import Sequence
from typing import Any, Final

from susurrus.agents.formats.format import RefusedPayload
from susurrus.topics.records.reason import Reason
from susurrus.topics.records.seen import seen

BYTE_ORDER_MARK: Final = "\ufeff"


def characters(payload: bytes) -> str:
    """A payload in UTF-8 without its byte order mark. Raises RefusedPayload, also where that is empty."""
    try:
        text = payload.decode()
    except UnicodeDecodeError:
        raise RefusedPayload(seen(payload) or Reason.INVALID_UTF8) from None
    text = text.removeprefix(BYTE_ORDER_MARK)
    if not text:
        raise RefusedPayload(Reason.EMPTY)
    return text


def without_mark(payload: bytes) -> bytes:
    """The same of bytes that need not be text."""
    return payload.removeprefix(BOM_UTF8)


def value_of(items: Sequence[Any], *, whole: bool) -> Any:
    """The value of a payload with some lines. whole: whether it is asked for as a list. Raises RefusedPayload."""
    if not items:
        raise RefusedPayload(Reason.EMPTY)
    if whole:
        return items
    if len(items) > 1:
        raise RefusedPayload(Reason.SEVERAL_LINES)
    if isinstance(items[0], Reason):
        raise RefusedPayload(items[0])
    return items[0]
