"""Raw records and settings for tests of what is looked at and tried."""

import json
from collections.abc import Sequence
from typing import Any

import numpy as np

from susurrus.agents.histogram.clock import CREATE_TIME
from susurrus.agents.histogram.decisions import HistogramDecisions
from susurrus.agents.histogram.settings import HistogramSettings
from susurrus.agents.kafka.messages import ReadRecord
from susurrus.agents.operations.trying import Trial, try_records
from susurrus.agents.pipelines import settings_from
from susurrus.agents.runtime.begun import Begun

STAMP = 1_790_834_400_000  # 2026-10-01T06:00:00Z
NOW = STAMP + 3_600_000


def settings(**source: Any) -> HistogramSettings:
    """source: of `[input]`, and the sections clock, start and window. sums: the columns that are published."""
    sections = {name: source.pop(name) for name in ("clock", "start", "window") if name in source}
    if "sums" in source:
        sections["columns"] = source.pop("sums")
    return HistogramSettings.of(
        settings_from(
            {
                "pipeline": {"name": "p"},
                "kafka": {"bootstrap_servers": "127.0.0.1:1"},
                "input": {"topic": "raw", "user": "user_id", "key": ["page"], **source},
                "clock": {"kind": "producer"},
                "privacy": {"epsilon": 1.0, "delta": 1e-9},
                **sections,
            },
            environ={},
        )
    )


def record(
    value: Any, *, offset: int = 0, key: bytes | None = None, headers: Sequence[tuple[str, bytes | None]] = ()
) -> ReadRecord:
    packed = value if value is None or isinstance(value, bytes) else json.dumps(value).encode()
    return ReadRecord("raw", 1, offset, STAMP + offset, key, packed, list(headers))


def records(values: Sequence[Any]) -> list[ReadRecord]:
    return [record(value, offset=offset) for offset, value in enumerate(values)]


def tried(ours: HistogramSettings, some: Sequence[ReadRecord], now: int = NOW, begun: Begun | None = None) -> Trial:
    types = np.full(len(some), CREATE_TIME, np.int64)
    return try_records(HistogramDecisions(ours), ours.input, some, types, now=now, begun=begun)


def fates(trial: Trial) -> list[tuple[str, str, str, int]]:
    """(outcome, reason, setting, number)."""
    return [(fate.outcome, fate.reason.name, fate.setting, fate.number) for fate in trial.fates]
