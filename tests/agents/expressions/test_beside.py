"""What a record has beside its value, in expressions: the spellings, their one canonical form, and what is refused."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from susurrus.agents.expressions.beside import HEADER_BYTES
from susurrus.agents.expressions.computation import expression_names, paths_of
from susurrus.agents.expressions.evaluation import Evaluation
from susurrus.agents.expressions.language import parse, quoted
from susurrus.mechanisms.errors import ConfigurationError
from susurrus.topics.records.fields import BESIDE_NAMES, parse_path


@pytest.mark.parametrize(
    ("text", "canonical", "fields"),
    [
        ("$key", "$key", [("", "key")]),
        ("$key.customer.id", "$key.customer.id", [("", "key", "customer", "id")]),
        ("($key).id", "$key.id", [("", "key", "id")]),
        ('$key."a.b".c', '$key."a.b".c', [("", "key", "a.b", "c")]),
        ("$key['a']['b c']", '$key.a."b c"', [("", "key", "a", "b c")]),
        ("$key.items[1]", "$key.items[1]", [("", "key", "items")]),
        ("$headers.tenant", "$headers.tenant", [("", "headers", "tenant")]),
        ("$headers['user-id']", '$headers."user-id"', [("", "headers", "user-id")]),
        ('$headers."user-id"', '$headers."user-id"', [("", "headers", "user-id")]),
        ("$headers['order']", '$headers."order"', [("", "headers", "order")]),
        ("$envelope.op = 'd'", "($envelope.op = 'd')", [("", "envelope", "op")]),
        ("$topic || $partition || $offset", "(($topic || $partition) || $offset)", None),
        ("make_timestamp_ms($timestamp)", "make_timestamp_ms($timestamp)", [("", "timestamp")]),
        ("$value->>'$.a'", "($value ->> '$.a')", [("", "value")]),
        ("lower($key.id::VARCHAR)", "lower(CAST($key.id AS VARCHAR))", [("", "key", "id")]),
        ("encode($headers.x)", "encode($headers.x)", [("", HEADER_BYTES, "x")]),
        ("hex($headers.x)", "hex(encode($headers.x))", [("", HEADER_BYTES, "x")]),
        ("MD5($headers['x y'])", 'md5(encode($headers."x y"))', [("", HEADER_BYTES, "x y")]),
        ("coalesce($headers.x, hex($headers.x))", None, [("", "headers", "x"), ("", HEADER_BYTES, "x")]),
        ("hex($key)", "hex($key)", [("", "key")]),
        ('"$key"', '"$key"', [("$key",)]),
    ],
)
def test_spellings_have_one_form(text: str, canonical: str | None, fields: list[tuple[str, ...]] | None) -> None:
    found = parse(text)
    assert canonical is None or found.text == canonical
    assert fields is None or list(found.fields) == fields
    assert parse(found.text) == found


def test_a_path_of_the_settings_is_the_same_field() -> None:
    for text in ["$key", "$key.customer.id", "$headers.tenant", "$topic", "$offset", "$envelope.op"]:
        assert list(parse(text).fields) == [parse_path(text)]
    assert list(parse('$headers."user-id"').fields) == [parse_path("$headers.user-id")]
    assert list(parse('$headers."user.id"').fields) == [parse_path(r"$headers.user\.id")]


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("$type", 'for a field of that name write "$type" in double quotes'),
        ("$Key = 1", "$Key is a parameter of SQL"),
        ("$1", "$1 is a parameter of SQL"),
        ("a = ?", "is a parameter of SQL"),
        ("$headers", "name one header"),
        ("$headers[1]", "name one header"),
        ("$headers.a.b", "name one header"),
        ("hex($headers)", "name one header"),
        ("$envelope", "name a field of it"),
        ("$topic.name", "$topic has no fields"),
        ("$value.id", "write its fields without $value"),
        ("$key['']", "is empty"),
        ("$key.$id", "syntax error"),
        ("$headers.user-id = 'a'", 'for a field of that name write $headers."user-id" in double quotes'),
        ("lower($key.first-name)", "$key.first-name is a subtraction, $key.first minus name"),
    ],
)
def test_what_is_beside_nothing(text: str, problem: str) -> None:
    with pytest.raises(ConfigurationError) as caught:
        parse(text)
    assert problem in str(caught.value)
    assert str(caught.value).splitlines()[-1].strip() == "^"


names = st.text(st.characters(exclude_categories=("Cs",), exclude_characters="\0"), min_size=1, max_size=8)


@given(second=st.sampled_from(BESIDE_NAMES), name=names, inner=names)
def test_every_name_has_a_spelling(second: str, name: str, inner: str) -> None:
    """What `quoted` writes of a path is read as that path, wherever it stands."""
    below = {"key": (name, inner), "headers": (name,), "envelope": (name, inner)}.get(second, ())
    path = ("", second, *below)
    found = parse(f"coalesce({quoted(path)}, a) IS NULL")
    assert found.fields == (path, ("a",))
    assert parse(found.text) == found
    if second == "headers":
        sent = ("", HEADER_BYTES, name)
        assert parse(f"md5({quoted(sent)})").fields == (sent,)


def test_the_bytes_of_a_header_are_looked_at_as_bytes() -> None:
    for text, wanted in [
        ("hex($headers.x)", ["FF00", "41"]),
        ("encode($headers.x)", ["ff00", "41"]),
        ("to_base64($headers.x)", ["/wA=", "QQ=="]),
        ("octet_length($headers.x)", [2, 1]),
    ]:
        values, reasons = Evaluation(parse(text)).evaluate([[b"\xff\0", b"A"]], 2)
        assert (values, reasons.any()) == (wanted, False)


def test_functions_of_bytes_say_the_same_of_a_text() -> None:
    """So a header in UTF-8 is looked at alike, whether as a text or as bytes."""
    for function in ["hex", "to_hex", "md5", "md5_number", "sha1", "sha256"]:
        text = "zoë"
        values, _ = Evaluation(parse(f"{function}(a)")).evaluate([[text, text.encode()]], 2)
        assert values[0] == values[1] is not None


def test_messages_name_what_is_read() -> None:
    where = "$headers.a = 'x' AND md5($headers.b) <> '' AND $key.id > 5"
    assert paths_of([], where) == [("", "headers", "a"), ("", HEADER_BYTES, "b"), ("", "key", "id")]
    assert expression_names([], where) == (["$headers.a", "encode($headers.b)", "$key.id"], ["'x'", "''"])
