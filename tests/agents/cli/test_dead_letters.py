"""`susurrus dead-letters` on a real broker: reasons and references of all letters, raw records only where they are asked for."""

import base64
import json
import time
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer
from typer.testing import CliRunner, Result

from susurrus.agents.cli.main import app
from susurrus.agents.kafka.clients_of import clients_of
from susurrus.agents.operations.dead_letters import newest_reasons, scan
from susurrus.agents.pipelines import pipeline_of
from susurrus.topics.dead_letter import DeadLetter, encode_headers
from susurrus.topics.records.reason import LEFT_OUT, Reason
from tests.broker import Broker
from tests.pipeline import Pipeline, archive_topic, produce

SECRET = b'{"host": "alice", "note": "\x1b[31mred"'
DAY = 86_400_000
NOW = int(time.time() * 1000)


class Letters:
    """A pipeline whose dead-letter topic is written by hand: no worker runs."""

    def __init__(self, kafka: Broker, directory: Path, **worker: Any) -> None:
        self.raw = archive_topic(kafka, 2)
        produce(kafka, self.raw, [(n % 2, SECRET, None) for n in range(8)])
        self.pipeline = Pipeline(kafka, directory, self.raw, {"worker": worker})
        self.topic = self.pipeline.settings.topic("dead-letter")
        self.producer = kafka.producer()

    def write(
        self,
        reason: Reason,
        partition: int,
        offset: int,
        at: int,
        *,
        producer: Producer | None = None,
        value: bytes | None = None,
    ) -> None:
        letter = DeadLetter(reason, self.raw, partition, offset)
        (producer or self.producer).produce(
            self.topic, value, partition=partition, headers=encode_headers(letter), timestamp=at
        )
        (producer or self.producer).flush(30)

    def some(self) -> "Letters":
        """Three that are not JSON, the last one of an offset that does not exist, and one empty one of yesterday."""
        self.write(Reason.EMPTY, 1, 0, NOW - DAY)
        self.write(Reason.NOT_JSON, 0, 1, NOW - 3_000)
        self.write(Reason.NOT_JSON, 1, 2, NOW - 2_000)
        self.write(Reason.NOT_JSON, 0, 99, NOW - 1_000)
        return self

    def run(self, *arguments: str, answer: str | None = None) -> Result:
        found = CliRunner().invoke(
            app,
            ["dead-letters", "--config", str(self.pipeline.config), *arguments],
            env={"COLUMNS": "80", "TERM": "dumb"},
            input=answer,
        )
        print(found.output)
        return found


def test_reasons_and_references_are_shown_and_no_record(kafka: Broker, tmp_path: Path) -> None:
    letters = Letters(kafka, tmp_path).some()
    found = letters.run()
    assert found.exit_code == 0
    text = " ".join(found.stdout.split())
    assert "4 dead letters in" in text
    assert "NOT_JSON 3 75.0 % 0: 2, 1: 1" in text
    assert f"NOT_JSON: {Reason.NOT_JSON.message}. What to do: {Reason.NOT_JSON.advice}." in text
    assert f"--topic {letters.raw} --partition 0 --offset 99 --max-messages 1" in text  # the newest
    lines = [line for line in found.stdout.splitlines() if "kafka-console-consumer" not in line]
    assert max(map(len, lines)) <= 80
    assert "alice" not in found.output
    as_json = json.loads(letters.run("--json", "--show", "2").stdout)
    assert as_json["number"] == 4
    assert [
        (row["reason"], row["number"], [(one["topic"], one["partition"], one["number"]) for one in row["partitions"]])
        for row in as_json["reasons"]
    ] == [
        ("NOT_JSON", 3, [(letters.raw, 0, 2), (letters.raw, 1, 1)]),
        ("EMPTY", 1, [(letters.raw, 1, 1)]),
    ]
    assert [(row["partition"], row["offset"]) for row in as_json["newest"]] == [(0, 99), (1, 2)]
    assert "value" not in as_json["newest"][0]


def test_a_time_and_a_reason_choose(kafka: Broker, tmp_path: Path) -> None:
    letters = Letters(kafka, tmp_path).some()
    assert json.loads(letters.run("--json", "--since", "1h").stdout)["number"] == 3
    assert json.loads(letters.run("--json", "--since", "2000-01-01T00:00:00Z").stdout)["number"] == 4
    empty = json.loads(letters.run("--json", "--reason", "empty").stdout)
    assert [row["reason"] for row in empty["reasons"]] == ["EMPTY"]
    assert "No dead letters in" in letters.run("--reason", "LATE").stdout
    for wrong, said in ((("--reason", "NOT_XML"), "use 'TOMBSTONE'"), (("--since", "soon"), '"2h"')):
        found = letters.run(*wrong)
        assert found.exit_code == 2
        assert said in found.stderr


