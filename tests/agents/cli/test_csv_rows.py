"""CSV for spreadsheets: no text of a record becomes a formula, nothing is lost, and a text is no number, boolean or null."""

import csv
import io
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
from hypothesis import example, given
from hypothesis import strategies as st

from susurrus.agents.cli.csv_rows import csv_rows
from susurrus.agents.stream.view import _record as stream_record
from susurrus.topics.histogram import Measured
from susurrus.topics.private_stream import StreamRow
from tests.agents.cli.test_export import records, write
from tests.agents.histogram.test_terminal_table import snapshot

STARTS = "=+-@＝＋－＠"
"""The first characters of a formula, also as wide ones, which some spreadsheets take for the same."""
HOSTILE: dict[str, str] = {
    '=HYPERLINK("http://evil.example","click")': '\'=HYPERLINK("http://evil.example","click")',
    "=cmd|' /C calc'!A0": "'=cmd|' /C calc'!A0",
    "+1+1": "'+1+1",
    "-2+3": "'-2+3",
    "@SUM(A1)": "'@SUM(A1)",
    "＝1+1": "'＝1+1",
    "\t=1": "'\t'=1",
    "\r=1": "'\r'=1",
    "\tplain": "'\tplain",
    "\rplain": "'\rplain",
    "\nplain": "'\nplain",
    "\0": "'\0",
    "  =1+1": "  '=1+1",
    "\ufeff=1": "\ufeff'=1",
    "\u00a0@x": "\u00a0'@x",
    # Where a semicolon separates cells, the quotes of this file begin no cell.
    "a;=1+1": "a;'=1+1",
    "a; +http://bot.example": "a; '+http://bot.example",
    'a";=1': "a\";'=1",
    'a;"=1': "a;\"'=1",
    "a\n@SUM(A1)": "a\n'@SUM(A1)",
    "a\t-1": "a\t'-1",
    # What a reader takes away is one apostrophe: a text that has some of its own gets one more.
    "'=1": "''=1",
    "''@x": "'''@x",
    "'\tx": "''\tx",
}
"""Text -> the same in a cell."""
HARMLESS = [
    "", "null", "true", "1", "9007199254740993", "__proto__", "constructor", "<img src=x onerror=alert(1)>",
    'a,b"c\nd', "a\rb", "\u202egnp.exe", "\ufeffbom", "e\u0301", "x" * 300, "'tis", "a=b", "a;b", "a - b", "1;2", "/a?b=-1",
    "mail@example.org", "'", '"', '""', "a\0b",
]  # fmt: skip
OTHERS = [None, True, False, -5, 0, 9007199254740993, 2**64 - 1, 1.5, -1e300]


def cells(line: dict[str, Any]) -> list[str]:
    return csv_rows([line]).decode().split("\n", 1)[1].rstrip("\n").split(",")


def written(texts: list[Any], tmp_path: Path) -> list[dict[str, str]]:
    """The rows of a histogram with these keys of two parts, through a file and Python's csv."""
    keys = {
        json.dumps(["x", text], ensure_ascii=False, separators=(",", ":")).encode(): n for n, text in enumerate(texts)
    }
    write(records(snapshot(keys), "a", "b"), "csv", tmp_path / "h.csv")
    with (tmp_path / "h.csv").open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file, strict=True))


def by_key(rows: list[dict[str, str]]) -> Iterator[tuple[Any, str, int]]:
    """(part, its cell, visits) of each row; the part is read from the column `key`."""
    for row in rows:
        yield json.loads(row["key"])[1], row["b"], int(row["visits"])


def test_every_hostile_key_comes_back_from_the_file_and_is_no_formula(tmp_path: Path) -> None:
    texts = [*HOSTILE, *HARMLESS, *OTHERS]
    found = list(by_key(written(texts, tmp_path)))
    assert len(found) == len(texts)
    for part, cell, visits in found:
        assert type(part) is type(texts[visits])
        assert part == texts[visits]
        if isinstance(part, str):
            assert cell == HOSTILE.get(part, part)
            assert HOSTILE.get(part, part) != part or part in HARMLESS
        else:
            assert cell == ("" if part is None else json.dumps(part))


