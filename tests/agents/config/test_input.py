"""The section `[input]`: users of several fields, computed users and times, and lists that records are taken apart by."""

import re
from typing import Any

import pytest

from susurrus.agents.config.fields import MOST_STEPS
from susurrus.agents.histogram.settings import HistogramSettings
from susurrus.agents.pipelines import settings_from
from susurrus.mechanisms.errors import ConfigurationError
from susurrus.topics.records.payloads import JsonReader
from susurrus.topics.records.raw import ComputedField, RawDecoder, Reason


def settings(**given: Any) -> HistogramSettings:
    tables = {
        "pipeline": {"name": "orders"},
        "input": {"topic": "orders", "user": "id", "key": ["shop"], **given},
        "privacy": {"epsilon": 1.0, "delta": 1e-9},
    }
    found = settings_from(tables)
    assert isinstance(found, HistogramSettings)
    return found


def problem(**given: Any) -> str:
    with pytest.raises(ConfigurationError) as caught:
        settings(**given)
    return str(caught.value)


def test_a_user_is_a_field_several_fields_or_computed() -> None:
    assert settings().input.user_fields == ("id",)
    assert settings(user=["tenant", "id"]).input.user_fields == ("tenant", "id")
    computed = settings(user={"expression": "coalesce(a,  b)"}).input
    assert computed.user_fields == (ComputedField("COALESCE(a, b)"),)
    assert computed.user_text == "COALESCE(a, b)"
    mixed = settings(user=["tenant", {"expression": "lower(id)"}])
    assert mixed.raw_schema().user == ("tenant", ComputedField("lower(id)"))
    assert mixed.input.user_text == "tenant × lower(id)"


def test_a_list_of_one_field_is_that_field() -> None:
    assert settings(user=["id"]).config_digest() == settings().config_digest()
    assert (
        settings(user=[{"expression": "lower(id)"}]).input.user == settings(user={"expression": "lower(id)"}).input.user
    )


def test_users_enter_the_digest() -> None:
    users: list[Any] = [
        "id",
        "tenant",
        ["tenant", "id"],
        ["id", "tenant"],
        {"expression": "id"},
        {"expression": "lower(id)"},
    ]
    assert len({settings(user=user).config_digest() for user in users}) == len(users)


@pytest.mark.parametrize(
    ("user", "said"),
    [
        ([], "input.user"),
        ([""], "input.user: is missing"),
        (["a", ""], "input.user, number 2"),
        (["a"] * 9, "input.user"),
        ({"expression": "random()"}, "input.user: expression"),
        ({"expression": "id", "name": "x"}, "unknown field"),
        ({}, "is missing"),
        (5, "write a text in quotes"),
        ("$nothing", "nothing that a record has beside its value"),
        (["a", "a.b"], "leads through another field"),
        ({"expression": "'x'"}, "names no field, so all records would be of one user"),
        ([{"expression": "1"}, {"expression": "2"}], "names no field"),
        ("$headers", "name one header"),
        ("$topic.x", "it has no fields"),
        ("$key.id", "has no fields; write $key, or name its format"),
    ],
)
def test_what_no_user_can_be(user: Any, said: str) -> None:
    assert said.replace(": expression", "") in problem(user=user)


def test_a_user_of_several_fields_is_an_array_of_them() -> None:
    decoder = RawDecoder(settings(user=["tenant", "id"]).raw_schema())
    lines = [
        b'{"tenant":"a","id":1,"shop":"x"}',
        b'{"tenant":"a","id":"1","shop":"x"}',
        b'{"tenant":"b","id":1.0,"shop":"x"}',
        b'{"tenant":"a","id":1.0,"shop":"x"}',
        b'{"tenant":null,"id":1,"shop":"x"}',
        b'{"tenant":"a","shop":"x"}',
        b'{"tenant":"","id":1,"shop":"x"}',
    ]
    columns = decoder.decode(JsonReader(decoder.paths).read(lines))
    assert columns.users == [b'["a",1]', b'["a","1"]', b'["b",1]']
    assert columns.user.tolist() == [0, 1, 2, 0, -1, -1, -1]
    bad = [Reason.MISSING_USER, Reason.MISSING_USER, Reason.EMPTY_USER]
    assert columns.reason.tolist() == [0, 0, 0, 0, *bad]


def test_parts_of_a_user_that_may_be_nobody() -> None:
    found = settings(user=["tenant", "id"], null_user="value", empty_user="value")
    decoder = RawDecoder(found.raw_schema())
    lines = [b'{"tenant":null,"id":"","shop":"x"}', b'{"id":"","shop":"x"}']
    columns = decoder.decode(JsonReader(decoder.paths).read(lines))
    assert columns.users == [b'[null,""]']
    assert columns.reason.tolist() == [0, 0]  # an absent part is a null one


def test_the_time_may_be_computed() -> None:
    assert settings().raw_schema().time is None
    assert settings(time="at").raw_schema().time == "at"
    found = settings(time={"expression": "epoch_ms(seen::TIMESTAMP)"})
    assert found.raw_schema().time == ComputedField("epoch_ms(CAST(seen AS TIMESTAMP))")
    assert found.max_future == found.clock.max_future > 0
    assert "input.time" in problem(time={"expression": "now()"})


