"""Raw events in Avro, by the schemas with which they were written; these come through confluent-kafka's registry client, or from a
file of the operator's. A schema in a file is the reader's, too: it gives defaults, aliases and the names that fields shall have.
"""

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from io import BytesIO
from typing import Any

from susurrus.agents.formats.avro_guard import PRIMITIVES, costly, long_at, short, walk
from susurrus.agents.formats.avro_programs import AvroPrograms
from susurrus.agents.formats.avro_types import READERS
from susurrus.agents.formats.format import Programs, RefusedPayload
from susurrus.agents.formats.framed import MEANING, FramedFormat
from susurrus.agents.formats.framing import (
    Apicurio,
    ApicurioContentId,
    ApicurioHeader,
    Confluent,
    ConfluentHeader,
    Framed,
    SchemaName,
    SingleObject,
    Unframed,
)  # fmt: skip
from susurrus.agents.formats.schemas import Other, RegistrySettings, Schemas
from susurrus.mechanisms.errors import ConfigurationError
from susurrus.topics.records.fields import Path
from susurrus.topics.records.payloads import Enveloped
from susurrus.topics.records.reason import Reason


class Avro(FramedFormat):
    """Avro by the writer's schema. setting: where that is found; None where the framing needs no registry.

    schema_file: the text of the reader's schema. With the framings of no registry it is the writer's, too; of a union, single
    objects may have each branch. Raises ConfigurationError where an optional package is missing, the registry's client refuses a
    property, or the file is no schema.
    """

    name = "avro"
    meaning = MEANING.format("the schemas with which records were written")
    setting = "registry"
    example = '[input.registry] url = "https://registry:8081"'
    packages = ("fastavro",)
    framings = tuple(
        one.name
        for one in (Confluent, ConfluentHeader, Apicurio, ApicurioContentId, ApicurioHeader, SingleObject, Unframed)
    )
    options = ("framing", "schema_file")
    around = ("schema",)

    def __init__(
        self,
        paths: Sequence[Path],
        setting: RegistrySettings | None,
        framing: str | None = None,
        schema_file: bytes | None = None,
    ) -> None:
        super().__init__(paths, setting, framing)
        (self._avro,) = self.modules
        readers = self._avro.read.LOGICAL_READERS
        readers.update(READERS)
        for name in ("bytes-decimal", "fixed-decimal"):
            if readers[name].__module__ != short.__module__:
                readers[name] = short(readers[name])
        self._names: dict[int, dict[str, Any]] = {}
        """The definitions of names in each schema. The key is the schema's identity: `Schemas` keeps what it found."""
        self._costly: set[int] = set()
        """The schemas whose payloads must be walked."""
        self._reader: Any = None if schema_file is None else self._of_file(schema_file)
        if self.framing.asks and setting is not None:
            self.patience = setting.patience
            # As fastavro parses them; None for one that is not Avro's.
            self.schemas = Schemas(setting, self._parsed)
        self._own: dict[SchemaName | None, Any] = {None: self._reader}
        """The schemas of records of which no registry knows."""
        if isinstance(self.framing, SingleObject) and self._reader is not None:
            branches = self._reader if isinstance(self._reader, list) else [self._reader]
            self._own = {SchemaName("fingerprint", self._fingerprint(branch)): branch for branch in branches}

    @classmethod
    def needs_setting(cls, source: Any) -> bool:
        """A registry is needed for framings that name schemas by an id."""
        return cls.asks(source)

    @classmethod
    def problems(cls, source: Any) -> Iterator[str]:
        """A file must be there for framings that name no schema which a registry has."""
        yield from super().problems(source)
        if not cls.asks(source) and source.schema_file is None:
            yield f'input.schema_file: is missing; input.framing = "{source.framing}" needs it: the schema of the records'

    def record(self, framed: Framed) -> Any:
        """Reads as `FramedFormat.record` does. It asks the registry until it knows the id."""
        schema = self._schema(framed, ask=True)
        if not self.tells:
            return self._decoded(schema, framed.body)
        around = {} if (name := _name(schema, framed.body)) is None else {"schema": name}
        try:
            return Enveloped(self._decoded(schema, framed.body), around)
        except RefusedPayload as refused:
            return Enveloped(None, around, refused.reason)
        except Exception:  # as of other payloads, but its type is known
            return Enveloped(None, around, Reason.UNDECODABLE)

    def reader_of(self, framed: Framed) -> tuple[bytes, Callable[[bytes], Any]]:
        """Answers `FramedFormat.reader_of`."""
        return framed.body, partial(self._decoded, self._schema(framed, ask=False))

    def _schema(self, framed: Framed, *, ask: bool) -> Any:
        """The schema of a record. ask: of a registry, if there is one. Raises ValueError where there is none."""
        if self.schemas is None:
            schema = self._own.get(framed.schema)
        else:
            assert framed.schema is not None
            schema = self.schemas.get(framed.schema) if ask else self.schemas.known(framed.schema)
        if schema is None:
            raise ValueError("not a schema of Avro, or of none that is known")
        return schema

    def programs(self, paths: Sequence[Path]) -> Programs | None:
        """Answers `Format.programs`."""
        prefix = self.framing.prefix
        if prefix is None or self.tells:
            return None
        if self.schemas is not None:
            reader = None if self._reader is None else (self._reader, self._names[id(self._reader)])
            return AvroPrograms(prefix, paths, {}, self.found, self._plain_names, reader)
        if isinstance(self.framing, SingleObject) and isinstance(self._reader, list):
            return None  # each branch is resolved with the union
        numbers = {0 if name is None else int(str(name.value), 16): schema for name, schema in self._own.items()}
        return AvroPrograms(prefix, paths, numbers, None, self._plain_names)

    def _plain_names(self, schema: Any) -> Mapping[str, Any] | None:
        return None if id(schema) in self._costly else self._names[id(schema)]

    def _decoded(self, schema: Any, data: bytes) -> Any:
        if id(schema) in self._costly:
            walk(data, schema, self._names[id(schema)])
        stream = BytesIO(data)
        record = self._avro.schemaless_reader(stream, schema, self._reader)
        if stream.tell() != len(data):
            raise ValueError("bytes follow the record")
        return record

    def _parsed(self, schema: Any, others: list[Other]) -> Any:
        """The schema with those it refers to. Raises whatever fastavro raises where one is no Avro schema."""
        names: dict[str, Any] = {}
        for one in (*(other for _, other in others), schema):
            if getattr(one, "schema_type", None) not in (None, "AVRO"):
                return None
            parsed = self._avro.parse_schema(json.loads(one.schema_str), named_schemas=names)
        return self._guarded(parsed, names)

    def _guarded(self, parsed: Any, names: dict[str, Any]) -> Any:
        self._names[id(parsed)] = names
        if costly(parsed, names):
            self._costly.add(id(parsed))
        return parsed

    def _of_file(self, text: bytes) -> Any:
        names: dict[str, Any] = {}
        try:
            parsed = self._guarded(self._avro.parse_schema(json.loads(text), named_schemas=names), names)
        except Exception as error:  # the file is the operator's, and the parser raises many types
            raise ConfigurationError(
                f"input.schema_file: is no schema of Avro ({type(error).__name__})", "give the JSON text of one schema"
            ) from error
        for branch in parsed if isinstance(parsed, list) else ():
            self._guarded(branch, names)
        return parsed

    def _fingerprint(self, schema: Any) -> str:
        """CRC-64-AVRO of the schema's parsing canonical form, as it stands in a single object."""
        canonical = self._avro.schema.to_parsing_canonical_form(schema)
        return str(self._avro.schema.fingerprint(canonical, "CRC-64-AVRO"))


def _name(schema: Any, data: bytes) -> str | None:
    """The full name of a record's type; of a union, that of the branch. None where the type has no name, or there is no branch."""
    if isinstance(schema, list):
        try:
            branch, _ = long_at(data, 0)
            schema = schema[branch] if branch >= 0 else None
        except (ValueError, IndexError):
            return None
    if isinstance(schema, Mapping):
        schema = schema.get("name")
    return schema if isinstance(schema, str) and schema not in PRIMITIVES else None
