"""The type of settings that hold an expression: checked where the configuration is read, and kept in canonical form."""

from typing import Annotated

from pydantic import AfterValidator, Field

from susurrus.agents.expressions.language import parse
from susurrus.mechanisms.errors import ConfigurationError


def _canonical(text: str) -> str:
    try:
        return parse(text).text
    except ConfigurationError as problem:
        raise ValueError(str(problem)) from None


ExpressionText = Annotated[str, Field(min_length=1, max_length=10_000), AfterValidator(_canonical)]
"""One SQL expression over the fields of a record (docs/expressions.md)."""
