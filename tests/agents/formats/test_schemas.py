"""What a registry's answers mean: found, about the id, or about nothing. Only the last may hold records up for longer than P."""

import contextlib
import io
import json
from collections.abc import Iterator
from typing import Any, ClassVar

import pytest

from susurrus.agents.formats.avro import Avro
from susurrus.agents.formats.schemas import RegistrySettings
from susurrus.topics.records.raw import RawDecoder, RawSchema
from susurrus.topics.records.reason import Reason
from tests.web_server import Request, answering

fastavro = pytest.importorskip("fastavro")
pytest.importorskip("authlib")

RAW = RawDecoder(RawSchema(user=("u",), key=("u",)))
EVENT = {"type": "record", "name": "Event", "fields": [{"name": "u", "type": "string"}]}
GOOD, ODD = 1, 7


class Registry:
    """Knows one schema, and answers about another, about references and about its subjects as a test says."""

    answers: ClassVar[dict[str, tuple[int, bytes]]] = {}
    asked: ClassVar[list[str]] = []

    @staticmethod
    def answer(request: Request) -> tuple[int, bytes]:
        path = request.path.partition("?")[0]
        Registry.asked.append(path)
        return Registry.answers.get(path, (404, b'{"error_code": 40403, "message": "Schema not found"}'))


def schema(text: str, **more: Any) -> tuple[int, bytes]:
    return 200, json.dumps({"schema": text, **more}).encode()


@pytest.fixture
def avro() -> Iterator[Avro]:
    Registry.answers = {f"/schemas/ids/{GOOD}": schema(json.dumps(EVENT)), "/subjects": (200, b'["web-value"]')}
    Registry.asked = []
    with answering(Registry.answer) as url, contextlib.closing(Avro(RAW.paths, RegistrySettings(url=url))) as form:
        yield form


def record(schema_id: int) -> bytes:
    out = io.BytesIO()
    fastavro.schemaless_writer(out, fastavro.parse_schema(EVENT), {"u": "ann"})
    return b"\0" + schema_id.to_bytes(4, "big") + out.getvalue()


def read(form: Avro, *ids: int, overdue: bool = False) -> list[Reason]:
    columns = RAW.decode(form.read(list(map(record, ids)), lambda row: overdue))
    return [Reason(reason) for reason in columns.reason]


ABOUT_THE_ID = {
    "refused": (403, b'{"error_code": 40301, "message": "User is denied operation Read on Subject: web-value"}'),
    "refused by a proxy": (403, b"<html>no</html>"),
    "invalid": (422, b'{"error_code": 42202, "message": "Invalid id"}'),
    "bad request": (400, b"[]"),
    "gone": (410, b""),
    "unknown subject": (404, b'{"error_code": 40401, "message": "Subject not found"}'),
    "no JSON": (200, b"<html>hello</html>"),
    "half of it": (200, b'{"schema": "{'),
    "not UTF-8": (200, b'{"schema": "\xff"}'),
    "a list": (200, b"[]"),
    "null": (200, b"null"),
    "nothing": (200, b""),
    "no schema": (200, b'{"id": 7}'),
    "a schema that is a number": (200, b'{"schema": 5}'),
    "references that are none": (200, b'{"schema": "{}", "references": 5}'),
}
ABOUT_NOTHING = {
    "credentials": (401, b'{"error_code": 401, "message": "Unauthorized"}'),
    "proxy's credentials": (407, b""),
    "a wrong path": (404, b'{"error_code": 404, "message": "HTTP 404 Not Found"}'),
    "a time-out": (408, b""),
    "too many requests": (429, b'{"error_code": 42901, "message": "slow down"}'),
    "an error": (500, b'{"error_code": 50001, "message": "Error in the backend data store"}'),
    "a leader that is away": (503, b""),
    "a redirection": (302, b""),
}


@pytest.mark.parametrize("answer", ABOUT_THE_ID)
def test_an_answer_about_the_id_is_waited_for_until_the_patience_is_over_and_spoils_nothing_else(
    avro: Avro, answer: str
) -> None:
    Registry.answers[f"/schemas/ids/{ODD}"] = ABOUT_THE_ID[answer]
    for _ in range(2):
        assert read(avro, GOOD, ODD, GOOD) == [Reason.OK]
        assert f"schema id={ODD}" in str(avro.waits)
        assert "becomes bad input if it stays so for input.registry.patience" in str(avro.waits)
        assert read(avro, GOOD, ODD, GOOD, ODD, overdue=True) == [
            Reason.OK, Reason.UNDECODABLE, Reason.OK, Reason.UNDECODABLE,
        ]  # fmt: skip
        assert avro.waits is None
    # It was asked once a batch, and what was answered then is not kept.
    assert Registry.asked.count(f"/schemas/ids/{ODD}") == 4
    assert Registry.asked.count("/subjects") == (0 if answer == "unknown subject" else 4)
    Registry.answers[f"/schemas/ids/{ODD}"] = schema(json.dumps(EVENT))
    assert read(avro, ODD, overdue=True) == [Reason.OK]


@pytest.mark.parametrize("answer", ABOUT_NOTHING)
def test_an_answer_about_nothing_holds_records_however_long_it_takes(avro: Avro, answer: str) -> None:
    Registry.answers[f"/schemas/ids/{ODD}"] = ABOUT_NOTHING[answer]
    assert read(avro, GOOD, ODD, GOOD, overdue=True) == [Reason.OK]
    assert "records wait meanwhile" in str(avro.waits)
    Registry.answers[f"/schemas/ids/{ODD}"] = schema(json.dumps(EVENT))
    assert read(avro, GOOD, ODD, GOOD, overdue=True) == [Reason.OK] * 3


