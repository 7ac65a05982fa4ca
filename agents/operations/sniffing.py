"""How records seem to be written, found by reading some of them: the settings of `[input]` with which the formats read them.

some records ──compression, encoding, framing by their first bytes and headers──▶ ──each format in turn──▶ values ──envelopes──▶

What is found is a proposal for an operator. It decides nothing about records, and no record raises anything here.
"""

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from typing import Any, Final

from msgspec import UNSET

from susurrus.agents.config.input import InputSettings
from susurrus.agents.formats import FORMATS, decoder_of
from susurrus.agents.formats.beside import KEY, Beside
from susurrus.agents.formats.compression import MAX_VALUE_BYTES, either
from susurrus.agents.formats.csv import Csv
from susurrus.agents.formats.envelopes import ENVELOPES
from susurrus.agents.formats.envelopes.envelope import Bare
from susurrus.agents.formats.format import Format, Headers
from susurrus.agents.formats.framing import FRAMINGS, Framing, Unframed, other_framing
from susurrus.agents.formats.json import Json
from susurrus.agents.formats.json_lines import JsonLines
from susurrus.agents.formats.keys import SCALAR_KEYS, TEXT
from susurrus.agents.formats.msgpack import MessagePack
from susurrus.agents.formats.schemas import RegistrySettings
from susurrus.agents.formats.text import Text
from susurrus.agents.kafka.messages import ReadRecord
from susurrus.agents.operations.registered import NoAnswer, RegisteredSchemas
from susurrus.mechanisms.errors import ConfigurationError
from susurrus.topics.records.payloads import Enveloped
from susurrus.topics.records.reason import Reason
from susurrus.topics.records.seen import seen

Layout = dict[str, Any]
"""Entries of `[input]` that differ from their defaults."""
SNIFFED: Final = 200
"""Records that are read once for each format."""
_MOST: Final = 0.5
"""The share of records from which on something is taken for all."""
_MARKED: Final = {b"\xff\xfe": "utf-16", b"\xfe\xff": "utf-16"}
_DELIMITERS: Final = "\t,;|"
_UUID_BYTES, _LONG_BYTES, _INTEGER_BYTES = 16, 8, 4


@dataclass(slots=True)
class SniffedValues:
    """What the values of records are. layout: how they are read, as far as that differs from the file's. values: one for each
    record that has one, the Reason where it cannot be read. around: what an envelope says around each. notes: what an operator
    has to add, a sentence each. sniffed: whether the layout was found, as the file's reads less than half of the records."""

    layout: Layout
    values: list[Any] = field(default_factory=list)
    around: list[Mapping[str, Any]] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    sniffed: bool = True


def values_of(
    records: Sequence[ReadRecord], registry: RegistrySettings | None, given: InputSettings | None = None
) -> SniffedValues:
    """How the values of records are written, and what they are.

    registry: where schemas are, if anywhere. given: `[input]` of a file, which counts where it reads most of the records.
    """
    filled = [record for record in records if record.value]
    form, envelopes = Json.name, [name for name in reversed(ENVELOPES) if name != Bare.name]
    found = SniffedValues({})
    if given is not None:
        found.values, form = _read(_bare(given), filled), given.format
        found.sniffed = bool(filled) and _share(map(is_read, found.values)) < _MOST
        if given.envelope != Bare.name:
            envelopes = [given.envelope, *envelopes]
    if found.sniffed:
        found.layout = _layout(filled[:SNIFFED], registry, found.notes)
        form = found.layout.get("format", Json.name)
        readable = "format" in found.layout or not found.notes or "framing" not in found.layout
        found.values = _read(section_of(found.layout, registry), filled) if readable else []
    found.values += [Reason.UNDECODABLE] * (len(filled) - len(found.values))
    found.around = [{} for _ in filled]
    for name in envelopes:  # what was made for one tool is before what others wrap, too
        unwrapped = [
            value if isinstance(value, Reason) else ENVELOPES[name]().unwrap(value, record.headers)
            for value, record in zip(found.values, filled, strict=True)
        ]
        if _share(isinstance(one, Enveloped) for one in unwrapped) >= _MOST:
            if given is None or name != given.envelope:
                found.layout["envelope"] = name
            found.values = [_inside(one) for one in unwrapped]
            found.around = [one.around if isinstance(one, Enveloped) else {} for one in unwrapped]
            break
    _take_lines_apart(found, lines=FORMATS[form].has_lines)
    return found


def _bare(given: InputSettings) -> InputSettings:
    """The file's section for values as they come."""
    return given.model_copy(update={"envelope": Bare.name, "each": (), "decimals": {}})


def section_of(layout: Layout, registry: RegistrySettings | None) -> InputSettings:
    """The section with a layout, for values as they come: lists, envelopes and fields are no part of it."""
    own = {name: value for name, value in layout.items() if name not in ("envelope", "each")}
    section = InputSettings.model_validate({"topic": "looked-at", **own})
    return section.model_copy(update={"registry": registry})


def _read(section: InputSettings, records: Sequence[ReadRecord]) -> list[Any]:
    """The whole value of each record, as its format reads it; the Reason where it does not. Nothing where a package is missing."""
    try:
        form = decoder_of(section, [()])
    except ConfigurationError:
        return []
    with closing(form):
        return _whole(form, [record.value for record in records], [record.headers for record in records])


