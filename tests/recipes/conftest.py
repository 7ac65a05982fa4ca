"""What every recipe reads: one pipeline's outputs on a real broker, made once a run from docs/recipes/pipeline.toml.

The input, the secret and the epoch are fixed, so that every recipe prints what docs/recipes/README.md shows, digit by digit.
"""

import json
import os
import re
import tomllib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from susurrus.agents.cli.main import app
from tests.broker import Broker
from tests.chaos.conftest import same_archive
from tests.pipeline import DEFAULTS, Pipeline, merged

RECIPES = Path(__file__).parents[2] / "docs" / "recipes"
PAGE = RECIPES / "README.md"
RAW = "susurrus-recipes"
"""The raw topic. Its name is part of the noise's address."""


@dataclass(frozen=True, kw_only=True)
class Published:
    """A finished pipeline. prefix: of its topics, up to the last dot."""

    bootstrap_servers: str
    prefix: str
    config: Path

    @property
    def export(self) -> Path:
        """The Parquet file that `susurrus watch` has written."""
        return self.config.with_name("page-views.parquet")

    def here(self, recipe: str) -> str:
        """The text of a recipe, with this broker and these topics instead of those of the documentation."""
        text = (RECIPES / recipe).read_text(encoding="utf-8")
        assert "localhost:9092" in text or "susurrus.page-views" in text
        return text.replace("localhost:9092", self.bootstrap_servers).replace("susurrus.page-views", self.prefix)


Once = Callable[[str, Callable[[], Any]], Any]


@pytest.fixture(scope="session")
def publish(kafka: Broker, once: Once, tmp_path_factory: pytest.TempPathFactory) -> Callable[..., Published]:
    """Runs docs/recipes/pipeline.toml to the end of its day, with more settings if there are any."""

    def archive() -> str:
        if RAW in kafka.admin().list_topics(timeout=30).topics:  # on a broker that outlives the run
            kafka.delete_topic(RAW)
        return same_archive(kafka, RAW, 1)

    raw = once("recipes-raw", archive)

    def run(settings: Mapping[str, Any] | None = None) -> Published:
        overrides: dict[str, Any] = tomllib.loads((RECIPES / "pipeline.toml").read_text())
        del overrides["kafka"], overrides["input"]["topic"], overrides["privacy"]["secret_file"]
        overrides["privacy"] |= dict.fromkeys(DEFAULTS["privacy"].keys() - overrides["privacy"].keys())
        directory = tmp_path_factory.mktemp("recipes")
        with Pipeline(kafka, directory, raw, merged(overrides, settings or {})) as pipeline:
            pipeline.start()
            pipeline.wait()
            prefix = pipeline.settings.topic("latest").removesuffix(".latest")
        if "output" not in overrides and not settings:  # the rows are JSON
            hide_a_key(kafka, prefix)
        for topic in ("histogram", "latest"):
            abort_a_release(kafka, f"{prefix}.{topic}")
        return Published(bootstrap_servers=kafka.bootstrap_servers, prefix=prefix, config=pipeline.config)

    return run


@pytest.fixture(scope="session")
def published(publish: Callable[..., Published], once: Once) -> Published:
    """The outputs of docs/recipes/pipeline.toml after its day."""

    def make() -> Published:
        found = publish()
        arguments = ["watch", "--config", str(found.config), "--export", "parquet", "--output", str(found.export)]
        done = CliRunner().invoke(app, arguments)
        assert done.exit_code == 0, done.output
        return found

    found: Published = once("recipes", make)
    return found


def hide_a_key(kafka: Broker, prefix: str) -> None:
    """Writes what a window with a memory of keys writes, as release would: a key that is shown at one trigger and at no later one,
    and the first row of the next day, which is smoothed. The number of the hidden key is the largest."""
    rows = [json.loads(message.value()) for message in kafka.read_all(f"{prefix}.histogram")]
    early = next(row for row in rows if row["trigger"] == 12)
    gone = {**early, "key": "/gone.html", "values": {**early["values"], "visits": {"estimate": 9999, "std_error": 2.0}}}
    smoothed = {"estimate": 1, "std_error": 9.0, "smoothed": {"estimate": 3, "std_error": 0.5}}
    next_day = {
        **early,
        "window_start": "1995-08-02T00:00:00Z",
        "window_end": "1995-08-03T00:00:00Z",
        "trigger": 24,
        "key": "/smoothed.html",
        "values": {**early["values"], "visits": smoothed},
    }
    producer = kafka.producer()
    for row in (gone, next_day):
        key = json.dumps({"window": row["window_start"], "key": row["key"]}, separators=(",", ":"))
        for topic in ("histogram", "latest"):
            producer.produce(f"{prefix}.{topic}", json.dumps(row), key, partition=0)
        if row is gone:
            producer.produce(f"{prefix}.latest", None, key, partition=0)
    assert producer.flush(30) == 0


def abort_a_release(kafka: Broker, topic: str) -> None:
    """Writes a value that is no row for every key, in a transaction that is aborted: read_committed readers see nothing of it."""
    rows = {message.key(): message.partition() for message in kafka.read_all(topic)}
    producer = kafka.producer(transactional_id=kafka.new_prefix())
    producer.init_transactions(30)
    producer.begin_transaction()
    for key, partition in rows.items():
        producer.produce(topic, b"aborted", key, partition=partition)
    assert producer.flush(30) == 0
    producer.abort_transaction(30)


def check_shown(name: str, output: str, path: Path = PAGE) -> None:
    """The page shows this output under ``<!-- output: name -->``. With SUSURRUS_WRITE_RECIPES=1 it is written there."""
    page = path.read_text(encoding="utf-8")
    found = re.search(rf"<!-- output: {name} -->\n```\n(.*?)```\n", page, re.DOTALL)
    assert found is not None, f"{path.name} has no block of {name}"
    lines = "".join(f"{line.rstrip()}\n" for line in output.strip("\n").splitlines())
    if os.environ.get("SUSURRUS_WRITE_RECIPES") == "1":
        path.write_text(page[: found.start(1)] + lines + page[found.end(1) :], encoding="utf-8")
        return
    assert lines == found[1], f"{path.name} shows another output of {name}; see SUSURRUS_WRITE_RECIPES in {__file__}"
