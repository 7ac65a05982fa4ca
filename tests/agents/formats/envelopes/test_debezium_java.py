"""Debezium's own classes make change events, and Kafka Connect's own converter writes them."""

import subprocess
from datetime import UTC, date, datetime, time
from decimal import Decimal
from pathlib import Path

import pytest

from susurrus.agents.broker.artefacts import (
    KafkaUnavailableError,
    cache_directory,
    fetch_jars,
    fetch_with_maven,
    find_java,
)
from susurrus.topics.records.reason import Reason
from tests.broker import give_up
from tests.formats_rows import decoder, rows
from tests.waiting import PATIENCE

DEBEZIUM = "3.0.8.Final"
ARTEFACTS = ("debezium-core", "debezium-api")
"""Kafka's own JARs have all that these need here, and the converter."""
PROGRAM = Path(__file__).parents[3] / "java" / "DebeziumEvents.java"
PATHS = ["customer_id", "amount", "$envelope.op", "$envelope.source.table", "$envelope.ts_ms"]
AT = 1_790_834_400_500
EVENTS = [
    ["ann", 19.99, "c", "orders", AT],
    ["ben", -20, "r", "orders", AT],
    ["cas", 123456789012345678901234567890.12, "u", "orders", AT],
    ["ben", 0.01, "d", "orders", AT],
    Reason.FILTERED,  # a truncation
    Reason.FILTERED,  # a tombstone
]
ROW = {
    "customer_id": "dan", "amount": Decimal("7.50"), "rate": Decimal("-123.4567"), "day": date(2026, 10, 1),
    "created": datetime(2026, 10, 1, 6, 0, 0, 123_456), "milli": datetime(2026, 10, 1, 6, 0, 0, 123_000),
    "nano": datetime(2026, 10, 1, 6, 0, 0, 123_456), "at": "2026-10-01T06:00:00.123456Z", "clock": time(6, 0, 0, 1),
    "raw": b"\x01\xff", "connect_day": date(2026, 10, 1), "connect_at": datetime(2026, 10, 1, 6, 0, 0, 123_000, UTC),
    "connect_time": time(6, 0, 0, 1_000), "tags": ["a", "b"], "labels": {"x": Decimal("1.5")},
}  # fmt: skip


def written(schemas: str) -> list[bytes | None]:
    """The events, a tombstone, and a row without an envelope. schemas: whether each has its schema."""
    try:
        homes = []
        for name in ARTEFACTS:
            homes.append(cache_directory() / "debezium" / f"{name}-{DEBEZIUM}")
            artefact = f"-Dartifact=io.debezium:{name}:{DEBEZIUM}"
            fetch_with_maven(homes[-1], f"{name} for a test", "dependency:copy", artefact)
        class_path = ":".join(f"{home}/*" for home in (*homes, fetch_jars()))
        command = [find_java(), "-cp", class_path, str(PROGRAM), schemas]
    except KafkaUnavailableError as missing:
        give_up(f"no converter of Debezium's: {missing}")
    found = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE, check=False)
    assert found.returncode == 0, found.stderr[-2000:]
    lines = found.stdout.split("\n")[:-1]
    assert len(lines) == len(EVENTS) + 1
    return [line.encode() or None for line in lines]


@pytest.mark.thorough
@pytest.mark.timeout(400)  # fetches packages once, and Java compiles the program each time
def test_what_debezium_writes_is_read() -> None:
    *events, row = written("true")
    assert rows(decoder(PATHS, envelope="debezium"), events) == EVENTS
    assert rows(decoder(["", "$envelope.schema"], envelope="connect"), [row]) == [[ROW, "shop.public.orders.Value"]]
    *events, row = written("false")
    assert rows(decoder(PATHS, envelope="debezium", decimals={"amount": 2}), events) == EVENTS
    assert rows(decoder(["customer_id", "amount"], decimals={"amount": 2}), [row]) == [["dan", 7.5]]
