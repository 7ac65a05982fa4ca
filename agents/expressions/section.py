"""The type of settings that hold an expression: checked where the configuration is read, and kept in canonical form."""

from functools import partial
from typing import Annotated

from pydantic import AfterValidator, Field

from susurrus.agents.expressions.language import parse
from susurrus.mechanisms.errors import ConfigurationError


def _canonical(text: str, *, listed: bool = False) -> str:
    try:
        return parse(text, listed=listed).text
    except ConfigurationError as problem:
        raise ValueError(str(problem)) from None


_Text = Annotated[str, Field(min_length=1, max_length=10_000)]
ExpressionText = Annotated[_Text, AfterValidator(_canonical)]
"""One SQL expression over the fields of a record (docs/expressions.md)."""
ListText = Annotated[_Text, AfterValidator(partial(_canonical, listed=True))]
"""The same, whose result is a list of texts."""
