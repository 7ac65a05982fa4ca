"""A pipeline of kind local under test, and clients for it."""

import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from susurrus.agents.local.client import ToplClient
from susurrus.topics import estimate as estimate_codec
from tests.broker import Broker
from tests.pipeline import Pipeline, merged
from tests.waiting import PATIENCE

INTERVAL = 2_000
LOCAL: dict[str, Any] = {
    "bound": 1000.0,
    "epsilon": 2.0,
    "holdout": 6_000,
    "interval": "2s",
    "lateness": "500ms",
    "horizon": 50_000,
}


def local_pipeline(
    kafka: Broker, directory: Path, overrides: Mapping[str, Any] | None = None, **local: Any
) -> Pipeline:
    """A pipeline of kind local: none of the histogram's sections, and no raw topic. ``overrides`` are for what it has."""

    class Local(Pipeline):
        def __init__(self) -> None:
            own = {"pipeline": {"kind": "local", "name": "meters"}}
            super().__init__(kafka, directory, "unused", merged(own, overrides or {}))

        def write_config(self) -> None:
            for section in ("input", "start", "clock", "window", "bounds", "privacy"):
                self.data.pop(section, None)
            if overrides and "input" in overrides:
                self.data["input"] = overrides["input"]
            self.data["local"] = {**LOCAL, **local}
            super().write_config()

    return Local()


def client_of(pipeline: Pipeline, **options: Any) -> ToplClient:
    settings = pipeline.settings
    return ToplClient(
        settings.kafka.bootstrap_servers,
        prefix=settings.pipeline.prefix,
        pipeline=settings.pipeline.name,
        epsilon=LOCAL["epsilon"],
        bound=LOCAL["bound"],
        interval=INTERVAL,
        **options,
    )


def estimates(kafka: Broker, pipeline: Pipeline) -> list[estimate_codec.EstimateRow]:
    return [estimate_codec.decode(m.value()) for m in kafka.read_all(pipeline.settings.topic("estimate"))]


def until(condition: Callable[[], object], pipeline: Pipeline, seconds: float = PATIENCE) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > deadline:
            raise TimeoutError("\n".join(worker.tail() for worker in pipeline.workers[-2:]))
        time.sleep(0.2)


def values(n: int, seed: int) -> np.ndarray:
    return np.random.default_rng(seed).gamma(2.0, 10.0, n).clip(0, 1000)