def test_raw_records_are_shown_after_a_yes_only(kafka: Broker, tmp_path: Path) -> None:
    letters = Letters(kafka, tmp_path).some()
    refused = letters.run("--values", answer="n\n")
    assert refused.exit_code == 1
    assert "These are raw data" in refused.stderr
    assert "alice" not in refused.output
    assert letters.run("--values", answer="").exit_code == 1  # nobody can answer
    for answer in (("--values", "--yes"), ("--values",)):
        found = letters.run(*answer, answer="y\n")
        assert found.exit_code == 0
        assert "These are raw data" in found.stderr
        assert f"{letters.raw} 0 1: " + '{"host": "alice", "note": "�[31mred"' in " ".join(found.stdout.split())
        assert f"{letters.raw} 0 99: the record is gone from the raw topic" in " ".join(found.stdout.split())
        assert "\x1b" not in found.stdout
    newest = json.loads(letters.run("--values", "--yes", "--json").stdout)["newest"]
    assert [row["found"] for row in newest] == [False, True, True, True]
    assert base64.b64decode(newest[1]["value"]) == SECRET


def test_values_of_letters_need_no_question(kafka: Broker, tmp_path: Path) -> None:
    letters = Letters(kafka, tmp_path, dead_letter_values=True)
    letters.write(Reason.NOT_JSON, 0, 0, NOW, value=b"what the letter carries")
    assert "what the letter carries" not in letters.run().output
    found = letters.run("--values", answer="")
    assert found.exit_code == 0
    assert "These are raw data" in found.stderr
    assert "what the letter carries" in found.stdout


def test_a_topic_without_letters(kafka: Broker, tmp_path: Path) -> None:
    letters = Letters(kafka, tmp_path)
    assert "No dead letters in" in letters.run().stdout
    kafka.delete_topic(letters.topic)
    found = letters.run()
    assert found.exit_code == 2
    assert "topics create" in found.stderr


def test_a_long_topic_is_read_to_its_present_end(kafka: Broker, tmp_path: Path) -> None:
    """Also where a transaction is open, where one was aborted, and where others have written to the topic."""
    letters = Letters(kafka, tmp_path)
    many = 3_000
    for n in range(many):
        letter = DeadLetter(Reason.EMPTY, letters.raw, 0, n)
        letters.producer.produce(letters.topic, partition=0, headers=encode_headers(letter), timestamp=NOW)
    letters.producer.produce(letters.topic, b"what is this?", partition=0)
    letters.producer.flush(30)
    transactions = [
        Producer({"bootstrap.servers": kafka.bootstrap_servers, "transactional.id": kafka.new_prefix()}) for _ in "ab"
    ]
    for producer in transactions:
        producer.init_transactions(30)
        producer.begin_transaction()
        letters.write(Reason.LATE, 1, 7, NOW, producer=producer)
    transactions[0].abort_transaction(30)
    clients = clients_of(letters.pipeline.settings, quiet=True)
    seen: list[tuple[int, int]] = []
    found = scan(clients, letters.topic, show=3, progress=lambda read, everything: seen.append((read, everything)))
    assert found.counts == {(Reason.EMPTY, letters.raw, 0): many}
    assert (found.read, found.unknown) == (many + 1, 1)
    assert [letter.offset for letter in found.newest] == [many - 1, many - 2, many - 3]
    assert seen == sorted(seen)
    assert {everything for _, everything in seen} == {many + 1 + 3}  # two letters, one marker
    transactions[1].commit_transaction(30)
    assert scan(clients, letters.topic).counts[Reason.LATE, letters.raw, 1] == 1
    pipeline = pipeline_of(letters.pipeline.settings)
    assert newest_reasons(pipeline, clients, at_most=200) == {"EMPTY": 99, "LATE": 1}
    clients.close()


@pytest.mark.parametrize("reason", [reason for reason in Reason if reason and reason not in LEFT_OUT])
def test_every_reason_says_what_to_do(reason: Reason) -> None:
    for text in (reason.message, reason.advice):
        assert text
        assert text[0].islower()
        assert not text.endswith((".", ";"))
