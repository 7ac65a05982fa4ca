"""Where a schema registry is, for input and output, and confluent-kafka's client for it."""

import re
from collections.abc import Iterable, Iterator, Mapping
from functools import partial
from importlib import import_module
from typing import Annotated, Any, Final

from pydantic import AfterValidator, Field

from susurrus.agents.finding import Finding, error_of
from susurrus.agents.types.one_of import nearest
from susurrus.agents.types.section import Section
from susurrus.mechanisms.errors import ConfigurationError

NOT_FOUND: Final = (40401, 40402, 40403)
"""The registry's own codes for an unknown subject, version or schema. Any other 404 comes from something that is no
registry, or from a wrong path, and says nothing about the schema."""
_DEFAULTS: Final = {"timeout": 10, "max.retries": 0}
"""What differs from the client's defaults, which have no time-out and retry. Here the caller decides what follows."""
_NUMBERS: Final = (
    "timeout", "max.retries", "retries.wait.ms", "retries.max.wait.ms", "cache.capacity", "cache.latest.ttl.sec"
)  # fmt: skip
_KNOWN: Final = frozenset(
    (
        "basic.auth.user.info", "bearer.auth.client.id", "bearer.auth.client.secret", "bearer.auth.credentials.source",
        "bearer.auth.identity.pool.id", "bearer.auth.issuer.endpoint.query", "bearer.auth.issuer.endpoint.url",
        "bearer.auth.logical.cluster", "bearer.auth.scope", "bearer.auth.token", "proxy", "ssl.ca.location",
        "ssl.certificate.location", "ssl.key.location", "ssl.key.password", *_NUMBERS,
    )
)  # fmt: skip
"""The client's properties, to suggest the right name. Whether one is taken is the client's own answer."""
_HINTS: Final = {
    "basic.auth.user.info": "write user:password",
    "ssl.key.location": "give ssl.certificate.location, too",
    "ssl.key.password": "give ssl.certificate.location, too",
    **dict.fromkeys(_NUMBERS, "write a number"),
}


def _web_addresses(value: str) -> str:
    for url in value.split(","):
        if not re.fullmatch(r"https?://[^/@\s]+(/\S*)?", url.strip()):
            raise ValueError("write http://host:port or https://host:port; credentials go to registry.properties")
    return value


class Registry(Section):
    """A schema registry with the interface of Confluent's."""

    url: Annotated[str, AfterValidator(_web_addresses)]
    """Its address; several, separated by commas, are tried in turn."""
    properties: dict[str, str | int | float | bool] = Field(default_factory=dict, repr=False)
    """Properties of confluent-kafka's SchemaRegistryClient, such as `basic.auth.user.info` and `ssl.ca.location`. A
    value may be `{ file = "/path" }` or `{ env = "NAME" }`."""

    def client(self, place: str) -> Any:
        """confluent-kafka's client. place: the section's name, for messages.

        Raises ConfigurationError where the client refuses a property, ImportError where a package is missing.
        """
        try:
            return self._client(self.properties)
        except (ValueError, TypeError, OSError) as error:
            refused = list(self._refused(place, error))
        raise error_of(refused)  # here, without its cause, whose text may hold a password

    def findings(self, place: str) -> list[Finding]:
        """Make the client once, without connecting: what it refuses. Unknown is what only this machine lacks, such as a file that
        is on the workers. A missing package is no concern here."""
        try:
            with self._client(self.properties):
                pass
        except ImportError:
            pass
        except (ValueError, TypeError, OSError) as error:
            return list(self._refused(place, error))
        return []

    def _client(self, given: Mapping[str, Any]) -> Any:
        from confluent_kafka.schema_registry import SchemaRegistryClient  # optional

        properties = {name: _number(value) if name in _NUMBERS else value for name, value in given.items()}
        if any(isinstance(value, str) for name, value in properties.items() if name in _NUMBERS):
            raise ValueError("a text instead of a number, which the client would report at its first request")
        return SchemaRegistryClient({**_DEFAULTS, "url": self.url, **properties})

    def _refused(self, place: str, error: Exception) -> Iterator[Finding]:
        """A finding for each property to blame: the client's own text may hold what was given, a password among it."""
        found = partial(Finding, place, "unknown" if isinstance(error, OSError) else "failure")
        unknown = [name for name in self.properties if name not in _KNOWN]
        if str(error).startswith("Unrecognized properties") and unknown:
            for name in unknown:
                text = f'{place}.properties."{name}": the registry\'s client has no such property'
                yield found(text, nearest(name, _KNOWN))
            return
        blamed = [name for name in self.properties if self._passes_without(name)]
        named = " and ".join(f'"{name}"' for name in blamed) or ", ".join(sorted(self.properties)) or "none"
        if blamed and isinstance(error, OSError):
            yield found(
                f"{place}.properties.{named}: cannot be loaded here", "correct the file, its format or its password"
            )
        elif blamed:
            hint = next((_HINTS[name] for name in blamed if name in _HINTS), "correct the value, or leave it out")
            yield found(f"{place}.properties.{named}: the registry's client does not take it", hint)
        else:
            yield found(
                f"{place}: refused by the registry's client ({type(error).__name__}; properties: {named})",
                "correct url, names and files",
            )

    def _passes_without(self, left_out: str) -> bool:
        try:
            with self._client({name: value for name, value in self.properties.items() if name != left_out}):
                return True
        except (ValueError, TypeError, OSError):
            return False


def optional_modules(names: Iterable[str], place: str) -> list[Any]:
    """Modules of the extra ``registry``. place: the setting that needs them. Raises ConfigurationError where one is missing."""
    try:
        return [import_module(name) for name in names]
    except ImportError as error:
        raise ConfigurationError(f"{place}: needs the package {error.name}", "install susurrus[registry]") from error


def _number(value: Any) -> Any:
    """A number where the value is one: variables and files hold texts, and the client insists on numbers."""
    try:
        return float(value)
    except ValueError:
        return value
