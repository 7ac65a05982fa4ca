"""Makes help pages readable: short summaries in lists, paragraphs as wide as the terminal, and a plain word for each value.

The docstring of a command is its help. It is wrapped for the code, and typer would keep these line breaks.
"""

import inspect
import re
import types
import typing
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, Final, Literal

_WORDS: Final[dict[Any, str]] = {Path: "FILE", str: "TEXT", int: "N", float: "NUMBER"}
_DONE: Final = "_is_readable"


def readable(command: Any) -> Any:
    """The same command, or group of commands, with help that can be read at 80 columns."""
    if not getattr(command, _DONE, False):
        setattr(command, _DONE, True)
        command.help = unwrapped(command.help or "")
        command.short_help = command.short_help or summary(command.help)
        hints = _hints(command.callback)
        for option in command.params:
            if option.metavar is None and getattr(option, "param_type_name", "") == "option":
                option.metavar = "" if getattr(option, "is_flag", False) else _word(hints.get(option.name))
            elif option.metavar is None and (word := _word(hints.get(option.name))) is not None:
                option.display_type_rich = partial(_always, word)  # a metavar would go into the usage, for the name
        command.get_help_option = _plain(command.get_help_option)
        for inner in getattr(command, "commands", {}).values():
            readable(inner)
    return command


def _always(word: str, ctx: Any = None) -> str:
    return word


def _plain(help_option: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """The option ``--help`` of a command, as a flag."""

    def option(ctx: Any) -> Any:
        found = help_option(ctx)
        if found is not None:
            found.metavar = ""
        return found

    return option


def unwrapped(text: str) -> str:
    """Paragraphs without line breaks of their own. Indented lines, such as examples, keep theirs."""
    paragraphs = re.split(r"\n[ \t]*\n", inspect.cleandoc(text))
    return "\n\n".join(
        paragraph if re.search(r"^[ ]{4}", paragraph, re.MULTILINE) else " ".join(paragraph.split())
        for paragraph in paragraphs
    )


def summary(text: str) -> str:
    """What a list of commands says of one: its first clause."""
    clause = re.split(r"[;.:](?:\s|$)", text.partition("\n\n")[0], maxsplit=1)[0]
    return f"{clause}." if clause else ""


def _hints(callback: Any) -> dict[str, Any]:
    return typing.get_type_hints(inspect.unwrap(callback)) if callback is not None else {}


def _word(hint: Any) -> str | None:
    """What stands for the value of an option of this type; None leaves it to typer."""
    parts = typing.get_args(hint)
    if typing.get_origin(hint) in (typing.Union, types.UnionType, list):
        return _word(next((part for part in parts if part is not type(None)), None))
    if typing.get_origin(hint) is Literal:
        return "|".join(map(str, parts))
    return _WORDS.get(hint)
