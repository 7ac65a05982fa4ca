"""The questions of `susurrus config init`: an option, or the answer in a terminal, or a default."""

import sys
from collections.abc import Mapping
from typing import Any

import typer

from susurrus.agents.cli.console import err
from susurrus.mechanisms.errors import ConfigurationError


class FileDialogue:
    """Asks for what no option gives. asks: otherwise the default is the answer, and where there is none it is an error."""

    def __init__(self, *, asks: bool) -> None:
        self.asks = asks

    def __call__(
        self, text: str, given: str | None, default: str | None, option: str, fields: Mapping[str, str] | None = None
    ) -> str:
        if given is not None:
            return noted(given, fields)
        if not self.asks:
            if default is not None and not fields:
                return default
            raise ConfigurationError(f"{option}: is missing; without questions (--yes) it must be given")
        answer: str = self._prompt(text, option, default=default)
        return noted(answer, fields)

    def bounds(self, name: str, lower: float | None, upper: float | None) -> tuple[float, float]:
        """Both bounds of a sum. They are public constants, so nothing here is taken from the data."""
        if self.asks:
            text = (
                "Values of {name} are clamped, which the noise follows. Choose without looking at the data. {end} bound"
            )
            if lower is None:
                lower = self._prompt(text.format(name=name, end="Lower"), "--lower", default=0.0, type=float)
            if upper is None:
                upper = self._prompt("Upper bound", "--upper", type=float)
        if upper is None:
            raise ConfigurationError("--upper: is missing; a sum needs a public upper bound of one record's value")
        return lower or 0.0, upper

    @staticmethod
    def _prompt(text: str, option: str, **options: Any) -> Any:
        try:
            return typer.prompt(text, **options)
        except typer.Abort:
            if sys.stdin.isatty():
                raise
            raise ConfigurationError(
                f"{option}: there is no terminal to ask; give it, and --yes for the defaults"
            ) from None


def noted(answer: str, fields: Mapping[str, str] | None) -> str:
    """The answer; a name that the look did not see may be a mistake."""
    unknown = [part.strip() for part in answer.split(",") if part.strip() not in (fields or {})]
    if fields and unknown:
        err().print(f"note: no record that was looked at has {', '.join(unknown)}", markup=False)
    return answer
