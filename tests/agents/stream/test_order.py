"""Rows of different streams lie between each other as the raw log has their events, however the log was fetched."""

import json
import random
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from susurrus.agents.runtime.services import Services
from susurrus.agents.stream.stage import StreamStage
from susurrus.topics import private_stream
from tests.agents.released import WINDOW, settings
from tests.agents.stages import SECRET, MemoryClients, MemoryLedger, Runner

METHODS: dict[str, dict[str, Any]] = {
    "tops": {"epsilon": 1.0, "holdout": 30, "range_limit": 64, "fanout": 4, "smoothing": 1},
    "pak": {"method": "pak", "epsilon": 8.0, "delta": 1e-5, "holdout": 500, "horizon": 1000, "tail_start": 0.05},
}
STREAMS = 7


def services(method: str) -> Services:
    configured = settings(
        pipeline={"name": "meters", "prefix": "t", "kind": "stream"},
        input={"topic": "raw"},
        start={"from": "earliest", "first_window": WINDOW},
        stream={"stream": "meter", "value": "watts", "bound": 100.0, "grid": 0.5, **METHODS[method]},
        privacy=None,
        window={},
    )
    return Services(
        settings=configured,
        clients=MemoryClients(),  # type: ignore[arg-type]
        ledger=MemoryLedger(configured),  # type: ignore[arg-type]
        calendar=configured.calendar,
        config_digest=bytes(32),
        secret=SECRET,
    )


def records(count: int) -> list[Any]:
    """Meters in no particular order, some more often than others."""
    dice = random.Random(1)
    found = []
    for offset in range(count):
        meter = f"m{int(dice.expovariate(0.5)) % STREAMS}"
        value = json.dumps({"meter": meter, "watts": round(dice.gammavariate(2, 8), 2)}).encode()
        found.append(SimpleNamespace(offset=offset, timestamp=1_000 + offset, key=None, value=value))
    return found


def rows(method: str, directory: Path, fetches: int | None) -> list[tuple[bytes | None, bytes | None, int | None]]:
    log, dice = records(4_000), random.Random(fetches)
    runner = Runner(StreamStage, services(method), directory)
    while fetches is not None and runner.next < len(log):
        runner.feed(log, runner.next + dice.randrange(1, 400))
        if dice.random() < 0.5:
            runner.commit()
        elif dice.random() < 0.2:
            runner.restart()
    runner.feed(log, len(log))
    runner.commit()
    runner.close()
    return [(key, value, stamp) for _, _, key, value, stamp in runner.to("private-stream")]


@pytest.mark.parametrize("method", METHODS)
def test_the_order_of_rows_is_the_raw_logs(method: str, tmp_path: Path) -> None:
    whole = rows(method, tmp_path / "whole", None)
    stamps = [stamp or 0 for _, _, stamp in whole]
    assert stamps == sorted(stamps)
    streams = [private_stream.decode_row(value or b"").stream for _, value, _ in whole]
    assert len(set(streams)) > 2
    assert np.count_nonzero(np.array(streams[1:]) != np.array(streams[:-1])) > len(streams) / 4, "they hardly alternate"
    for fetches in range(3):
        assert rows(method, tmp_path / str(fetches), fetches) == whole
