"""A toy strategy, a toy column and a toy format together: a real worker on the embedded broker publishes with them."""

import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest
from confluent_kafka import Producer

from susurrus.agents.broker.leash import ends_with_us
from susurrus.agents.config import secrets
from susurrus.agents.formats import FORMATS
from susurrus.agents.histogram.columns import COLUMNS
from susurrus.agents.histogram.releases import Release, ReleaseReader
from susurrus.agents.histogram.settings import HistogramSettings
from susurrus.agents.kafka.embedded import EmbeddedBroker
from susurrus.agents.pipelines import load_settings
from tests.toys.column import SumOfSquares
from tests.toys.format import MessagePack
from tests.toys.strategy import Frugal, registered
from tests.waiting import PATIENCE

ROOT = Path(__file__).parents[2]
DAY = 807_235_200_000  # 1995-08-01T00:00:00Z
USERS = {"/index": 400, "/news": 250, "/rare": 1}
CONFIGURATION = """
[pipeline]
name = "toys"
[kafka]
bootstrap_servers = "{servers}"
embedded = true
[input]
topic = "raw"
format = "messagepack"
user = "host"
key = ["url"]
[start]
from = "earliest"
first_window = 1995-08-01T00:00:00Z
[clock]
kind = "replay"
until = 1995-08-02T00:00:00Z
[window]
trigger_every = "12h"
[bounds]
max_records_per_user = 4
[[columns]]
name = "visits"
[[columns]]
name = "squares"
kind = "sum-of-squares"
field = "amount"
bound = 10.0
grid = 1.0
[privacy]
epsilon = 6.0
delta = 1e-6
strategy = "frugal-toy"
secret_file = "secret"
[privacy.frugal-toy]
ranked_keys = 2
spent = 0.8
[topics]
by_user_partitions = 4
bounded_partitions = 4
replication_factor = 1
min_insync_replicas = 1
[worker]
data_directory = "{directory}/state"
"""


@pytest.fixture
def settings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[HistogramSettings]:
    monkeypatch.setitem(COLUMNS, SumOfSquares.kind, SumOfSquares)
    monkeypatch.setitem(FORMATS, MessagePack.name, MessagePack)
    with registered(Frugal), EmbeddedBroker() as broker:
        text = CONFIGURATION.format(servers=broker.bootstrap_servers, directory=tmp_path)
        (tmp_path / "toys.toml").write_text(text)
        secrets.create(tmp_path / "secret")
        found = HistogramSettings.of(load_settings(tmp_path / "toys.toml", {}))
        for topic in ("raw", *(found.topic(spec.name) for spec in found.topic_specs), found.topics.charges):
            broker.create(topic)
        yield found


def produce(settings: HistogramSettings) -> None:
    """Every user visits /index, some /news, and one /rare; amounts are 2 or 3."""
    producer = Producer({"bootstrap.servers": settings.kafka.bootstrap_servers, "log_level": 2})
    for url, users in USERS.items():
        for user in range(users):
            event = msgspec.msgpack.encode({"host": f"host {user}", "url": url, "amount": 2 + user % 2})
            producer.produce("raw", event, partition=user % 4, timestamp=DAY + 3_600_000)
    assert producer.flush(30) == 0


def test_a_worker_publishes_with_three_toys(settings: HistogramSettings, tmp_path: Path) -> None:
    assert settings.topic("published-keys") in {settings.topic(spec.name) for spec in settings.topic_specs}
    produce(settings)
    command = [sys.executable, "-m", "tests.toys.plugged", "worker", "--config", str(tmp_path / "toys.toml")]
    with (tmp_path / "log").open("wb") as log:
        worker = subprocess.Popen(command, cwd=ROOT, stdout=log, stderr=subprocess.STDOUT)
    ends_with_us(worker.pid)
    try:
        release = final(settings, worker, tmp_path / "log")
    finally:
        worker.terminate()
        worker.wait(60)
    assert release.keys == ["/index", "/news"], "one user does not make a key appear"
    for row, url in enumerate(release.keys):
        users = USERS[url]
        truth = {"visits": users, "squares": sum((2 + user % 2) ** 2 for user in range(users))}
        values = {column: of.at(row) for column, of in release.columns.items()}
        assert {column: value.std_error > 0 for column, value in values.items()} == dict.fromkeys(truth, True)
        for column, value in values.items():
            assert abs(value.estimate - truth[column]) < 6 * value.std_error, column
        assert values["visits"].estimate == int(values["visits"].estimate)


def final(settings: HistogramSettings, worker: "subprocess.Popen[bytes]", log: Path) -> Release:
    """The window at its last trigger."""
    deadline = time.monotonic() + PATIENCE
    with ReleaseReader(settings) as reader:
        while time.monotonic() < deadline and worker.poll() is None:
            for release in reader.poll(0.2):
                if release.final:
                    return release
    raise AssertionError(f"no last trigger; the worker said:\n{log.read_text()[-4000:]}")
