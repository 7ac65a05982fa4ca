"""`susurrus watch` on an ordinary day: 560 keys at 144 triggers. What reading costs grows with the rows, and with nothing else."""

import csv
import io
import sys
from collections.abc import Iterator
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

import pytest
from confluent_kafka import Message, Producer
from typer.testing import CliRunner

from susurrus.agents.cli import main as cli
from susurrus.agents.config.settings import Settings
from susurrus.agents.kafka.embedded import PARTITIONS, EmbeddedBroker
from susurrus.agents.kafka.follow import Follower
from tests.agents.cli.shown import view_of
from tests.agents.released import rows, said, settings

KEYS, TRIGGERS = 560, 144
ANNOUNCING = 16
"""Partitions of the release; the embedded broker has fewer, so only these have rows."""
COUNTED = ("agents/histogram/", "agents/display/", "topics/histogram.py")
runner = CliRunner(env={"COLUMNS": "100", "TERM": "dumb"})


@pytest.fixture(scope="module")
def broker() -> Iterator[EmbeddedBroker]:
    with EmbeddedBroker() as found:
        yield found


@pytest.fixture(autouse=True)
def rows_first(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of what comes together, announcements come last: partitions are read in any order, and this is the one that costs most."""
    read, kept = Follower.read, list[Message]()

    def reordered(follower: Follower, *options: Any, **more: Any) -> list[Message]:
        found = read(follower, *options, **more)
        announced = [message for message in found if str(message.topic()).endswith(".progress")]
        kept.extend(announced)
        if len(found) > len(announced):
            return [message for message in found if not str(message.topic()).endswith(".progress")]
        ready = kept[:]
        kept.clear()
        return ready

    monkeypatch.setattr(Follower, "read", reordered)


def published(broker: EmbeddedBroker, name: str, keys: int, triggers: int) -> Settings:
    """A whole day: the rows of all releases, then what announces them, as a reader may find them that comes later."""
    made = settings(
        broker.bootstrap_servers,
        pipeline={"name": name, "prefix": "t"},
        window={"trigger_every": f"{24 * 60 // triggers}m"},
    )
    topics = [made.topic(topic) for topic in ("histogram", "latest")]
    for topic in (*topics, made.topic("progress")):
        broker.create(topic)
    producer = Producer({"bootstrap.servers": broker.bootstrap_servers, "log_level": 2, "linger.ms": 5})
    parts = [{b'"/%d"' % key: 1_000 + key for key in range(part, keys, PARTITIONS)} for part in range(PARTITIONS)]
    for trigger in range(1, triggers + 1):
        for partition, counts in enumerate(parts):
            for key, value in rows(trigger, counts, of=triggers):
                for topic in topics:
                    producer.produce(topic, value, key, partition=partition)
        assert producer.flush(30) == 0
    for trigger in range(1, triggers + 1):
        for partition in range(ANNOUNCING):
            here = len(parts[partition]) if partition < PARTITIONS else 0
            spoken = said(trigger, here, partition=partition, of_partitions=ANNOUNCING, of=triggers)
            producer.produce(made.topic("progress"), spoken[1], spoken[0], partition=0)
    assert producer.flush(30) == 0
    return made


@pytest.fixture(scope="module")
def day(broker: EmbeddedBroker, tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = published(broker, "day", KEYS, TRIGGERS)
    path = tmp_path_factory.mktemp("day") / "p.toml"
    path.write_text(
        f"""\
pipeline = {{ name = "day", prefix = "t" }}
kafka = {{ bootstrap_servers = "{made.kafka.bootstrap_servers}", embedded = true }}
input = {{ topic = "raw", user = "host", key = ["url"] }}
window = {{ trigger_every = "10m" }}
privacy = {{ epsilon = 6.0, delta = 1e-9, strategy = "toeplitz" }}
""",
        encoding="utf-8",
    )
    return path


@pytest.mark.parametrize("window", [[], ["--window", "1995-08-01"]])
def test_once_shows_the_last_release(day: Path, window: list[str]) -> None:
    result = runner.invoke(cli.app, ["watch", "-c", str(day), "--once", "--limit", "3", *window])
    assert result.exit_code == 0, result.output
    assert "final · 560 keys published, 3 shown" in result.stdout
    assert "/559" in result.stdout


def test_an_export_has_its_rows(day: Path) -> None:
    result = runner.invoke(cli.app, ["watch", "-c", str(day), "--export", "csv", "-o", "-"])
    assert result.exit_code == 0, result.output
    found = list(csv.DictReader(io.StringIO(result.stdout)))
    assert {(row["trigger"], row["window_start"]) for row in found} == {("144", "1995-08-01T00:00:00Z")}
    assert {row["url"]: int(row["visits"]) for row in found} == {f"/{key}": 1_000 + key for key in range(KEYS)}


def test_a_live_view_of_one_window_ends_with_it_in_a_pipe(day: Path) -> None:
    result = runner.invoke(cli.app, ["watch", "-c", str(day), "--window", "1995-08-01", "--limit", "3"])
    assert result.exit_code == 0, result.output
    assert result.stdout.count("final · 560 keys published") == 1


def test_what_reading_costs_is_linear_in_the_rows(broker: EmbeddedBroker) -> None:
    short, long = (steps(published(broker, f"of-{triggers}", 60, triggers)) for triggers in (12, 96))
    assert 0 < long < 8 * 1.5 * short


def steps(made: Settings) -> int:
    """How many instructions of Python the reader has executed until it could show the newest release."""
    count = 0

    def counted(code: CodeType) -> bool:
        return any(place in code.co_filename for place in COUNTED)

    def each(frame: FrameType, event: str, _: Any) -> Any:
        nonlocal count
        frame.f_trace_opcodes, frame.f_trace_lines = True, False
        count += event == "opcode"
        return each

    before = sys.gettrace()
    with view_of(made) as view:
        sys.settrace(lambda frame, event, _: each(frame, event, _) if counted(frame.f_code) else None)
        try:
            while not view.caught_up or view.newest is None:
                view.poll(0.2)
        finally:
            sys.settrace(before)
        assert view.newest is not None
    return count
