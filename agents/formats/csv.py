"""Raw events as lines of separated fields: CSV with the quotes of RFC 4180, or fields without any quotes, as TSV has them.

Python's module csv reads quotes. Where a value has none, or none are used, cutting it at its separators is the same.
"""

import csv
import re
from collections.abc import Iterator, Sequence
from io import StringIO
from typing import Annotated, Any, Final

from pydantic import AfterValidator, Field

from susurrus.agents.finding import Finding
from susurrus.agents.formats.format import ObjectFormat, RefusedPayload
from susurrus.agents.formats.texts import characters, value_of
from susurrus.agents.types.one_of import nearest
from susurrus.topics.records.fields import Path, written
from susurrus.topics.records.reason import Reason

COMMA: Final = ","
QUOTE: Final = '"'
_LINES: Final = re.compile("\r\n|\r|\n")
_ENDS: Final = frozenset("\r\n")

# A record in Kafka has its own bound. The module's would refuse a record for a field that nobody wants.
csv.field_size_limit(2**31 - 1)


def _separator(text: str) -> str:
    if len(text) != 1 or text in _ENDS or text == QUOTE:
        raise ValueError(r'write one character, such as ";" or "\t"')
    return text


def _quote(text: str) -> str:
    if len(text) > 1 or text in _ENDS:
        raise ValueError('write one character, or "" where fields have no quotes')
    return text


def _distinct(names: tuple[str, ...]) -> tuple[str, ...]:
    if len(set(names)) < len(names):
        raise ValueError("two columns have one name; rename one")
    return names


Columns = Annotated[tuple[Annotated[str, Field(min_length=1)], ...], Field(min_length=1), AfterValidator(_distinct)]
"""The type of `input.columns`."""
Delimiter = Annotated[str, AfterValidator(_separator)]
"""The type of `input.delimiter`."""
Quote = Annotated[str, AfterValidator(_quote)]
"""The type of `input.quote`."""


class Csv(ObjectFormat):
    """Each line has the fields that ``setting`` names, in that order. All fields are texts; an empty one is the empty text.

    The whole value is a list of its lines, as objects. delimiter, quote: see `[input]`.
    """

    name = "csv"
    meaning = (
        "one line of fields a record, which `input.columns` names; all fields are texts, an empty one is the empty text; "
        'several lines are taken apart by `input.each = { of = "$value" }`'
    )
    setting = "columns"
    example = '["user_id", "url", "amount"]'
    options = ("delimiter", "quote")
    is_text = True
    has_lines = True

    def __init__(
        self, paths: Sequence[Path], setting: Sequence[str], delimiter: str | None = None, quote: str | None = None
    ) -> None:
        super().__init__(paths, setting)
        self._columns = setting
        self._delimiter = COMMA if delimiter is None else delimiter
        self._quote = QUOTE if quote is None else quote

    @classmethod
    def problems(cls, source: Any) -> Iterator[str]:
        """As `Format.problems`."""
        yield from super().problems(source)
        if (source.delimiter or COMMA) == (QUOTE if source.quote is None else source.quote):
            yield "input.delimiter: is the same as input.quote; write another character"

    def parse(self, payload: bytes) -> Any:
        """Parses as `ObjectFormat.parse` says."""
        columns = self._columns
        items = [
            dict(zip(columns, fields, strict=True)) if len(fields) == len(columns) else Reason.OTHER_FIELDS
            for fields in self._lines(characters(payload))
            if fields
        ]
        return value_of(items, whole=() in self.paths)

    def unknown_fields(self, paths: Sequence[Path]) -> Iterator[Finding]:
        """Answers `Format.unknown_fields` by the names of the columns."""
        return not_among(paths, self._columns, "input.columns")

    def _lines(self, text: str) -> Iterator[Sequence[str]]:
        """The fields of each line; none of an empty one. Raises RefusedPayload."""
        if not self._quote or self._quote not in text:
            return (line.split(self._delimiter) if line else () for line in _LINES.split(text))
        reader = csv.reader(StringIO(text, newline=""), delimiter=self._delimiter, quotechar=self._quote, strict=True)
        try:
            return iter(list(reader))
        except csv.Error:  # a quote that does not end, or characters behind one
            raise RefusedPayload(Reason.OTHER_FIELDS) from None


def not_among(paths: Sequence[Path], names: Sequence[str], setting: str) -> Iterator[Finding]:
    """A failure for each path that is none of the names that a setting has."""
    for path in dict.fromkeys(paths):
        if path and (len(path) > 1 or path[0] not in names):
            yield Finding(
                "settings", "failure", f"{written(path)}: {setting} has no such field", nearest(written(path), names)
            )
