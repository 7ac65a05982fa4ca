"""The schemas that records name (framing.py), as a registry knows them, and what its answers mean for a record.

What was found is kept: an id never means another schema. ("Id" stands for every kind of name that a registry knows.) Everything
else is forgotten with the batch. Otherwise one user's record would decide about all later ones of that id. The answers are of three
sorts:
- *found*: the schema decides, also one that cannot be used.
- *about the id*: unknown, refused (HTTP 4xx) or malformed, while the registry serves these credentials otherwise. The record waits,
  and is bad input when its patience is over: a record that names such an id must not hold up its partition for ever.
- *about nothing*: no answer, an error of the server, an answer that is none of a registry's, or credentials that it refuses.
  Records wait however long that takes, because good records would be lost else.
"""

import time
from collections.abc import Callable, Iterator
from typing import Any, Final, Generic, TypeVar

from susurrus.agents.formats.apicurio import ApicurioInterface
from susurrus.agents.formats.format import Unanswered, UnknownSchema
from susurrus.agents.formats.framing import GUID, ID, SchemaName
from susurrus.agents.formats.registry import NOT_FOUND, Registry, optional_modules
from susurrus.agents.types.durations import Duration

_ASKING_SECONDS: Final = 5.0  # for one batch: otherwise thousands of unknown ids would look like a task that hangs
_NOT_ABOUT_AN_ID: Final = frozenset((401, 404, 407, 408, 425, 429))
"""The statuses 4xx that say nothing about the id: they are about the caller, the moment, or (404 without a code of the registry)
a wrong path."""
_REFERENCES: Final = 1_000
"""Schemas that one may refer to, together; more is a circle or a mistake."""

T = TypeVar("T")


class RegistrySettings(Registry):
    """The schema registry that knows the schemas of records. Where it is may change; what it knows may not."""

    patience: Duration = 10_000
    """How long after a record was written its schema may be registered: a record whose schema is unknown holds up its
    partition until then, and is bad input after that. More than the clocks of workers, brokers and registry differ."""


class _Malformed(Exception):
    """An answer of status 200 that is no schema."""


Other = tuple[str, Any]
"""A schema that another one refers to, and the name by which it does."""