def test_a_text_that_looks_like_something_else_is_told_apart_by_its_quotes() -> None:
    pairs = [("null", None), ("true", True), ("-5", -5), ("1.5", 1.5), ("", None)]
    for text, other in pairs:
        as_text, as_other = cells({"part": text, "n": 1})[0], cells({"part": other, "n": 1})[0]
        assert as_other == ("" if other is None else json.dumps(other))
        assert as_text == ('"\'-5"' if text == "-5" else f'"{text}"')
    assert csv_rows([{"key": '["x",""]', "part": "", "n": -5, "m": None}]) == (
        b'"key","part","n","m"\n"[""x"",""""]","",-5,\n'
    )


def test_keys_with_one_part_and_names_of_columns(tmp_path: Path) -> None:
    """The names are the operator's, not a record's: they stay as they are, so that a program finds its column."""
    write(records(snapshot({b'"=1"': 2, b"-5": 3}), "@version"), "csv", tmp_path / "h.csv")
    with (tmp_path / "h.csv").open(encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file, strict=True))
    assert [(row["key"], row["@version"]) for row in rows] == [('"=1"', "'=1"), ("-5", "-5")]


def test_ids_of_streams_are_texts_of_records_too() -> None:
    one = Measured(estimate=1.0, std_error=2.0)
    row = StreamRow(
        stream="=1", first=0, last=1, value=one, sum=one, filtered_sum=None, theta=3, layout=1, method="tops", epsilon=1.0,
        epoch="ab", schema=2, fit=None, jump_first=None, jump_last=None, lower=None, clipped=None, truncated=None,
    )  # fmt: skip
    assert csv_rows([stream_record(row)]).decode().split("\n")[1].startswith('"\'=1",0,1,1.0,2.0,1.0,2.0,,,,,,3,')
    listed = msgspec.structs.replace(row, stream=["a;=1", None])
    assert csv_rows([stream_record(listed)]).decode().split("\n")[1].startswith('"[""a\\u003b=1"",null]",0,1,')


def opened(data: bytes, separator: str) -> list[str]:
    """The cells as a spreadsheet has them that separates by another character: quotes count at the beginning of a cell."""
    lines = re.split("[\r\n]", data.decode())
    return [cell for row in csv.reader(lines, delimiter=separator) for cell in row]


def is_formula(cell: str) -> bool:
    return bool(re.match(rf"[\s\ufeff\0]*[{re.escape(STARTS)}]", cell)) and not re.fullmatch("-[0-9]+", cell)


TEXTS = st.text(st.sampled_from("=+-@＝;,\t\r\n '\"\ufeff\0ab1\\"), max_size=8)


def plain(cell: str) -> str:
    """What a cell's text was: one apostrophe less where it stands for that."""
    text = re.sub(r"^'(?='*[\x00-\x1f])", "", cell)
    unseen = r"[\s\"\x00-\x1f\x7f-\x9f\u200b-\u200f\u2028-\u202e\u2060-\u2064\ufeff]"
    return re.sub(rf"((?:^|[;\t\r\n]){unseen}*)'(?='*[{re.escape(STARTS)}])", r"\1", text)


@given(texts=st.lists(TEXTS | st.none() | st.booleans() | st.integers(-(2**53), 2**53), min_size=1, max_size=6))
@example(texts=["'\t=1", "\t\t-", ";;=", "';='=", "\r\n'=1", 'a;"=1'])
def test_no_cell_is_a_formula_whatever_separates_cells_and_no_two_texts_are_one(texts: list[Any]) -> None:
    lines = [
        {"window_start": "2026-10-01T00:00:00Z", "key": json.dumps(["x", text], ensure_ascii=False), "b": text, "n": -5}
        for text in texts
    ]
    data = csv_rows(lines)
    rows = list(csv.DictReader(io.StringIO(data.decode(), newline=""), strict=True))
    assert len(rows) == len(texts)
    for row, text in zip(rows, texts, strict=True):
        assert json.loads(row["key"]) == ["x", text]
        assert not is_formula(row["b"])
        assert (row["b"], row["n"]) == ("" if text is None else row["b"], "-5")
        if isinstance(text, str):
            assert plain(row["b"]) == text
    for separator in ";\t":
        assert not any(map(is_formula, opened(data, separator)))
