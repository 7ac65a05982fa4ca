"""Where a schema registry is, for input and output, and confluent-kafka's client for it."""

import re
from collections.abc import Iterable
from importlib import import_module
from typing import Annotated, Any, Final

from pydantic import AfterValidator, Field

from susurrus.agents.types.section import Section
from susurrus.mechanisms.errors import ConfigurationError

NOT_FOUND: Final = (40401, 40402, 40403)
"""The registry's own codes for an unknown subject, version or schema. Any other 404 comes from something that is no
registry, or from a wrong path, and says nothing about the schema."""
_DEFAULTS: Final = {"timeout": 10, "max.retries": 0}
"""By default the client has no time-out and retries. Here the caller decides what follows."""
_NUMBERS: Final = (
    "timeout", "max.retries", "retries.wait.ms", "retries.max.wait.ms", "cache.capacity", "cache.latest.ttl.sec"
)  # fmt: skip


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
        from confluent_kafka.schema_registry import SchemaRegistryClient  # optional

        properties = {name: _number(value) if name in _NUMBERS else value for name, value in self.properties.items()}
        try:
            return SchemaRegistryClient({**_DEFAULTS, "url": self.url, **properties})
        except (ValueError, TypeError, OSError) as error:
            # The client's own text may hold what was given, a password among it.
            raise ConfigurationError(
                f"{place}: refused by the registry's client ({type(error).__name__}; properties: "
                f"{', '.join(sorted(properties)) or 'none'}); correct url, names and files"
            ) from None


def optional_modules(names: Iterable[str], place: str) -> list[Any]:
    """Modules of the extra ``registry``. place: the setting that needs them. Raises ConfigurationError where one is missing."""
    try:
        return [import_module(name) for name in names]
    except ImportError as error:
        raise ConfigurationError(f"{place}: needs the package {error.name}; install susurrus[registry]") from error


def _number(value: Any) -> Any:
    """A number where the value is one: variables and files hold texts, and the client insists on numbers."""
    try:
        return float(value)
    except ValueError:
        return value