class Schemas(Generic[T]):
    """Asks a registry for schemas by their names. parse: what is kept of a schema, None where that is not usable.

    parse gets the schema and those that it refers to, each before what refers to it; it is called once for a name that was found.
    follow: whether references are asked for. written: the form in which schemas are wanted (the parameter `format` of Confluent's
    interface), None for the registry's own. Raises ConfigurationError where a package is missing, or the client refuses a
    property.
    """

    def __init__(
        self,
        setting: RegistrySettings,
        parse: Callable[[Any, list[Other]], T | None],
        *,
        follow: bool = True,
        written: str | None = None,
    ) -> None:
        (registry,) = optional_modules(("confluent_kafka.schema_registry",), "input.registry")
        self._refused = registry.SchemaRegistryError
        self._client = setting.client("input.registry")
        self._apicurio = ApicurioInterface(self._client, self._refused)
        self._parse, self._follow = parse, follow
        self._form = {} if written is None else {"fmt": written}
        self._found: dict[SchemaName, T | None] = {}
        self._waiting: dict[SchemaName, UnknownSchema] = {}
        """Ids that this batch has asked for in vain."""
        self._serves: bool | None = None
        """Whether the registry serves these credentials otherwise, as far as this batch has asked."""
        self._ask_until = 0.0

    def begin(self) -> None:
        """A new batch: ask again for what was not found."""
        self._waiting.clear()
        self._serves = None
        self._ask_until = time.monotonic() + _ASKING_SECONDS

    def get(self, name: SchemaName) -> T | None:
        """What `parse` made of a schema. Raises UnknownSchema and Unanswered."""
        if name not in self._found:
            self._found[name] = self._ask(name)
        return self._found[name]

    def known(self, name: SchemaName) -> T | None:
        """What `get` has returned before; None where it has not. Nobody is asked."""
        return self._found.get(name)

    def close(self) -> None:
        """Close the connections to the registry."""
        self._client.__exit__(None, None, None)

    def _ask(self, name: SchemaName) -> T | None:
        if name in self._waiting:
            raise self._waiting[name]
        if time.monotonic() > self._ask_until:
            raise Unanswered
        try:
            schema = _checked(self._answer(name))
            others = list(self._references(name, schema, set())) if self._follow else []
        except self._refused as error:
            raise self._of_status(name, error.http_status_code, error.error_code) from error
        except (_Malformed, ValueError, TypeError, AttributeError, KeyError) as error:  # no JSON, or not a schema's
            self._client.clear_caches()  # the client may have kept the answer
            raise self._of_the_id(name, "something that is no schema") from error
        except Exception as error:  # the HTTP client, TLS and proxies raise many types; no payload is involved
            raise Unanswered(
                f"the schema registry does not answer ({type(error).__name__}), and records wait meanwhile",
                "start it, or correct input.registry.url",
            ) from error
        try:
            return self._parse(schema, others)
        except MemoryError:
            raise
        except Exception:  # a schema is text that others wrote; what it is does not change by asking again
            return None

    def _answer(self, name: SchemaName) -> Any:
        if name.kind == ID:
            return self._client.get_schema(name.value, **self._form)
        if name.kind == GUID:
            return self._client.get_schema_by_guid(name.value, **self._form)
        return self._apicurio.get(name.kind, int(name.value))

    def _references(self, name: SchemaName, schema: Any, seen: set[tuple[str, int]]) -> Iterator[Other]:
        """The schemas that one refers to, directly or not, each once and before what refers to it."""
        for reference in schema.references or ():
            place = (reference.subject, reference.version)
            if place in seen:
                continue
            if len(seen) >= _REFERENCES:
                raise _Malformed
            seen.add(place)
            if name.kind in (ID, GUID):
                other = _checked(self._client.get_version(*place, deleted=True, **self._form).schema)
            else:
                other = _checked(self._apicurio.get_version(*place))
            yield from self._references(name, other, seen)
            yield reference.name, other

    def _of_status(self, name: SchemaName, status: int, code: Any) -> Exception:
        if status == 404 and code in NOT_FOUND:
            return self._waits(
                name,
                f"the schema registry does not know {_said(name)}",
                "register that schema, or stop the producer of such records",
            )
        # Who knows ids but no GUIDs, as Apicurio does, has another 404 for them.
        if 400 <= status < 500 and (status not in _NOT_ABOUT_AN_ID or (status == 404 and name.kind == GUID)):
            return self._of_the_id(name, f"HTTP {status} (code {code})")
        return _unanswered(name, f"HTTP {status} (code {code})")

    def _of_the_id(self, name: SchemaName, said: str) -> Exception:
        """An answer that is about the id if the registry serves these credentials otherwise."""
        if self._serves is None:
            try:
                # Credentials that may see nothing get an empty list: that is an operator's mistake, and no record's.
                self._serves = self._serves_otherwise(name)
            except Exception:  # as above
                self._serves = False
        if not self._serves:
            return _unanswered(name, said)
        return self._waits(
            name,
            f"the schema registry has subjects, but answers {said} to {_said(name)}",
            "let the credentials of input.registry read it, or stop the producer of such records",
        )

    def _serves_otherwise(self, name: SchemaName) -> bool:
        if name.kind not in (ID, GUID):
            return self._apicurio.serves()
        subjects = self._client.get_subjects(limit=1)
        return isinstance(subjects, list) and bool(subjects)

    def _waits(self, name: SchemaName, said: str, action: str) -> UnknownSchema:
        said = f"{said}, and the record becomes bad input if it stays so for input.registry.patience"
        self._waiting[name] = UnknownSchema(said, action)
        return self._waiting[name]


def _checked(schema: Any) -> Any:
    """Raises _Malformed."""
    if not isinstance(schema.schema_str, str):
        raise _Malformed
    return schema


def _unanswered(name: SchemaName, said: str) -> Unanswered:
    return Unanswered(
        f"the schema registry answers {said} instead of {_said(name)}, and records wait meanwhile",
        "check it, input.registry.url and the credentials",
    )


def _said(name: SchemaName) -> str:
    return f"schema {name.kind}={name.value}"
