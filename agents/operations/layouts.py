"""How values seem to be written: compression, encoding and framing by their first bytes and headers, then each format in turn."""

from collections import Counter
from collections.abc import Sequence
from contextlib import closing
from typing import Final

from susurrus.agents.formats import FORMATS
from susurrus.agents.formats.compression import MAX_VALUE_BYTES, either
from susurrus.agents.formats.csv import Csv
from susurrus.agents.formats.framing import FRAMINGS, Framing, Unframed, other_framing
from susurrus.agents.formats.json import Json
from susurrus.agents.formats.json_lines import JsonLines
from susurrus.agents.formats.msgpack import MessagePack
from susurrus.agents.formats.schemas import RegistrySettings
from susurrus.agents.formats.text import Text
from susurrus.agents.kafka.messages import ReadRecord
from susurrus.agents.operations.registered import NoAnswer, RegisteredSchemas
from susurrus.agents.operations.whole_values import MOST, Layout, is_read, read_whole, section_of, share
from susurrus.topics.records.reason import Reason
from susurrus.topics.records.seen import seen
from susurrus.topics.wire.batch_reader import Headers

_MARKED: Final = {b"\xff\xfe": "utf-16", b"\xfe\xff": "utf-16"}
_DELIMITERS: Final = "\t,;|"


def layout_of(records: Sequence[ReadRecord], registry: RegistrySettings | None, notes: list[str]) -> Layout:
    """The settings; ``notes`` takes what is missing."""
    layout: Layout = {}
    bodies = [either(record.value or b"", MAX_VALUE_BYTES) for record in records]
    if any(body != record.value for body, record in zip(bodies, records, strict=True)):
        layout["compression"] = "auto"
    good = [(body, record) for body, record in zip(bodies, records, strict=True) if isinstance(body, bytes) and body]
    if not good:
        return layout
    if encoding := _encoding([body for body, _ in good]):
        layout["encoding"] = encoding
    headers = [record.headers for _, record in good]
    name, reason = (None, None) if encoding else framing_of([body for body, _ in good], headers, "value")
    if reason is not None and name is None:
        notes.append(f"the values cannot be read: {reason.message}; {reason.advice}")
        return layout
    some = [record for _, record in good]
    if name is None:
        return layout | _unframed(layout, some, [body for body, _ in good], notes)
    return layout | _framed(FRAMINGS[name], layout, [body for body, _ in good], some, registry, notes)


def _encoding(bodies: Sequence[bytes]) -> str | None:
    """The name of an encoding of two bytes, where most texts seem to be in it."""
    votes: Counter[str | None] = Counter()
    for body in bodies:
        half = "utf-16-be" if body[:1] == b"\0" else "utf-16-le"
        votes[_MARKED.get(body[:2], half) if seen(body) == Reason.UTF16 else None] += 1
    name, number = votes.most_common(1)[0]
    return name if number >= MOST * len(bodies) else None


def framing_of(bodies: Sequence[bytes], headers: Sequence[Headers], part: str) -> tuple[str | None, Reason | None]:
    """(name, reason) of the framing that most payloads have; no name where nothing here reads it, neither where there is none."""
    unframed = FRAMINGS[Unframed.name]
    votes = Counter(other_framing(unframed, body, beside, part) for body, beside in zip(bodies, headers, strict=True))
    reason, number = votes.most_common(1)[0] if votes else (None, 0)
    if reason is None or number < MOST * len(bodies):
        return None, None
    return next((name for name, framing in FRAMINGS.items() if framing.seen == reason), None), reason


def _framed(
    framing: Framing,
    layout: Layout,
    bodies: Sequence[bytes],
    records: Sequence[ReadRecord],
    registry: RegistrySettings | None,
    notes: list[str],
) -> Layout:
    own = {"framing": framing.name}
    as_json = {"format": Json.name, **own}
    if _read_share(layout | as_json, None, records) >= MOST:
        return own  # JSON is the default, and needs no registry
    if not framing.asks:
        notes.append(f"the values have {framing.meaning}: set input.format and input.schema_file")
        return own
    if registry is None:
        notes.append(f"the values name a registered schema ({framing.name}): give the registry's address")
        return own
    try:
        with closing(RegisteredSchemas(registry)) as schemas:
            for body, record in zip(bodies, records, strict=True):
                if (found := schemas.layout_of(framing, body, record.headers, "value")) is not None:
                    return _usual(found | own)
    except NoAnswer as error:
        notes.append(str(error))
        return own
    notes.append("the registry does not know the schemas of the records: correct input.registry.url")
    return own


def _usual(layout: Layout) -> Layout:
    """Without the framing that a format has by default."""
    form = FORMATS[layout["format"]]
    return {name: value for name, value in layout.items() if name != "framing" or value != form.framings[0]}


def _unframed(layout: Layout, records: Sequence[ReadRecord], bodies: Sequence[bytes], notes: list[str]) -> Layout:
    shares = {name: _read_share(layout | {"format": name}, None, records) for name in (Json.name, JsonLines.name)}
    if "encoding" not in layout:
        shares[MessagePack.name] = _read_share(layout | {"format": MessagePack.name}, None, records, of=(dict, list))
    best = max(shares, key=lambda name: shares[name])
    if shares[best] >= MOST:
        return {} if best == Json.name else {"format": best}
    texts = [
        value
        for value in read_whole(section_of(layout | {"format": Text.name}, None), records)
        if isinstance(value, str)
    ]
    if len(texts) < MOST * len(records):
        notes.append(
            "the values are bytes that nothing names: set input.format, and what it needs (docs/formats.md), yourself"
        )
        return {}
    if (separated := _separated(texts)) is not None:
        delimiter, number = separated
        notes.append("input.columns: nothing in the records names their columns; name them in their order")
        columns = tuple(f"field_{place}" for place in range(1, number + 1))
        found: Layout = {"format": Csv.name, "columns": columns}
        return found if delimiter == "," else found | {"delimiter": delimiter}
    notes.append("input.pattern: name the parts of the text by a regular expression with named groups")
    return {"format": Text.name}


def _separated(texts: Sequence[str]) -> tuple[str, int] | None:
    """(delimiter, number of columns), where each line has as many."""
    lines = [line for text in texts for line in text.splitlines() if line]
    for delimiter in _DELIMITERS:
        number, hits = Counter(line.count(delimiter) for line in lines).most_common(1)[0]
        if number and hits >= 0.9 * len(lines) and len(lines) > 1:
            return delimiter, number + 1
    return None


def _read_share(
    layout: Layout, registry: RegistrySettings | None, records: Sequence[ReadRecord], of: tuple[type, ...] = (object,)
) -> float:
    """The share of records that are read with a layout."""
    return share(
        isinstance(value, of) and is_read(value) for value in read_whole(section_of(layout, registry), records)
    )
