"""Logical types of Avro that fastavro does not know, as it would read them.

They are set, whatever a later version of fastavro may do: what a record is read as must not depend on that.
"""

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any, Final
from uuid import UUID

_EPOCH: Final = datetime(1970, 1, 1)


def _nanoseconds(value: int, *schemas: Any) -> datetime:
    """Cut to microseconds, before 1970, too: finer digits are beyond what instants are compared by."""
    return (_EPOCH + timedelta(microseconds=value // 1_000)).replace(tzinfo=UTC)


def _local_nanoseconds(value: int, *schemas: Any) -> datetime:
    return _EPOCH + timedelta(microseconds=value // 1_000)


def _uuid(value: bytes, *schemas: Any) -> UUID:
    return UUID(bytes=value)


READERS: Final[dict[str, Callable[..., Any]]] = {
    "long-timestamp-nanos": _nanoseconds,
    "long-local-timestamp-nanos": _local_nanoseconds,
    "fixed-uuid": _uuid,
}
"""By the names that fastavro has for them: the type and the logical type."""
