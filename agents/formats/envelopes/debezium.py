"""Debezium's change events: the row before and after a change, what changed it, and where it comes from.

An update names its row twice, and may move it from one user to another. The record belongs to the user of the unwrapped row alone
(docs/formats.md).
"""

from typing import Any, Final

import msgspec

from susurrus.agents.formats.envelopes.connect import is_wrapped, payload_of, schema_name
from susurrus.agents.formats.envelopes.envelope import Envelope
from susurrus.topics.records.payloads import Enveloped
from susurrus.topics.records.reason import Reason
from susurrus.topics.records.refusal import too_deep
from susurrus.topics.wire.batch_reader import Headers

_DELETE: Final = "d"
_CHANGES: Final = frozenset(("c", "r", "u", _DELETE))
_NOT_ROWS: Final = frozenset(("t", "m"))
"""A table was emptied, a message was written to the database's log: no row changed."""


class Debezium(Envelope):
    """With the schema and payload of Connect's JsonConverter around each event, or without; each record says which."""

    name = "debezium"
    meaning = (
        "Debezium's change events: the value is `after`, or `before` of a delete; `$envelope.op`, `$envelope.source.table`, "
        "`$envelope.ts_ms` are beside it; tombstones, truncations and messages are left out as filtered; the schema in a record "
        "is followed as with `connect`"
    )
    tombstone = Reason.FILTERED  # it follows each delete, for compaction, and says nothing new

    def unwrap(self, value: Any, headers: Headers) -> Enveloped | Reason:
        """The row, and the whole event around it."""
        name = None
        if is_wrapped(value):
            value, name = payload_of(value), schema_name(value)
        if value is None:
            return self.tombstone
        op = value.get("op") if isinstance(value, dict) else None
        if not isinstance(op, str) or not (op in _NOT_ROWS or (op in _CHANGES and value.keys() & {"before", "after"})):
            return Reason.NO_ENVELOPE
        around = value if name is None else {"schema": name, **value}
        if op in _NOT_ROWS:
            return Enveloped(None, around, Reason.FILTERED)
        row = _row(value.get("before" if op == _DELETE else "after"))
        return Enveloped(None, around, row) if isinstance(row, Reason) else Enveloped(row, around)


def _row(row: Any) -> Any:
    """The row, or why there is none. MongoDB's connector writes documents as texts."""
    if row is None:  # a delete, where the database does not log the row as it was
        return Reason.NO_ENVELOPE
    if not isinstance(row, str):
        return row
    text = row.encode(errors="replace")
    if too_deep(text):
        return Reason.TOO_DEEP
    try:
        return msgspec.json.decode(text)
    except (msgspec.MsgspecError, ValueError, RecursionError):
        return Reason.NOT_JSON
