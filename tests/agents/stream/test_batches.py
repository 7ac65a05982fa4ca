"""The stream stage publishes the same bytes whether a fetch comes as record batches, decoded compiled, or as parsed records."""

import json
import random
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from susurrus.agents.config.input import InputSettings
from susurrus.agents.runtime.batch import Batch
from susurrus.agents.runtime.faust.record_batches import Fetched, batch_at
from susurrus.agents.stream.stage import StreamStage, whole_decoder
from susurrus.topics.compiled import compiled
from susurrus.topics.records.values import ValuesSchema
from tests.agents.cycles import no_cycles
from tests.agents.stages import Runner
from tests.agents.stream.test_order import services
from tests.record_batches import LZ4, record_batch

pytestmark = pytest.mark.skipif(compiled is None, reason="the extension is not built")

NUMBER = 3_000


def payloads() -> list[bytes | None]:
    """Meters, some of them odd."""
    dice, found = random.Random(1), list[bytes | None]()
    for _ in range(NUMBER):
        meter: Any = f"m{int(dice.expovariate(0.5)) % 7}"
        watts: Any = round(dice.gammavariate(2, 8), 2)
        if dice.random() < 0.1:
            watts = dice.choice([None, "many", 1e300, -3, True, 5])
        found.append(json.dumps({"meter": meter, "watts": watts}).encode() if dice.random() < 0.98 else b"{")
    return found


def published(
    method: str, directory: Path, *, whole: bool, seed: int, kept: list[Runner] | None = None
) -> tuple[list[Any], dict[bytes, bytes]]:
    runner, values, dice, start = Runner(StreamStage, services(method), directory), payloads(), random.Random(seed), 0
    if kept is not None:
        kept.append(runner)
    while start < NUMBER:
        end = min(NUMBER, start + dice.randrange(1, 500))
        # A fetch may begin inside a record batch.
        begins = max(0, start - 5)
        data = record_batch(values[begins:end], first=begins, codec=LZ4 * dice.randrange(2))
        batch, _ = batch_at(data, 0)
        assert batch is not None
        fetched = Fetched([batch], start)
        runner.stage.take(Batch(start, end, fetched if whole else fetched.records(), 0))  # type: ignore[arg-type]
        runner.next = start = end
        if dice.random() < 0.5:
            runner.commit()
            if kept is None:
                runner.restart()
    runner.commit()
    state = runner.state()
    runner.close()
    return runner.written, state


@pytest.mark.parametrize("method", ["tops", "pak"])
def test_record_batches_and_records_publish_the_same_bytes(method: str, tmp_path: Path) -> None:
    compiled_rows = published(method, tmp_path / "whole", whole=True, seed=3)
    assert len(compiled_rows[0]) > 300
    assert published(method, tmp_path / "parsed", whole=False, seed=3) == compiled_rows


@pytest.mark.parametrize("method", ["tops", "pak"])
def test_nothing_of_a_fetch_waits_for_the_collector(method: str, tmp_path: Path) -> None:
    kept: list[Runner] = []  # a stage lasts as long as its task, here without restarts
    with no_cycles():
        written, _ = published(method, tmp_path, whole=True, seed=3, kept=kept)
    assert len(written) > 300


def test_only_json_is_decoded_compiled() -> None:
    schema = ValuesSchema(stream="meter", value="watts", bound=1.0, grid=0.5)
    compressed = InputSettings(topic="t", compression="gzip")
    assert whole_decoder(SimpleNamespace(input=InputSettings(topic="t")), schema) is not None  # type: ignore[arg-type]
    assert whole_decoder(SimpleNamespace(input=compressed), schema) is None  # type: ignore[arg-type]
    beside = replace(schema, stream="$headers.meter")
    assert whole_decoder(SimpleNamespace(input=InputSettings(topic="t")), beside) is None  # type: ignore[arg-type]
