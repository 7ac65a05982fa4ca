"""What a release stage and the ledger would have written, for dashboards under test: by the real codecs, to any broker."""

import asyncio
import contextlib
from collections.abc import Iterator, Mapping, Sequence
from types import SimpleNamespace
from typing import Any

import numpy as np
from confluent_kafka import Producer

from susurrus.agents.config.kafka_properties import librdkafka
from susurrus.agents.config.settings import Settings
from susurrus.agents.dashboard.server import DashboardServer
from susurrus.agents.dashboard.serving import serving
from susurrus.agents.histogram.estimates import Estimates, Release
from susurrus.topics import charges
from tests.agents.released import EPOCHS, release_of
from tests.broker import Broker, wait_for

Key = Any


def released(counts: Mapping[Key, float], *, std_error: float | Sequence[float] = 2.5, **fields: Any) -> Release:
    """A trigger with one column, `visits`."""
    estimate = np.array(list(counts.values()))
    errors = np.broadcast_to(np.asarray(std_error, np.float64), estimate.shape)
    return release_of(list(counts), {"visits": Estimates(estimate, errors)}, **fields)


def write(of: Settings, records: Mapping[str, Sequence[tuple[bytes, bytes]]], partition: int = 0) -> None:
    """Write (key, value) pairs to the pipeline's topics, by name; announcements last. "charges" is the prefix's."""
    producer = Producer({**librdkafka(of.kafka), "log_level": 2})
    for name in sorted(records, key=lambda name: name == "progress"):
        topic = of.topics.charges if name == "charges" else of.topic(name)
        for key, value in records[name]:
            producer.produce(topic, value, key, partition=0 if name in ("progress", "charges") else partition)
        assert producer.flush(10) == 0


def charge(of: Settings, window: int, *, pipeline: str | None = None, mu: float = 0.5) -> tuple[bytes, bytes]:
    """What a window cost."""
    return charges.encode(
        charges.Charge(
            raw_topic=of.input.topic,
            window=window,
            pipeline=pipeline or of.application,
            epoch=EPOCHS[1],
            epsilon=6.0,
            delta=1e-9,
            mu=mu,
            delta_selection=1e-10,
        )
    )


@contextlib.contextmanager
def dashboard(settings: Settings, **options: Any) -> Iterator[DashboardServer]:
    """A dashboard that has read everything there is."""
    with serving(settings, port=0, **options) as server:
        wait_for(lambda: server._feed.state()["caught_up"], "the dashboard has read everything")
        yield server


def create(broker: Broker, settings: Settings) -> None:
    """Make the topics of an embedded broker appear."""
    names = [settings.topic(spec.name) for spec in settings.topic_specs]
    for topic in (*names, settings.topics.charges):
        broker.admin().list_topics(topic, timeout=10)


class FakeFeed(SimpleNamespace):
    """A feed without Kafka: ``board`` answers. version: as the feed counts."""

    def state(self) -> dict[str, Any]:
        return {
            "version": self.version,
            "caught_up": True,
            "trouble": None,
            "budget": None,
            **self.board.state(self.now),
        }

    def answer(self, question: str, query: Mapping[str, str]) -> dict[str, Any]:
        return {"version": self.version, **self.board.answer(question, query)}


def run(coroutine: Any) -> Any:
    """In a loop of its own."""
    return asyncio.run(coroutine)
