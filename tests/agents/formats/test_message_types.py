"""Which message of its file a Protobuf record is: only the class's own place is read, everything else is another type."""

import contextlib
import itertools
import random
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from susurrus.agents.cli.main import app
from susurrus.agents.formats.format import RefusedPayload
from susurrus.agents.formats.message_types import own_file, read_indexes, unknown_fields
from susurrus.agents.formats.protobuf import Protobuf
from susurrus.agents.pipelines import pipeline_of, settings_from
from susurrus.mechanisms.errors import ConfigurationError
from susurrus.topics.records.fields import parse_paths
from susurrus.topics.records.raw import RawDecoder, RawSchema
from susurrus.topics.records.reason import Reason

pb2 = pytest.importorskip("google.protobuf.descriptor_pb2")
serializers = pytest.importorskip("confluent_kafka.schema_registry.protobuf")

MODULE = "google.protobuf.descriptor_pb2"
NAMES = ("FileDescriptorSet", "FieldDescriptorProto", "DescriptorProto.ReservedRange", "FeatureSet.VisibilityFeature")


def reasons(message: str, user: str, payloads: Sequence[bytes]) -> list[Reason]:
    decoder = RawDecoder(RawSchema(user=(user,), key=(user,)))
    form = Protobuf(decoder.paths, f"{MODULE}:{message}")
    return [Reason(reason) for reason in decoder.decode(form.read(payloads, lambda row: True)).reason]


def descriptors(file: Any) -> Iterator[Any]:
    """Every message of a file."""

    def inside(one: Any) -> Iterator[Any]:
        yield one
        for nested in one.nested_types:
            yield from inside(nested)

    for one in file.message_types_by_name.values():
        yield from inside(one)


def indexes_of(descriptor: Any) -> tuple[int, ...]:
    """As confluent-kafka's serializer finds them."""
    from confluent_kafka.schema_registry._sync.protobuf import _create_index_array

    return tuple(_create_index_array(descriptor))


def written(indexes: Sequence[int]) -> bytes:
    """Indexes as confluent-kafka's serializer writes them."""
    import io

    out = io.BytesIO()
    serializers.ProtobufSerializer._encode_varints(out, list(indexes))
    return out.getvalue()


def test_the_place_of_every_message_is_that_of_confluents_serializer() -> None:
    found = list(descriptors(pb2.DESCRIPTOR))
    assert len(found) > 30
    for one in found:
        assert own_file(one).name_at(indexes_of(one)) == one.full_name
        assert read_indexes(written(indexes_of(one)) + b"rest") == (indexes_of(one), len(written(indexes_of(one))))


def test_a_record_of_another_message_of_the_file_is_refused_whatever_it_holds() -> None:
    for own in NAMES:
        descriptor = next(one for one in descriptors(pb2.DESCRIPTOR) if one.full_name == f"google.protobuf.{own}")
        for other in descriptors(pb2.DESCRIPTOR):
            (found,) = reasons(own, "options", [b"\0\0\0\0\x01" + written(indexes_of(other))])
            assert (found is Reason.OTHER_TYPE) == (other.full_name != descriptor.full_name), (own, other.full_name)


@pytest.mark.parametrize(
    "indexes",
    [
        b"",
        b"\x01",  # -1 of them
        b"\x01\x00",  # one of them, by a serializer that does not write zigzag
        b"\x02",  # one that is missing
        b"\x02\x01",  # -1
        b"\x04\x08\x01",
        b"\x04\x08",
        b"\x02\x0a",
        b"\x04\x08\x00",
        b"\x80",
        b"\x80\x80\x80\x80\x80\x00",  # 0 in six bytes
        b"\xfe\x01",  # 127 of them
        b"\xff\xff\xff\xff\x0f",
        b"\xfe\xff\xff\xff\xff\xff\xff\xff\xff\x01",
        b"\xff" * 30,
    ],
    ids=bytes.hex,
)
def test_what_is_no_list_of_indexes_or_another_one_is_another_type(indexes: bytes) -> None:
    good = b"\0\0\0\0\x01" + written([4]) + pb2.FieldDescriptorProto(name="ann").SerializeToString()
    payloads = [good, b"\0\0\0\0\x01" + indexes, good]
    assert reasons("FieldDescriptorProto", "name", payloads) == [Reason.OK, Reason.OTHER_TYPE, Reason.OK]