@pytest.mark.parametrize(
    "subjects", [(403, b'{"error_code": 40301}'), (401, b""), (200, b"[]"), (200, b"<html>"), (200, b"{}"), (500, b"")]
)
@pytest.mark.parametrize("answer", ["refused", "refused by a proxy", "no JSON", "no schema"])
def test_a_registry_that_serves_these_credentials_nothing_is_an_operators_mistake_and_no_records(
    avro: Avro, answer: str, subjects: tuple[int, bytes]
) -> None:
    """Else a wrong password, or the page of a proxy, would send every record to the dead letters."""
    Registry.answers[f"/schemas/ids/{ODD}"] = ABOUT_THE_ID[answer]
    Registry.answers["/subjects"] = subjects
    assert read(avro, GOOD, ODD, GOOD, overdue=True) == [Reason.OK]
    assert "and records wait meanwhile; check it, input.registry.url and the credentials" in str(avro.waits)
    Registry.answers["/subjects"] = 200, b'["web-value"]'
    assert read(avro, ODD, overdue=True) == [Reason.UNDECODABLE]


def test_what_the_registry_says_of_one_id_decides_about_no_other(avro: Avro) -> None:
    Registry.answers |= {f"/schemas/ids/{10 + n}": answer for n, answer in enumerate(ABOUT_THE_ID.values())}
    ids = [GOOD, *(10 + n for n in range(len(ABOUT_THE_ID))), GOOD]
    alone = [read(avro, one, overdue=True) for one in ids]
    assert read(avro, *ids, overdue=True) == [reason for [reason] in alone]


DEEP = '{"type": "array", "items": ' * 3_000 + '"int"' + "}" * 3_000


@pytest.mark.parametrize(
    "text",
    [
        "",
        "null",
        "[]",
        "5",
        "not json",
        '"strin"',
        '{"type": "foo"}',
        '{"type": "record"}',
        "[" * 100_000,
        DEEP,
        "{}" + " " * 9,
    ],
    ids=lambda text: text[:20],
)
def test_a_schema_that_cannot_be_parsed_is_found_and_makes_bad_input_at_once(avro: Avro, text: str) -> None:
    """It was found, and what it is does not change: there is nothing to wait for."""
    Registry.answers[f"/schemas/ids/{ODD}"] = schema(text)
    for _ in range(2):
        assert read(avro, GOOD, ODD, GOOD) == [Reason.OK, Reason.UNDECODABLE, Reason.OK]
    assert Registry.asked.count(f"/schemas/ids/{ODD}") == 1


@pytest.mark.parametrize("kind", ["JSON", "PROTOBUF", "XML"])
def test_a_schema_of_another_kind_makes_bad_input_even_if_it_reads_like_one_of_avro(avro: Avro, kind: str) -> None:
    Registry.answers[f"/schemas/ids/{ODD}"] = schema(json.dumps(EVENT), schemaType=kind)
    assert read(avro, ODD) == [Reason.UNDECODABLE]
    Registry.answers["/schemas/ids/8"] = schema(json.dumps(EVENT), schemaType="AVRO")
    assert read(avro, 8) == [Reason.OK]


def refer(*names: str) -> list[dict[str, Any]]:
    return [{"name": name, "subject": name, "version": 1} for name in names]


def registered(name: str, fields: dict[str, str], *others: str) -> None:
    text = json.dumps({"type": "record", "name": name, "fields": [{"name": n, "type": t} for n, t in fields.items()]})
    body = {"subject": name, "version": 1, "id": 100, "schema": text, "references": refer(*others)}
    Registry.answers[f"/subjects/{name}/versions/1"] = 200, json.dumps(body).encode()


def test_a_schema_that_two_others_refer_to_is_read_once(avro: Avro) -> None:
    registered("D", {"n": "int"})
    registered("B", {"d": "D"}, "D")
    registered("C", {"d": "D"}, "D")
    top = {
        "type": "record",
        "name": "A",
        "fields": [{"name": "u", "type": "string"}, {"name": "b", "type": "B"}, {"name": "c", "type": "C"}],
    }
    Registry.answers[f"/schemas/ids/{ODD}"] = schema(json.dumps(top), references=refer("B", "C"))
    payload = b"\0" + ODD.to_bytes(4, "big") + b"\x06ann\x02\x04"
    columns = RAW.decode(avro.read([payload], lambda row: False))
    assert columns.users == [b'"ann"']
    assert Registry.asked.count("/subjects/D/versions/1") == 1


def test_references_in_a_circle_end(avro: Avro) -> None:
    registered("B", {"c": "C"}, "C")
    registered("C", {"b": "B"}, "B")
    Registry.answers[f"/schemas/ids/{ODD}"] = schema(json.dumps(EVENT), references=refer("B"))
    assert read(avro, ODD, GOOD) == [Reason.UNDECODABLE, Reason.OK]


def test_a_reference_that_is_refused_or_unknown_is_an_answer_about_the_id(avro: Avro) -> None:
    Registry.answers[f"/schemas/ids/{ODD}"] = schema(json.dumps(EVENT), references=refer("B"))
    for answer in (
        ABOUT_THE_ID["refused"],
        (404, b'{"error_code": 40402, "message": "Version not found"}'),
        (200, b"{}"),
    ):
        Registry.answers["/subjects/B/versions/1"] = answer
        assert read(avro, ODD) == []
        assert f"schema id={ODD}" in str(avro.waits)
        assert read(avro, ODD, overdue=True) == [Reason.UNDECODABLE]
    Registry.answers["/subjects/B/versions/1"] = 503, b""
    assert read(avro, ODD, overdue=True) == []
    registered("B", {"n": "int"})
    assert read(avro, ODD) == [Reason.OK]
