"""A setting that names one entry of a registry: its check, its JSON schema and its reference follow from the registry."""

import difflib
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any

from pydantic import GetCoreSchemaHandler, GetJsonSchemaHandler
from pydantic_core import core_schema


@dataclass(frozen=True, slots=True, eq=False)  # so that it has a hash, which an optional setting needs
class OneOf:
    """Marks a text that must be a name in ``registry``; used as ``Annotated[str, OneOf(registry)]``.

    The registry is looked up whenever a value is checked, so that a name may be registered later.
    """

    registry: Mapping[str, Any]

    def __get_pydantic_core_schema__(self, source: Any, handler: GetCoreSchemaHandler) -> core_schema.CoreSchema:
        return core_schema.no_info_after_validator_function(self._check, handler(source))

    def __get_pydantic_json_schema__(
        self, schema: core_schema.CoreSchema, handler: GetJsonSchemaHandler
    ) -> dict[str, Any]:
        return {"type": "string", "enum": list(self.registry)}

    def _check(self, name: str) -> str:
        if name not in self.registry:
            raise ValueError(use_one_of(self.registry))
        return name


def use_one_of(registry: Mapping[str, Any]) -> str:
    """What to do about a name that the registry does not have: "use 'a', 'b' or 'c'"."""
    *first, last = (f"'{name}'" for name in registry)
    return "use " + (f"{', '.join(first)} or {last}" if first else last)


def meanings(registry: Mapping[str, Any]) -> str:
    """The documentation of such a setting: what each entry's ``meaning`` says."""
    return " ".join(f"`{name}`: {entry.meaning}." for name, entry in registry.items())


def nearest(name: str, known: Collection[str]) -> str:
    """What to do about a name that is not among the known ones."""
    close = difflib.get_close_matches(name, known, n=1, cutoff=0.6)
    return f'did you mean "{close[0]}"?' if close else "correct its name, or leave it out"