def test_records_without_indexes_are_another_type() -> None:
    """Of the first message of a file, the common case: its indexes are one zero byte, and no message begins with that."""
    message = pb2.FileDescriptorSet(file=[pb2.FileDescriptorProto(name=f"user-{n}") for n in range(3)])
    bare = b"\0\0\0\0\x01" + message.SerializeToString()
    framed = [b"\0\0\0\0\x01" + zero + message.SerializeToString() for zero in (b"\0", b"\x02\0")]
    assert reasons("FileDescriptorSet", "file", [bare, *framed]) == [Reason.OTHER_TYPE, *[Reason.NOT_A_SCALAR] * 2]


def test_indexes_are_read_back_as_they_were_written_and_noise_never_fails_otherwise() -> None:
    dice = random.Random(7)
    for length in (1, 2, 3, 100):
        indexes = [dice.choice((0, 1, 63, 64, 8191, 8192, 2**31 - 1)) for _ in range(length)]
        data = written(indexes)
        assert read_indexes(data + b"\x0a\x01") == (tuple(indexes), len(data))
        for end in range(len(data)):
            with pytest.raises(RefusedPayload):
                read_indexes(data[:end])
    with pytest.raises(RefusedPayload):
        read_indexes(written([0] * 101))
    for _ in range(20_000):
        noise = dice.randbytes(dice.randrange(12))
        with contextlib.suppress(RefusedPayload):  # nothing else
            found, at = read_indexes(noise)
            assert 0 < at <= len(noise)
            assert all(0 <= index < 2**31 for index in found)


@pytest.mark.parametrize(
    "message",
    [
        "FieldDescriptorProto.Nothing",
        "FieldDescriptorProto.Type",
        "FieldDescriptorProto.SerializeToString",
        "DESCRIPTOR",
    ],
)
def test_what_is_no_message_is_a_configuration_error(message: str) -> None:
    with pytest.raises(ConfigurationError, match=r"cannot be imported; write package\.module:Message"):
        Protobuf([], f"{MODULE}:{message}")


@pytest.mark.parametrize(
    ("path", "says"),
    [
        ("nmae", 'field "nmae": google.protobuf.FieldDescriptorProto has no field "nmae"; did you mean "name"?'),
        ("options.cttype", 'has no field "cttype"; did you mean "ctype"?'),
        ("zzz", 'has no field "zzz"; correct its name, or leave it out'),
        ("name.inner", 'field "name.inner": "name" is no message with fields; name "name" itself'),
        ("options.uninterpreted_option", None),  # a list, which may be taken apart
        ("options.uninterpreted_option.name", '"uninterpreted_option" is repeated; name the field itself'),
        ("options.feature_support.edition_introduced", None),
        ("name", None),
        ("options", None),
    ],
)
def test_a_field_that_the_class_does_not_have_is_named_with_the_nearest_one(path: str, says: str | None) -> None:
    form = Protobuf([], f"{MODULE}:FieldDescriptorProto")
    found = list(form.unknown_fields(parse_paths([path])))
    assert len(found) == (says is not None)
    assert says is None or says in str(found[0])


def test_instants_and_wrappers_have_no_fields() -> None:
    from google.protobuf import descriptor_pool, timestamp_pb2, wrappers_pb2  # noqa: F401  (they register the types)

    file = pb2.FileDescriptorProto(name="susurrus_fields.proto", package="susurrus_fields", syntax="proto3")
    file.dependency.extend(["google/protobuf/timestamp.proto", "google/protobuf/wrappers.proto"])
    message = file.message_type.add(name="Event")
    kinds = {"t": ".google.protobuf.Timestamp", "w": ".google.protobuf.StringValue"}
    for number, (name, kind) in enumerate(kinds.items(), 1):
        message.field.add(name=name, number=number, label=1, type=11, type_name=kind)
    pool = descriptor_pool.Default()
    pool.Add(file)
    event = pool.FindMessageTypeByName("susurrus_fields.Event")
    assert list(unknown_fields(event, parse_paths(["t", "w"]))) == []
    said = [next(unknown_fields(event, parse_paths([path]))) for path in ("t.seconds", "w.value")]
    assert list(map(str, said)) == [
        f'input: field "{path}": "{path[0]}" is no message with fields; name "{path[0]}" itself'
        for path in ("t.seconds", "w.value")
    ]


