"""Raw events as plain text: the text itself, or what the named groups of a regular expression find in it.

The expressions are RE2's, whose time is linear in the text, whatever it is. Python's own would let one record hold up its
partition.
"""

from collections.abc import Iterator, Sequence
from importlib import import_module
from typing import Any

from susurrus.agents.finding import Finding
from susurrus.agents.formats.csv import not_among
from susurrus.agents.formats.format import ObjectFormat, RefusedPayload
from susurrus.agents.formats.texts import characters
from susurrus.mechanisms.errors import ConfigurationError
from susurrus.topics.records.fields import Path
from susurrus.topics.records.reason import Reason


class Text(ObjectFormat):
    """With a pattern, fields are its named groups; a group that took no part is null. Without one there is the whole value alone.

    A line end at the end of the text does not belong to it. Raises ConfigurationError for a pattern that is none, or has no named
    group.
    """

    name = "text"
    meaning = (
        "plain text; fields are the named groups of the regular expression `input.pattern` (needs the extra `formats`), and "
        "without one `$value` is the text"
    )
    options = ("pattern",)
    is_text = True

    def __init__(self, paths: Sequence[Path], setting: Any, pattern: str | None = None) -> None:
        super().__init__(paths, setting)
        self._match: Any = None
        self._groups: tuple[str, ...] = ()
        if pattern is None:
            return
        try:
            re2 = import_module("re2")
        except ImportError as error:
            raise ConfigurationError(
                "input.pattern: needs the package google-re2", "install susurrus[formats]"
            ) from error
        options = re2.Options()
        options.log_errors = False
        try:
            compiled = re2.compile(pattern, options)
        except re2.error as error:
            action = "correct it (RE2 has no look-around and no back-references)"
            raise ConfigurationError(
                f"input.pattern: is no regular expression of RE2: {_said(error)}", action
            ) from error
        self._groups = tuple(compiled.groupindex)
        if not self._groups:
            raise ConfigurationError("input.pattern: has no named group", "write (?P<name>...) around each field")
        self._match = compiled.fullmatch

    def parse(self, payload: bytes) -> Any:
        """Parses as `ObjectFormat.parse` says."""
        text = characters(payload)
        text = text.removesuffix("\n").removesuffix("\r") if text.endswith("\n") else text
        if not text:
            raise RefusedPayload(Reason.EMPTY)
        if self._match is None:
            return text
        # Of bytes: of a text the package would count characters to the groups once more.
        found = self._match(text.encode())
        if found is None:
            raise RefusedPayload(Reason.OTHER_FIELDS)
        return {name: None if part is None else part.decode() for name, part in found.groupdict().items()}

    def unknown_fields(self, paths: Sequence[Path]) -> Iterator[Finding]:
        """Answers `Format.unknown_fields` by the names of the groups."""
        if self._match is not None:
            return not_among(paths, self._groups, "input.pattern")
        return (
            Finding(
                "settings", "failure", f"{'.'.join(path)}: plain text has no fields", "set input.pattern, or use $value"
            )
            for path in dict.fromkeys(paths)
            if path
        )


def _said(error: Exception) -> str:
    text = error.args[0] if error.args else ""
    return text.decode(errors="replace") if isinstance(text, bytes) else str(text)
