"""Released records for tests of readers: what release would write, made by the real codecs."""

import dataclasses
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from confluent_kafka import Producer

from susurrus.agents.config.kafka_properties import librdkafka
from susurrus.agents.config.settings import Settings
from susurrus.agents.histogram.estimates import Estimates
from susurrus.agents.histogram.estimates import Release as ReadRelease
from susurrus.agents.pipelines import settings_from
from susurrus.topics import histogram, progress
from susurrus.topics.histogram import ColumnRows, TriggerHeader

DAY = 86_400_000
EPOCHS = {1: "ab" * 16, 2: "cd" * 16, 3: "01" * 16}
"""Ids by number."""
WINDOW = 807_235_200_000  # 1995-08-01T00:00:00Z


def settings(servers: str = "localhost:1", directory: Path = Path(), **sections: Any) -> Settings:
    """A pipeline on an embedded broker."""
    data: dict[str, Any] = {
        "pipeline": {"name": "page-views", "prefix": "t"},
        "kafka": {"bootstrap_servers": servers, "embedded": True},
        "input": {"topic": "raw", "user": "host", "key": ["url"]},
        "window": {"trigger_every": "6h"},
        "privacy": {"epsilon": 6.0, "delta": 1e-9, "strategy": "toeplitz"},
        **sections,
    }
    data["topics"] = {"charges": f"{data['pipeline'].get('prefix', 'susurrus')}.charges", **data.get("topics", {})}
    if data["privacy"] is None:  # kinds with a promise of their own
        del data["privacy"]
    return settings_from(data, directory=directory, environ={})


def rows(
    trigger: int,
    counts: Mapping[bytes, int],
    *,
    window: int = WINDOW,
    of: int = 4,
    std_error: float = 2.5,
    epoch: int = 1,
    smoothed: Mapping[bytes, int] | None = None,
    direct: Mapping[bytes, int] | None = None,
) -> list[tuple[bytes, bytes]]:
    """Kafka keys and values of one trigger; ``counts`` by canonical key. smoothed: of some keys, with an error of 1. direct: of all
    keys, with an error of 8."""
    release = TriggerHeader(
        window_start=window,
        window_end=window + DAY,
        trigger=trigger,
        of_triggers=of,
        strategy="toeplitz",
        epoch=EPOCHS[epoch],
    )
    estimate = np.array(list(counts.values()), np.int64)
    column = ColumnRows(name="visits", estimate=estimate, std_error=std_error)
    if direct is not None:
        column = dataclasses.replace(column, direct=(np.array([direct[key] for key in counts], np.int64), 8.0))
    if smoothed is not None:
        column = dataclasses.replace(
            column,
            smoothed=(np.array([smoothed.get(key, 0) for key in counts], np.int64), 1.0),
            smoothed_rows=np.array([key in smoothed for key in counts], np.bool_),
        )
    keys, values = histogram.encode_rows(release, list(counts), [column])
    return list(zip(keys, values, strict=True))


def said(
    trigger: int,
    rows: int,
    *,
    partition: int = 0,
    of_partitions: int = 1,
    window: int = WINDOW,
    of: int = 4,
    epoch: int = 1,
    remembered: int | None = None,
    persistence: float | None = None,
) -> tuple[bytes, bytes]:
    """Kafka key and value of one announcement."""
    return progress.encode(
        progress.Progress(
            window=window,
            trigger=trigger,
            of_triggers=of,
            partition=partition,
            of_partitions=of_partitions,
            rows=rows,
            epoch=EPOCHS[epoch],
            epoch_number=epoch,
            remembered=remembered,
            persistence=persistence,
        )
    )


def release_of(
    keys: Sequence[Any] = (),
    columns: Mapping[str, Estimates] | None = None,
    *,
    window_start: int = WINDOW,
    trigger: int = 1,
    of_triggers: int = 4,
    epoch_number: int = 1,
    fields: tuple[str, ...] = ("url",),
) -> ReadRelease:
    """A release as a reader gives it."""
    return ReadRelease(
        window_start=window_start,
        window_end=window_start + DAY,
        trigger_time=window_start + trigger * DAY // of_triggers,
        trigger=trigger,
        of_triggers=of_triggers,
        epoch=EPOCHS[epoch_number],
        epoch_number=epoch_number,
        strategy="toeplitz",
        fields=fields,
        keys=list(keys),
        columns=columns or {},
    )


def publish(
    of: Settings, released: Mapping[int, list[tuple[bytes, bytes]]], announced: list[tuple[bytes, bytes]]
) -> None:
    """Write rows by partition, then announcements."""
    producer = Producer({**librdkafka(of.kafka), "log_level": 2})
    for partition, records in released.items():
        for key, value in records:
            producer.produce(of.topic("histogram"), value, key, partition=partition)
    producer.flush(10)
    for key, value in announced:
        producer.produce(of.topic("progress"), value, key, partition=0)
    assert producer.flush(10) == 0
