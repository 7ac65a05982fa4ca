"""Raw events as JSON values on lines: several records that their producer wrote into one."""

from typing import Any

import msgspec

from susurrus.agents.formats.format import ObjectFormat, RefusedPayload
from susurrus.agents.formats.texts import value_of, without_mark
from susurrus.topics.records.reason import Reason
from susurrus.topics.records.refusal import reason_of, too_deep
from susurrus.topics.records.seen import seen

_decode = msgspec.json.Decoder().decode


class JsonLines(ObjectFormat):
    """Each line is read by itself: a bad one is an item that is refused, and no other."""

    name = "json-lines"
    meaning = (
        "JSON values, one a line, and empty lines are passed over; several lines are taken apart by "
        '`input.each = { of = "$value" }`, and a bad line is a dead letter of its own'
    )
    is_text = True
    has_lines = True

    def parse(self, payload: bytes) -> Any:
        """Parses as `ObjectFormat.parse` says."""
        lines = without_mark(payload).split(b"\n")
        items = [_item(line) for line in lines if line and not line.isspace()]
        whole = () in self.paths
        # Compressed bytes have line ends, too, wherever they come.
        if len(items) > 1 and not whole and (reason := seen(payload)) is not None:
            raise RefusedPayload(reason)
        return value_of(items, whole=whole)


def _item(line: bytes) -> Any:
    if too_deep(line):
        return Reason.TOO_DEEP
    try:
        return _decode(line)
    except (msgspec.MsgspecError, ValueError, RecursionError):
        return reason_of(line, [()])
