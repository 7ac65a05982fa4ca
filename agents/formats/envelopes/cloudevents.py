"""CloudEvents in the two ways of its Kafka protocol binding: attributes beside the data in one object, or in the headers."""

from binascii import a2b_base64
from typing import Any, Final

import msgspec

from susurrus.agents.formats.envelopes.envelope import Envelope
from susurrus.topics.records.payloads import Enveloped
from susurrus.topics.records.reason import Reason
from susurrus.topics.records.refusal import reason_of, too_deep
from susurrus.topics.wire.batch_reader import Headers

_PREFIX: Final = "ce_"
_VERSION: Final = "specversion"
_DATA: Final = ("data", "data_base64")


class CloudEvents(Envelope):
    """Each record says by itself in which of the two ways it is written. A header counts by its last value."""

    name = "cloudevents"
    meaning = (
        "CloudEvents, structured (one JSON object) and binary (headers `ce_…`): the value is the data, and `$envelope.type`, "
        "`$envelope.time` and all other attributes are beside it in both"
    )
    reads_headers = True

    def unwrap(self, value: Any, headers: Headers) -> Enveloped | Reason:
        """The data, and the attributes."""
        found = dict(headers)
        # The version is required, and left out by producers that do not use the library.
        if any(found.get(_PREFIX + name) is not None for name in (_VERSION, "type")):
            return _binary(value, found)
        if not isinstance(value, dict) or not isinstance(value.get(_VERSION), str):
            return Reason.NO_ENVELOPE
        around = {name: inner for name, inner in value.items() if name not in _DATA}
        data = value.get("data")
        if data is None and "data_base64" in value:
            data = _decoded(value["data_base64"], around.get("datacontenttype"))
        return Enveloped(None, around, data) if isinstance(data, Reason) else Enveloped(data, around)


def _binary(value: Any, headers: dict[str, bytes | None]) -> Enveloped | Reason:
    around: dict[str, Any] = {}
    try:
        for name, text in headers.items():
            if name.startswith(_PREFIX) and text is not None:
                around[name.removeprefix(_PREFIX)] = text.decode()
        if (kind := headers.get("content-type")) is not None:
            around["datacontenttype"] = kind.decode()
    except UnicodeDecodeError:
        return Reason.INVALID_UTF8
    return Enveloped(value, around)


def _decoded(text: Any, kind: Any) -> Any:
    """Data that is written as bytes: JSON where the content type says so, else the bytes."""
    try:
        data = a2b_base64(text, strict_mode=True)
    except (ValueError, TypeError):
        return Reason.WRONG_TYPE
    if not _is_json(kind):
        return data
    if too_deep(data):
        return Reason.TOO_DEEP
    try:
        return msgspec.json.decode(data)
    except (msgspec.MsgspecError, ValueError, RecursionError):
        return reason_of(data, [()])


def _is_json(kind: Any) -> bool:
    """Whether a content type is JSON; without one it is, as the specification says."""
    if kind is None:
        return True
    name = kind.partition(";")[0].strip().lower() if isinstance(kind, str) else ""
    return name in ("application/json", "text/json") or name.endswith("+json")
