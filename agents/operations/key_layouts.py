"""How keys seem to be written, and what each of them is."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from typing import Any

from msgspec import UNSET

from susurrus.agents.formats import decoder_of
from susurrus.agents.formats.beside import KEY, Beside
from susurrus.agents.formats.format import Format
from susurrus.agents.formats.framing import FRAMINGS
from susurrus.agents.formats.json import Json
from susurrus.agents.formats.keys import SCALAR_KEYS, TEXT
from susurrus.agents.formats.schemas import RegistrySettings
from susurrus.agents.kafka.messages import ReadRecord
from susurrus.agents.operations.layouts import framing_of
from susurrus.agents.operations.registered import NoAnswer, RegisteredSchemas
from susurrus.agents.operations.whole_values import MOST, SNIFFED, section_of, share
from susurrus.mechanisms.errors import ConfigurationError

_UUID_BYTES, _LONG_BYTES, _INTEGER_BYTES = 16, 8, 4


def keys_of(
    records: Sequence[ReadRecord], registry: RegistrySettings | None, given: str | None = None
) -> tuple[str, list[Any]]:
    """The format of the records' keys, and what each of them is: UNSET where it cannot be read, None where there is none.

    given: the file's format, which counts where it reads most of the keys.
    """
    some = [record for record in records if record.key is not None]
    framed = framing_of([record.key or b"" for record in some], [record.headers for record in some], "key")[0]
    if given is not None and not (framed and registry is not None and given in SCALAR_KEYS):
        keys = _keys(records, given, registry)
        if share(key is not UNSET for key in keys if key is not None) >= MOST or not some:
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
    name, _ = framing_of(keys, [record.headers for record in records], "key")
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
