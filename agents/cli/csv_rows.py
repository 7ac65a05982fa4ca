"""CSV that a spreadsheet can open: no text of a record becomes a formula there, and nothing of the text is lost.

Texts are in double quotes. Numbers and booleans are not, and what is missing is an empty cell. So `null` and "null", 5 and "5" are
told apart in the file, though most readers do not hand the difference on; the column ``key`` is JSON and does.

A spreadsheet takes a cell for a formula that begins with one of `=`, `+`, `-` and `@`, also in quotes, and some drop white space
before it. An apostrophe before that character makes it a text. The spreadsheet may show the apostrophe. Where semicolons or tabs
separate cells, as in many countries, the cells of this file are cut at these, and the quotes of this file mean nothing: therefore
the same holds behind a semicolon, a tab or the end of a line. JSON writes the semicolon as an escape instead, which its readers
undo.
"""

import re
from typing import Any, Final

from susurrus.agents.frames import text_of

JSON_COLUMN: Final = "key"
"""The column of a record whose text is JSON already."""

_FIRST: Final = "=+\\-@\uff1d\uff0b\uff0d\uff20"
"""The characters with which a formula begins. Some programs take the wide ones for the others."""
_DROPPED: Final = '\\s"\x00-\x1f\x7f-\x9f\u200b-\u200f\u2028-\u202e\u2060-\u2064\ufeff'
"""What some programs drop before they look for a formula: white space, what does not show, and quotes, which begin a cell where
the file's own do not."""
# A text may have apostrophes of its own there: it gets one more, so that taking one away gives every text back.
_FORMULA: Final = re.compile(f"(?:^|[;\t\r\n])[{_DROPPED}]*(?='*[{_FIRST}])")
_CONTROL: Final = re.compile("'*[\x00-\x1f]")
_CUT_JSON: Final = re.compile(f";(?=[{_DROPPED}]*[{_FIRST}])")


def csv_rows(rows: list[dict[str, Any]]) -> bytes:
    """A line of names and a line per row, which all have the names of the first. Values: texts, numbers, booleans, None, lists."""
    names = list(rows[0]) if rows else [JSON_COLUMN]
    lines = [",".join(map(_quoted, names))]
    lines += [",".join(_cell(name, value) for name, value in row.items()) for row in rows]
    return "".join(f"{line}\n" for line in lines).encode()


def _cell(name: str, value: Any) -> str:
    if value is None:
        return ""
    if isinstance(value, bool | int | float):
        return text_of(value)
    if name == JSON_COLUMN or not isinstance(value, str):
        return _quoted(_CUT_JSON.sub(r"\\u003b", text_of(value)))
    return _quoted(_guarded(value))


def _guarded(text: str) -> str:
    """The text with an apostrophe wherever a cell could begin with a formula, and before a control character at the beginning."""
    guarded = _FORMULA.sub(lambda found: f"{found[0]}'", text)
    return f"'{guarded}" if _CONTROL.match(text) else guarded


def _quoted(text: str) -> str:
    return '"' + text.replace('"', '""') + '"'