def test_lists_have_steps() -> None:
    assert settings().input.lists == ()
    one = settings(each={"of": "items", "as": "item"})
    assert one.input.lists == (("items", "item"),)
    assert (
        settings(each=[{"of": "items", "as": "item"}]).config_digest()
        == one.config_digest()
        != settings().config_digest()
    )
    two = settings(each=[{"of": "orders", "as": "order"}, {"of": "order.items", "as": "item"}])
    assert two.input.lists == (("orders", "order"), ("order.items", "item"))
    assert settings(each={"of": "$value"}).input.lists == (("$value", None),)
    split = settings(each={"of": {"expression": "string_split(tags,',')"}, "as": "tag"}).input
    assert split.lists == ((ComputedField("string_split(tags, ',')"), "tag"),)


@pytest.mark.parametrize(
    ("each", "said"),
    [
        ({"as": "item"}, "input.each, number 1: of: is missing"),
        ({"of": "items"}, "as is missing"),
        ([{"of": "$value"}, {"of": "items", "as": "item"}], "as is missing"),
        ({"of": "items", "as": "an item"}, "as"),
        ({"of": "a..b", "as": "item"}, "has an empty name"),
        ([{"of": "a", "as": "x"}, {"of": "x.b", "as": "x"}], "is an item already"),
        ([{"of": "a", "as": "x"}, {"of": "b", "as": "y"}], "is in no item of the lists before"),
        ([{"of": "a", "as": f"x{number}"} for number in range(MOST_STEPS + 1)], "input.each"),
        ({"of": {"expression": "lower(tags)"}, "as": "tag"}, "does not result in a list of texts"),
        ({"of": {"expression": "lower(tags"}, "as": "tag"}, "input.each"),
    ],
)
def test_what_no_list_can_be(each: Any, said: str) -> None:
    assert said in problem(each=each)


def test_the_format_of_the_key_enters_the_digest_where_it_is_set() -> None:
    assert settings(key_format="text").config_digest() == settings().config_digest()
    assert settings(key_format="int64").config_digest() != settings().config_digest()
    assert "use 'text'" in problem(key_format="txt")


def test_a_total_over_all_records_has_one_key() -> None:
    assert settings(key=[]).input.key_names == ("everything",)
    assert settings(key=[{"name": "everything", "expression": "'all'"}]).input.key_names == ("everything",)


def test_names_beside_the_value_may_be_anything() -> None:
    found = settings(
        user="$key.id",
        key_format="json",
        key=["$topic", {"name": "tenant", "expression": "lower($headers['tenant-id'])"}],
        where="$partition < 3 AND hex($headers.kind) = '01'",
    )
    assert found.input.where == "(($partition < 3) AND (hex(encode($headers.kind)) = '01'))"
    # What explain prints is the same again.
    assert found.input.model_validate(found.input.model_dump(by_alias=True)) == found.input


def test_every_expression_is_looked_at_for_names_that_may_be_texts() -> None:
    """Also a list's, which is no scalar."""
    found = settings(
        user={"expression": """coalesce(id, "no one")"""},
        time={"expression": """CASE WHEN kind = "a b" THEN 1 END"""},
        each={"of": {"expression": """string_split(tags, "x y")"""}, "as": "tag"},
        where="""tag = "p q\"""",
    )
    said = [str(finding) for finding in found.findings() if "names stand in double quotes" in str(finding)]
    places = ["input.where", "input.user", "input.each", "input.time"]
    assert [one.split(" reads")[0].split()[-1] for one in said] == places


def test_other_kinds_compute_no_user_and_no_time() -> None:
    tables = {
        "pipeline": {"name": "s", "kind": "stream"},
        "stream": {"bound": 100.0, "epsilon": 1.0},
        "input": {"topic": "t", "user": {"expression": "lower(a)"}, "time": {"expression": "epoch_ms(a::TIMESTAMP)"}},
    }
    with pytest.raises(ConfigurationError) as caught:
        settings_from(tables)
    assert "input.user: records are neither filtered nor computed" in str(caught.value)
    assert "input.time: records are neither filtered nor computed" in str(caught.value)


@pytest.mark.parametrize(
    ("source", "said"),
    [
        ({"user": "$headers"}, "name one header"),
        ({"user": "$headers.a.b"}, "name one header"),
        ({"user": "$key.id"}, 'input.key_format = "text" has no fields'),
        ({"user": "$topic.x"}, "has no fields"),
        ({"user": "$envelope.op"}, "set input.envelope"),
        (
            {"format": "json-lines", "user": "$value", "key": ["shop"]},
            "$value is a list of lines, which has no fields beside it",
        ),
        ({"each": {"of": "items", "as": "item"}, "user": "items.id", "key": ["item"]}, "leads through another"),
    ],
    ids=lambda value: str(value)[:40],
)
def test_paths_that_lead_to_nothing_are_refused(source: dict[str, Any], said: str) -> None:
    with pytest.raises(ConfigurationError, match=re.escape(said)):
        settings(**source)