def _whole(form: Format, payloads: Sequence[bytes | None], headers: Sequence[Headers]) -> list[Any]:
    found: list[Any] = []
    for chunk in form.read(payloads, lambda row: True, headers if form.reads_headers else None):
        column = iter(chunk.columns[0])
        found += [chunk.refused[row] if row in chunk.refused else next(column) for row in range(chunk.rows)]
    return found + [Reason.UNDECODABLE] * (len(payloads) - len(found))


def _inside(one: Any) -> Any:
    if isinstance(one, Enveloped):
        return one.value if one.reason == Reason.OK else one.reason
    return one


def is_read(value: Any) -> bool:
    """Whether a value could be read; of a list any of its members."""
    if isinstance(value, list) and value:
        return not all(isinstance(member, Reason) for member in value)
    return not isinstance(value, Reason)


def _share(hits: Any) -> float:
    found = list(hits)
    return sum(found) / len(found) if found else 0.0


# ---- values ----------------------------------------------------------------------------------------------------------


def _layout(records: Sequence[ReadRecord], registry: RegistrySettings | None, notes: list[str]) -> Layout:
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
    name, reason = (None, None) if encoding else _framing([body for body, _ in good], headers, "value")
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
    return name if number >= _MOST * len(bodies) else None


def _framing(bodies: Sequence[bytes], headers: Sequence[Headers], part: str) -> tuple[str | None, Reason | None]:
    """(name, reason) of the framing that most payloads have; no name where nothing here reads it, neither where there is none."""
    unframed = FRAMINGS[Unframed.name]
    votes = Counter(other_framing(unframed, body, beside, part) for body, beside in zip(bodies, headers, strict=True))
    reason, number = votes.most_common(1)[0] if votes else (None, 0)
    if reason is None or number < _MOST * len(bodies):
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
    if _read_share(layout | as_json, None, records) >= _MOST:
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
    if shares[best] >= _MOST:
        return {} if best == Json.name else {"format": best}
    texts = [
        value for value in _read(section_of(layout | {"format": Text.name}, None), records) if isinstance(value, str)
    ]
    if len(texts) < _MOST * len(records):
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
    return _share(isinstance(value, of) and is_read(value) for value in _read(section_of(layout, registry), records))


def _take_lines_apart(found: SniffedValues, *, lines: bool) -> None:
    """`input.each` is proposed where values are lists. lines: of lines; those of one are that line."""
    good = [value for value in found.values if not isinstance(value, Reason)]
    if _share(isinstance(value, list) for value in good) < _MOST:
        return
    if lines and all(isinstance(value, list) and len(value) == 1 for value in good):
        found.values = [value if isinstance(value, Reason) else value[0] for value in found.values]
    else:
        found.layout["each"] = {"of": "$value"}


# ---- keys ------------------------------------------------------------------------------------------------------------


def keys_of(
    records: Sequence[ReadRecord], registry: RegistrySettings | None, given: str | None = None
) -> tuple[str, list[Any]]:
    """The format of the records' keys, and what each of them is: UNSET where it cannot be read, None where there is none.

    given: the file's format, which counts where it reads most of the keys.
    """
    some = [record for record in records if record.key is not None]
    framed = _framing([record.key or b"" for record in some], [record.headers for record in some], "key")[0]
    if given is not None and not (framed and registry is not None and given in SCALAR_KEYS):
        keys = _keys(records, given, registry)
        if _share(key is not UNSET for key in keys if key is not None) >= _MOST or not some:
            return given, keys
    name = _key_format(some[:SNIFFED], registry) if some else TEXT.name
    return name, _keys(records, name, registry)


def _keys(records: Sequence[ReadRecord], name: str, registry: RegistrySettings | None) -> list[Any]:
    try:
        section = section_of({"key_format": name}, registry)
        key: str | Format = name if name in SCALAR_KEYS else decoder_of(section, [()], "key")
    except ConfigurationError:
        return [UNSET] * len(records)
    beside = Beside([KEY], key, topic=None, partition=None)
    with closing(beside):
        columns, _ = beside.columns(records, lambda row: True)
    return columns[KEY] + [UNSET] * (len(records) - len(columns[KEY]))


def _key_format(records: Sequence[ReadRecord], registry: RegistrySettings | None) -> str:
    keys = [record.key or b"" for record in records]
    name, _ = _framing(keys, [record.headers for record in records], "key")
    if name is not None and registry is not None:
        try:
            with closing(RegisteredSchemas(registry)) as schemas:
                for record in records:
                    found = schemas.layout_of(FRAMINGS[name], record.key or b"", record.headers, "key")
                    if found is not None:
                        return str(found["format"])
        except NoAnswer:
            pass
    tests: Iterator[tuple[str, Callable[[bytes], bool]]] = iter(
        (
            (Json.name, lambda key: key[:1] in (b"{", b"[", b'"')),
            (TEXT.name, _is_text),
            ("int32", lambda key: len(key) == _INTEGER_BYTES),
            ("int64", lambda key: len(key) == _LONG_BYTES),
            ("uuid", lambda key: len(key) == _UUID_BYTES),
        )
    )
    return next((form for form, fits in tests if all(map(fits, keys))), "none")


def _is_text(key: bytes) -> bool:
    try:
        return key.decode().isprintable()
    except UnicodeDecodeError:
        return False
