"""Formats of text: CSV and TSV, JSON lines, plain text, and JSON behind a byte order mark."""

import csv
import json
import random
from collections.abc import Callable
from io import StringIO
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from susurrus.agents.config.input import InputSettings
from susurrus.agents.formats import problems
from susurrus.mechanisms.errors import ConfigurationError
from susurrus.topics.records.fields import parse_path
from susurrus.topics.records.reason import Reason
from tests.formats_rows import decoder, rows
from tests.samples import many_odd

ORDERS: dict[str, Any] = {"format": "csv", "columns": ["user", "page", "amount"]}
MARK = b"\xef\xbb\xbf"


# ---- CSV and TSV -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("payload", "fields"),
    [
        (b"ann,/a,1.5", ["ann", "/a", "1.5"]),
        (b"ann,/a,1.5\r\n", ["ann", "/a", "1.5"]),
        (b"\n\nann,/a,1.5\r\r", ["ann", "/a", "1.5"]),
        (b",,", ["", "", ""]),
        (b'"",,"null"', ["", "", "null"]),
        (b'"a,b","say ""hi""","two\r\nlines"', ["a,b", 'say "hi"', "two\r\nlines"]),
        (b'5" disk, 1 ,\t', ['5" disk', " 1 ", "\t"]),
        ("ännä,\u2028,\x85\0".encode(), ["ännä", "\u2028", "\x85\0"]),
        (MARK + b"ann,/a,1", ["ann", "/a", "1"]),
        (b"ann,/a," + b"x" * 200_000, ["ann", "/a", "x" * 200_000]),
        (b'"ann",/a,' + b"x" * 200_000, ["ann", "/a", "x" * 200_000]),
    ],
)
def test_the_fields_of_a_line_are_texts(payload: bytes, fields: list[str]) -> None:
    assert rows(decoder(["user", "page", "amount"], **ORDERS), [payload]) == [fields]


@pytest.mark.parametrize(
    ("payload", "reason"),
    [
        (b"ann,/a", Reason.OTHER_FIELDS),
        (b"ann,/a,1,2", Reason.OTHER_FIELDS),
        (b"ann;/a;1", Reason.OTHER_FIELDS),
        (b'"ann,/a,1', Reason.OTHER_FIELDS),
        (b'"ann"x,/a,1', Reason.OTHER_FIELDS),
        (b"ann,/a,1\nben,/a,1", Reason.SEVERAL_LINES),
        (b"ann,/a,1\nben", Reason.SEVERAL_LINES),
        (b"\xff,/a,1", Reason.INVALID_UTF8),
        (b"\xff\xfea\0", Reason.UTF16),
        (b"\x1f\x8b\x08\0", Reason.COMPRESSED),
        (b"", Reason.EMPTY),
        (b"\r\n\n", Reason.EMPTY),
        (MARK, Reason.EMPTY),
        (None, Reason.TOMBSTONE),
    ],
)
def test_what_is_no_line_of_these_fields_is_refused_alone(payload: bytes | None, reason: Reason) -> None:
    found = rows(decoder(["user"], **ORDERS), [b"ann,,", payload, b'"ben",,'])
    assert found == [["ann"], reason, ["ben"]]


def test_several_lines_are_a_list_in_which_a_bad_one_has_its_reason() -> None:
    form = decoder([""], **ORDERS)
    payloads = [b'ann,/a,1\n\nben\r\n"cas",/c,3', b"dan,/d,4"]
    assert rows(form, payloads) == [
        [
            [
                {"user": "ann", "page": "/a", "amount": "1"},
                Reason.OTHER_FIELDS,
                {"user": "cas", "page": "/c", "amount": "3"},
            ]
        ],
        [[{"user": "dan", "page": "/d", "amount": "4"}]],
    ]


def test_tsv_without_quotes_takes_every_character_as_it_is() -> None:
    """Snowplow's enriched events: JSON in fields, and no quotes around it."""
    form = decoder(["app", "context"], format="csv", columns=["app", "context", "user"], delimiter="\t", quote="")
    assert rows(form, [b'web\t"{"a": 1}\tann', b'web\t"x\ty"', b'"\t"\t"']) == [
        ["web", '"{"a": 1}'], ["web", '"x'], ['"', '"'],
    ]  # fmt: skip


def test_another_delimiter_and_another_quote() -> None:
    form = decoder(["a", "b"], format="csv", columns=["a", "b"], delimiter=";", quote="'")
    assert rows(form, [b"'x;y';\"z\"", b"a;'it''s'"]) == [["x;y", '"z"'], ["a", "it's"]]


@given(st.lists(st.lists(st.text(st.characters(codec="utf-8")), min_size=3, max_size=3), min_size=1, max_size=5))
def test_what_pythons_writer_writes_is_read(lines: list[list[str]]) -> None:
    out = StringIO(newline="")
    csv.writer(out, quoting=csv.QUOTE_ALL).writerows(lines)
    found = rows(decoder([""], **ORDERS), [out.getvalue().encode()])
    assert [list(item.values()) for item in found[0][0]] == lines


