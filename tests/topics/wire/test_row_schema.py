"""What other formats hold of a row is what JSON holds of it, and back."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from susurrus.topics import histogram, top
from susurrus.topics.wire.row_schema import Leaf, Members, Parts, RowSchema, Several, converted, identifier, restored

SCALARS = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text()
NUMBERS = st.integers(-(2**53), 2**53) | st.floats(allow_nan=False)
MEASURED = st.fixed_dictionaries({"estimate": NUMBERS, "std_error": NUMBERS})


def values_of(kind: Leaf | Members | Parts | Several) -> st.SearchStrategy:
    if isinstance(kind, Several):
        return st.lists(values_of(kind.member), max_size=3)
    if isinstance(kind, Leaf):
        return {Leaf.TEXT: st.text(), Leaf.SCALAR: SCALARS, Leaf.NUMBER: NUMBERS}.get(kind, st.integers())
    if isinstance(kind, Parts):
        parts = [values_of(field.type) for field in kind.fields]
        return parts[0] if len(parts) == 1 else st.tuples(*parts).map(list)
    always = {f.name: values_of(f.type) for f in kind.fields if f.presence == "always"}
    always |= {f.name: st.none() | values_of(f.type) for f in kind.fields if f.presence == "nullable"}
    return st.fixed_dictionaries(
        always, optional={f.name: values_of(f.type) for f in kind.fields if f.presence == "optional"}
    )


@pytest.mark.parametrize("key", [["url"], ["url", "user.country"]])
@given(data=st.data())
def test_a_row_comes_back_as_it_was(key: list[str], data: st.DataObject) -> None:
    members = histogram.schema(key, ["visits", "b-y"]).members
    row = data.draw(values_of(members))
    # A format that leaves instants and scalars as they are, but marks that it saw them.
    there = converted(members, {Leaf.SCALAR: lambda part: (part,), Leaf.INSTANT: lambda instant: -instant})(row)
    assert set(there["key"]) == {identifier(name) for name in key}
    assert set(there["values"]) == {"visits", "b_y"}
    back = restored(members, {Leaf.SCALAR: lambda part: part[0], Leaf.INSTANT: lambda instant: -instant})(there)
    assert back == row


@given(data=st.data())
def test_so_does_a_list_of_objects(data: st.DataObject) -> None:
    members = top.schema(["url", "user.country"], ["visits"]).members
    row = data.draw(values_of(members))
    there = converted(members, {Leaf.SCALAR: lambda part: (part,), Leaf.INSTANT: lambda instant: -instant})(row)
    assert [set(one["key"]) for one in there["rows"]] == [{"url", "user_country"}] * len(row["rows"])
    back = restored(members, {Leaf.SCALAR: lambda part: part[0], Leaf.INSTANT: lambda instant: -instant})
    assert back(there) == row
    del there["rows"]  # as Protobuf has an empty list
    assert back(there) == row | {"rows": []}
    assert list(top.schema(["a.b", "a_b"], ["n"]).clashes()) == ['"a.b" and "a_b" are both "a_b"']


def test_what_nullable_and_optional_members_become() -> None:
    from susurrus.topics import estimate

    row = {field.name: 1 for field in estimate.SCHEMA.members.fields}
    one = {"estimate": 1, "std_error": 2}
    row |= dict.fromkeys(("sum", "mean", "running_sum"), one) | {"filtered_sum": None}
    there = converted(estimate.SCHEMA.members, {})(row)
    assert "filtered_sum" not in there
    assert restored(estimate.SCHEMA.members, {})(there) == row


@pytest.mark.parametrize(
    ("name", "label"), [("url", "url"), ("user.id", "user_id"), ("2nd", "_2nd"), ("größe", "gr__e"), ("a-b", "a_b")]
)
def test_names_are_letters_digits_and_underscores(name: str, label: str) -> None:
    assert identifier(name) == label


def test_names_that_would_be_one_are_found() -> None:
    assert list(histogram.schema(["a.b", "a_b"], ["n"]).clashes()) == ['"a.b" and "a_b" are both "a_b"']
    assert list(histogram.schema(["a"], ["x-y", "x_y"]).clashes()) == ['"x-y" and "x_y" are both "x_y"']
    assert not list(histogram.schema(["a", "b"], ["a"]).clashes())
    assert isinstance(histogram.schema(["a"], ["n"]), RowSchema)
