"""A pipeline of kind stream under test: none of the histogram's sections."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tests.broker import Broker
from tests.pipeline import EPOCH, Pipeline, merged

TOPS: dict[str, Any] = {
    "stream": "meter",
    "value": "reading.watts",
    "bound": 100.0,
    "grid": 0.5,
    "epsilon": 1.0,
    "holdout": 300,
    "range_limit": 1024,
    "fanout": 4,
    "smoothing": 1,
}


def stream_pipeline(
    kafka: Broker,
    directory: Path,
    raw: str,
    stream: dict[str, Any],
    overrides: Mapping[str, Any] | None = None,
    elsewhere: Broker | None = None,
) -> Pipeline:
    """A pipeline of kind stream: none of the histogram's sections. ``overrides`` are for its sections. elsewhere: as for
    `Pipeline`."""

    class Streams(Pipeline):
        def write_config(self) -> None:
            for section in ("bounds", "privacy", "clock"):
                self.data.pop(section, None)
            there = {} if elsewhere is None else {"kafka": self.data["input"]["kafka"]}
            self.data["input"] = {"topic": raw, **there, **(overrides or {}).get("input", {})}
            self.data["start"] = {"from": "earliest", "epoch": EPOCH, "first_window": "1995-08-01T00:00:00Z"}
            self.data["stream"] = stream
            super().write_config()

    own = {"pipeline": {"kind": "stream", "name": "meters"}}
    return Streams(kafka, directory, raw, merged(own, overrides or {}), elsewhere=elsewhere)