def test_a_path_of_no_column_is_a_failure_before_the_start() -> None:
    form = decoder(["user"], **ORDERS)
    paths = [parse_path(path) for path in ("user", "pages", "page.x")]
    assert [str(finding.text) for finding in form.unknown_fields(paths)] == [
        "pages: input.columns has no such field", "page.x: input.columns has no such field",
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"columns": []}, "columns"),
        ({"columns": ["a", "a"]}, "two columns have one name"),
        ({"columns": ["a", ""]}, "columns"),
        ({"delimiter": ";;"}, "one character"),
        ({"delimiter": "\n"}, "one character"),
        ({"quote": "xx"}, "one character"),
    ],
)
def test_settings_of_csv_that_cannot_be_meant_are_refused(settings: dict[str, Any], said: str) -> None:
    with pytest.raises(ValueError, match=said):
        InputSettings(topic="raw", **(ORDERS | settings))


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"format": "csv"}, "input.columns: is missing"),
        ({"columns": ["a"]}, 'input.columns: has no meaning for input.format = "json"'),
        ({"delimiter": ";"}, 'input.delimiter: has no meaning for input.format = "json"'),
        ({"pattern": "(?P<a>.)"}, 'input.pattern: has no meaning for input.format = "json"'),
        (ORDERS | {"quote": ","}, "input.delimiter: is the same as input.quote"),
        (
            ORDERS | {"envelope": "debezium"},
            'input.envelope = "debezium": a value of input.format = "csv" is a list of lines',
        ),
        ({"format": "msgpack", "encoding": "utf-16"}, 'input.encoding: has no meaning for input.format = "msgpack"'),
        ({"max_value_bytes": 100}, 'input.max_value_bytes: has no meaning for input.compression = "none"'),
    ],
)
def test_settings_that_do_not_go_together_are_refused(settings: dict[str, Any], said: str) -> None:
    (problem,) = problems(InputSettings(topic="raw", **settings))
    assert problem.startswith(said)


# ---- JSON lines ------------------------------------------------------------------------------------------------------


def test_json_lines_are_a_list_in_which_a_bad_line_has_its_reason() -> None:
    payload = MARK + b'{"u": 1}\r\n\n \n{"u": \n[1]\n{"u": "\xff"}\n' + b"[" * 500 + b"]" * 500 + b'\n{"u": NaN}\n7'
    assert rows(decoder([""], format="json-lines"), [payload]) == [
        [[{"u": 1}, Reason.NOT_JSON, [1], Reason.INVALID_UTF8, Reason.TOO_DEEP, Reason.NOT_FINITE, 7]]
    ]


def test_one_line_of_json_is_a_record() -> None:
    payloads = [b'{"u": 1}\n', b'\n{"u": 2}', b'{"u": 1}\n{"u": 2}', b"{", b"7", b"\n \n", b"", None, b'{"u": 3}']
    assert rows(decoder(["u"], format="json-lines"), payloads) == [
        [1], [2], Reason.SEVERAL_LINES, Reason.NOT_JSON, Reason.WRONG_TYPE, Reason.EMPTY, Reason.EMPTY, Reason.TOMBSTONE, [3],
    ]  # fmt: skip


def test_compressed_lines_are_named_wherever_their_bytes_have_line_ends() -> None:
    payloads = [b"\x1f\x8b\x08\0\n\x0a\x0a\0\x02\xff{}", b'{"u": 1}']
    assert rows(decoder(["u"], format="json-lines"), payloads) == [Reason.COMPRESSED, [1]]


# ---- plain text ------------------------------------------------------------------------------------------------------

LOG = r'(?P<host>\S+) \S+ (?P<user>\S+) \[(?P<at>[^\]]+)\] "[A-Z]+ (?P<path>[^ "]+)[^"]*" (?P<status>\d+)( "(?P<agent>[^"]*)")?'
LINE = b'192.0.2.7 - ann [01/Oct/2026:06:00:00 +0000] "GET /a HTTP/1.1" 200'


def test_named_groups_of_a_pattern_are_fields() -> None:
    form = decoder(["user", "path", "status", "agent"], format="text", pattern=LOG)
    payloads = [
        LINE,
        LINE + b"\r\n",
        LINE + b' "b\xc3\xa4r"',
        LINE + b" more",
        b"x" + b"\n" + LINE,
        b"\xff",
        b"",
        b"\n",
        None,
        MARK + LINE,
    ]
    no = Reason.OTHER_FIELDS
    good = ["ann", "/a", "200", None]
    assert rows(form, payloads) == [
        good, good, ["ann", "/a", "200", "bär"], no, no, Reason.INVALID_UTF8, Reason.EMPTY, Reason.EMPTY, Reason.TOMBSTONE, good,
    ]  # fmt: skip


def test_without_a_pattern_the_value_is_the_text() -> None:
    form = decoder([""], format="text")
    assert rows(form, [b"20.5\n", b" x \r\n", b"\r", "ä".encode()]) == [["20.5"], [" x "], ["\r"], ["ä"]]
    assert rows(decoder(["u"], format="text"), [b"x"]) == [Reason.WRONG_TYPE]


