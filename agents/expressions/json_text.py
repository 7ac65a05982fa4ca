"""A list or an object of a record as the text that the JSON functions of expressions take.

Names and items stand in their order. Numbers have the shortest digits that read back the same. What only schemas know is written as
users and keys are: bytes as hexadecimal digits, decimals as numbers, UUIDs and instants as texts.
"""

from collections.abc import Mapping
from datetime import UTC, date, datetime
from datetime import time as clock_time
from typing import Any, Final

import msgspec
import numpy as np
from msgspec import UNSET

from susurrus.topics.records.fields import plain
from susurrus.topics.records.reason import Reason
from susurrus.topics.records.refusal import MAX_DEPTH

_ENCODER: Final = msgspec.json.Encoder()
_AS_IT_IS: Final = frozenset((str, bool, type(None)))


class _Refused(Exception):
    """A value that no text can have. reason: why."""

    def __init__(self, reason: Reason) -> None:
        super().__init__(reason.name)
        self.reason = reason


def json_text(value: Any) -> str | Reason:
    """The text, or why there is none. Never raises for what a record holds."""
    try:
        return _ENCODER.encode(_plain(value, 0)).decode()
    except _Refused as refused:
        return refused.reason
    except ValueError:  # a lone surrogate, or an instant that is in no year in UTC
        return Reason.EXPRESSION_FAILED
    except OverflowError:
        return Reason.EXPRESSION_FAILED


def iso(value: datetime | date | clock_time) -> str:
    """An instant, a day or a time of day as ISO 8601, instants in UTC. Raises OverflowError where it is in no year there."""
    if isinstance(value, datetime) and value.tzinfo is not None:
        value = value.astimezone(UTC).replace(tzinfo=None)
    return value.isoformat()


def _plain(value: Any, depth: int) -> Any:
    """What JSON can hold. Loops instead of comprehensions: each level takes one call."""
    kind = type(value)
    if kind in _AS_IT_IS:
        return value
    if kind is int:
        if not -(2**63) <= value < 2**64:
            raise _Refused(Reason.INTEGER_TOO_LARGE)
        return value
    if kind is float:
        if not np.isfinite(value):
            raise _Refused(Reason.NOT_FINITE)
        return value
    if depth > MAX_DEPTH:
        raise _Refused(Reason.TOO_DEEP)
    if kind is list or kind is tuple:
        items = []
        for item in value:
            items.append(_plain(item, depth + 1))
        return items
    if isinstance(value, Mapping):
        members = {}
        for name, item in value.items():
            if type(name) is not str:
                raise _Refused(Reason.WRONG_TYPE)
            members[name] = _plain(item, depth + 1)
        return members
    return _of_schemas(value)


def _of_schemas(value: Any) -> Any:
    if value is UNSET:
        return None
    if isinstance(value, bytes):
        return value.hex()
    if isinstance(value, datetime | date | clock_time):
        return iso(value)
    number = plain(value)
    if type(number) is float and not np.isfinite(number):
        raise _Refused(Reason.NOT_FINITE)
    if type(number) not in (int, float, str):
        raise _Refused(Reason.WRONG_TYPE)
    return number
