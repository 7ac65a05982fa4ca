"""A Java program that knows nothing of Susurrus reads the rows: Kafka's own client, Avro's own library, the registry."""

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest

from susurrus.agents.broker.artefacts import (
    KafkaUnavailableError,
    cache_directory,
    fetch_jars,
    fetch_with_maven,
    find_java,
)
from susurrus.agents.formats.outputs import reader_of
from susurrus.topics import histogram
from tests.broker import Broker, give_up
from tests.chaos.conftest import archive
from tests.pipeline import CRASHING, Pipeline, merged
from tests.waiting import PATIENCE

pytest.importorskip("fastavro")
pytest.importorskip("authlib")

AVRO = "1.12.0"
PROGRAM = Path(__file__).parents[2] / "java" / "ReadRows.java"


def class_path() -> str:
    """Kafka's JARs have all that Avro's needs to decode."""
    home = cache_directory() / "avro" / f"avro-{AVRO}"
    fetch_with_maven(home, "Avro for Java", "dependency:copy", f"-Dartifact=org.apache.avro:avro:{AVRO}")
    return f"{fetch_jars()}/*:{home}/*"


@pytest.mark.timeout(400)  # fetches a package once, and Java compiles the program each time
def test_a_java_consumer_reads_the_committed_rows_with_their_receipts(
    kafka: Broker, schema_registry: str, tmp_path: Path
) -> None:
    try:
        command = [find_java(), "-cp", class_path(), str(PROGRAM)]
    except KafkaUnavailableError as missing:
        give_up(f"no Java consumer: {missing}")
    overrides: dict[str, Any] = {
        "window": {"trigger_every": "12h"},
        "output": {"format": "avro", "registry": {"url": schema_registry}},
    }
    with Pipeline(kafka, tmp_path, archive(kafka, 1), merged(overrides, CRASHING)) as pipeline:
        pipeline.crash("release:after-outputs:1")  # rows that were aborted stay in the log
        pipeline.start()
        pipeline.wait()
        settings, topic = pipeline.settings, pipeline.settings.topic("histogram")
        found = subprocess.run(
            [*command, kafka.bootstrap_servers, topic, schema_registry, "count"],
            capture_output=True, text=True, timeout=PATIENCE, check=False,
        )  # fmt: skip
        assert found.returncode == 0, found.stderr[-2000:]
        lines = [json.loads(line) for line in found.stdout.splitlines()]
        read = reader_of(settings.output, settings.schemas[topic], settings.namespace)
        rows = [histogram.decode_row(read(message.value())) for message in kafka.read_all(topic)]
    assert len(rows) > 10
    assert sorted((line["trigger"], line["key"], line["estimate"], line["std_error"]) for line in lines) == sorted(
        (row.trigger, row.key, row.values["count"].estimate, row.values["count"].std_error) for row in rows
    )
    assert {line["window_start"] for line in lines} == {row.window for row in rows}
    assert all(line["receipt"]["epsilon"] == 6.0 for line in lines)
    assert all(line["receipt"]["digest"] == settings.config_digest().hex() for line in lines)