def test_a_pattern_that_python_would_not_finish_takes_linear_time() -> None:
    form = decoder(["a"], format="text", pattern="(?P<a>(x+x+)+)y")
    assert rows(form, [b"x" * 50_000, b"xxxy"]) == [Reason.OTHER_FIELDS, ["xxx"]]


@pytest.mark.parametrize(
    ("pattern", "said"),
    [("(", "missing"), (r"(?P<a>.)\1", "invalid escape"), ("(?=a)", "invalid perl"), (".*", "no named group")],
)
def test_a_pattern_that_cannot_be_meant_is_a_configuration_error(pattern: str, said: str) -> None:
    with pytest.raises(ConfigurationError, match=rf"input\.pattern.*{said}"):
        decoder(["a"], format="text", pattern=pattern)


def test_a_path_that_text_does_not_have_is_a_failure_before_the_start() -> None:
    named = decoder([], format="text", pattern=LOG).unknown_fields([("user",), ("users",)])
    assert [finding.text for finding in named] == ["users: input.pattern has no such field"]
    plain = decoder([], format="text").unknown_fields([(), ("user",)])
    assert [finding.text for finding in plain] == ["user: plain text has no fields"]


# ---- JSON ------------------------------------------------------------------------------------------------------------


def test_json_behind_a_byte_order_mark_is_read() -> None:
    good, marked = b'{"u": "ann"}', MARK + b'{"u": "ben"}'
    payloads = [
        good,
        marked,
        marked,
        MARK + MARK + good,
        MARK,
        MARK + b" ",
        MARK + b"{",
        MARK + b'{"u": "\xff"}',
        MARK + b"7",
        good,
    ]
    assert rows(decoder(["u"]), payloads) == [
        ["ann"], ["ben"], ["ben"], Reason.NOT_JSON, Reason.EMPTY, Reason.EMPTY, Reason.NOT_JSON, Reason.INVALID_UTF8,
        Reason.WRONG_TYPE, ["ann"],
    ]  # fmt: skip
    assert rows(decoder([""]), [MARK + b"null", MARK + b"[1]"]) == [[None], [[1]]]


def test_a_bare_scalar_is_the_whole_value() -> None:
    assert rows(decoder([""]), [b"20.5", b'"x"', b"true"]) == [[20.5], ["x"], [True]]


# ---- all -------------------------------------------------------------------------------------------------------------

FORMS: dict[str, Callable[[], Any]] = {
    "csv": lambda: decoder(["user"], **ORDERS),
    "csv whole": lambda: decoder([""], **ORDERS),
    "tsv": lambda: decoder(["user"], **ORDERS, delimiter="\t", quote=""),
    "json-lines": lambda: decoder(["user"], format="json-lines"),
    "json-lines whole": lambda: decoder([""], format="json-lines"),
    "text": lambda: decoder(["user"], format="text", pattern=LOG),
    "text whole": lambda: decoder([""], format="text"),
    "json": lambda: decoder(["user"]),
}


def odd_texts(seed: int, number: int) -> list[bytes | None]:
    """Lines of all formats, cut, joined, and with odd characters."""
    draw = random.Random(seed)
    good = [
        b"ann,/a,1", b'"a,""b",/a,"x\ny"', b"ann\t/a\t1", json.dumps({"user": "ann", "n": [1, {"a": None}]}).encode(), LINE,
        MARK + b"{}",
    ]  # fmt: skip
    odd = [
        b"\n",
        b"\r",
        b"\0",
        b'"',
        b'""',
        b",",
        b"\t",
        b"\xff",
        MARK,
        b"[" * 450,
        b"{",
        b"1e999",
        b"\\ud800",
        b"\xed\xa0\x80",
        b" ",
    ]
    found: list[bytes | None] = []
    for _ in range(number):
        text = b"".join(draw.choice(good) + b"\n" for _ in range(draw.choice((1, 1, 1, 2, 3)))).removesuffix(b"\n")
        for _ in range(draw.choice((0, 0, 1, 3))):
            place = draw.randrange(len(text) + 1)
            text = text[:place] + draw.choice(odd) + text[place + draw.randrange(3) :]
        found.append(None if draw.random() < 0.02 else draw.randbytes(9) if draw.random() < 0.02 else text)
    return found


@pytest.mark.parametrize("number", [3_000, pytest.param(many_odd(20_000), marks=pytest.mark.fuzz)])
@pytest.mark.parametrize("name", FORMS)
def test_odd_texts_raise_nothing_and_each_is_decided_alone(name: str, number: int) -> None:
    form, payloads = FORMS[name](), odd_texts(11, number)
    together = rows(form, payloads)
    assert {type(one) for one in together} == {list, Reason}
    assert Reason.UNDECODABLE not in together  # nothing has raised
    for row in random.Random(12).sample(range(number), 1_000):
        assert repr(rows(form, payloads[row : row + 1])) == repr(together[row : row + 1])