def test_every_pair_of_types_is_told_apart_by_some_byte_of_the_indexes() -> None:
    places = [indexes_of(one) for one in descriptors(pb2.DESCRIPTOR)]
    assert len(set(places)) == len(places)
    for one, other in itertools.permutations(places, 2):
        assert read_indexes(written(one) + written(other))[0] == one


def settings(**changes: Any) -> dict[str, Any]:
    """A histogram of descriptors."""
    source = {"topic": "t", "user": "name", "key": ["label"], "format": "protobuf"}
    source["message"] = f"{MODULE}:FieldDescriptorProto"
    return {
        "pipeline": {"name": "p"},
        "input": {**source, **changes},
        "privacy": {"epsilon": 1.0, "delta": 1e-9, "strategy": "toeplitz"},
    }


@pytest.mark.parametrize(
    ("changes", "near"),
    [
        ({"user": "nmae"}, '"name"'),
        ({"key": ["label", "lable"]}, '"label"'),
        ({"where": "numbr > 0"}, '"number"'),
        ({"key": [{"name": "k", "expression": "lower(defaultvalue)"}]}, '"default_value"'),
        ({"time": "numebr"}, '"number"'),
    ],
    ids=lambda one: next(iter(one)) if isinstance(one, dict) else "",
)
def test_config_check_and_a_worker_refuse_fields_that_the_class_does_not_have(
    changes: dict[str, Any], near: str, tmp_path: Path
) -> None:
    pipeline = pipeline_of(settings_from(settings(**changes), environ={}))
    (found,) = pipeline.format_findings()
    assert (found.subject, found.level, found.action) == ("fields", "failure", f"did you mean {near}?")
    with pytest.raises(ConfigurationError, match="FieldDescriptorProto has no field"):
        pipeline.services()
    given = settings(**changes)["input"]
    source = "\n".join(f"{name} = {toml(value)}" for name, value in given.items())
    (tmp_path / "p.toml").write_text(
        f'[pipeline]\nname = "p"\n[input]\n{source}\n[privacy]\nepsilon = 1.0\ndelta = 1e-9\nstrategy = "toeplitz"\n'
    )
    checked = CliRunner().invoke(app, ["config", "check", str(tmp_path / "p.toml")])
    assert checked.exit_code == 2
    assert f"did you mean {near}?" in " ".join(checked.output.replace("│", " ").split())


def toml(value: Any) -> str:
    if isinstance(value, dict):
        return "{" + ", ".join(f"{name} = {toml(inner)}" for name, inner in value.items()) + "}"
    return f"[{', '.join(map(toml, value))}]" if isinstance(value, list) else f'"{value}"'


def test_what_the_class_has_passes_and_a_class_that_is_elsewhere_is_no_error_here() -> None:
    good = pipeline_of(settings_from(settings(where="number > 0", time="number"), environ={}))
    assert list(good.format_findings()) == []
    nested = pipeline_of(settings_from(settings(message="a.b_pb2:Outer.Inner.Leaf"), environ={}))
    (found,) = nested.format_findings()
    assert (found.subject, found.level) == ("packages", "unknown")
    assert found.text == 'input: input.message = "a.b_pb2:Outer.Inner.Leaf": cannot be imported'
    assert found.action.startswith("write package.module:Message")


@pytest.mark.parametrize("wrong", ["a:B.", "a:.B", "a:B..C", "a:B.1", "a.B", "a:B C"])
def test_a_class_is_written_as_module_and_message(wrong: str) -> None:
    with pytest.raises(ConfigurationError, match=r"package\.module:Message"):
        settings_from(settings(message=wrong), environ={})


def test_the_fields_of_a_stream_are_looked_up_too() -> None:
    data = {
        "pipeline": {"name": "p", "kind": "stream"},
        "input": {"topic": "t", "format": "protobuf", "message": f"{MODULE}:FieldDescriptorProto"},
        "stream": {"bound": 1.0, "epsilon": 1.0, "value": "numbr", "stream": "nam"},
    }
    found = pipeline_of(settings_from(data, environ={})).format_findings()
    assert [one.action for one in found] == ['did you mean "name"?', 'did you mean "number"?']
