"""What every recipe reads: one pipeline's outputs on a real broker, made once a run from docs/recipes/pipeline.toml.

The input, the secret and the epoch are fixed, so that every recipe prints what docs/recipes/README.md shows, digit by digit.
"""

import os
import re
import tomllib
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from susurrus.agents.cli.main import app
from tests.broker import Broker
from tests.chaos.conftest import same_archive
from tests.pipeline import DEFAULTS, Pipeline

RECIPES = Path(__file__).parents[2] / "docs" / "recipes"
PAGE = RECIPES / "README.md"
RAW = "susurrus-recipes"
"""The raw topic. Its name is part of the noise's address."""


@dataclass(frozen=True, kw_only=True)
class Published:
    """A finished pipeline. prefix: of its topics, up to the last dot. export: the Parquet file of `susurrus watch`."""

    bootstrap_servers: str
    prefix: str
    export: Path

    def here(self, recipe: str) -> str:
        """The text of a recipe, with this broker and these topics instead of those of the documentation."""
        text = (RECIPES / recipe).read_text(encoding="utf-8")
        assert "localhost:9092" in text or "susurrus.page-views" in text
        return text.replace("localhost:9092", self.bootstrap_servers).replace("susurrus.page-views", self.prefix)


@pytest.fixture(scope="session")
def published(
    kafka: Broker, once: Callable[[str, Callable[[], Any]], Any], tmp_path_factory: pytest.TempPathFactory
) -> Published:
    """The outputs of docs/recipes/pipeline.toml after its day."""

    def make() -> Published:
        if RAW in kafka.admin().list_topics(timeout=30).topics:  # on a broker that outlives the run
            kafka.delete_topic(RAW)
        overrides: dict[str, Any] = tomllib.loads((RECIPES / "pipeline.toml").read_text())
        del overrides["kafka"], overrides["input"]["topic"], overrides["privacy"]["secret_file"]
        overrides["privacy"] |= dict.fromkeys(DEFAULTS["privacy"].keys() - overrides["privacy"].keys())
        directory = tmp_path_factory.mktemp("recipes")
        with Pipeline(kafka, directory, same_archive(kafka, RAW, 1), overrides) as pipeline:
            pipeline.start()
            pipeline.wait()
            export = directory / "page-views.parquet"
            arguments = ["watch", "--config", str(pipeline.config), "--export", "parquet", "--output", str(export)]
            done = CliRunner().invoke(app, arguments)
            assert done.exit_code == 0, done.output
            prefix = pipeline.settings.topic("latest").removesuffix(".latest")
        return Published(bootstrap_servers=kafka.bootstrap_servers, prefix=prefix, export=export)

    found: Published = once("recipes", make)
    return found


def check_shown(name: str, output: str) -> None:
    """The page shows this output under ``<!-- output: name -->``. With SUSURRUS_WRITE_RECIPES=1 it is written there."""
    page = PAGE.read_text(encoding="utf-8")
    found = re.search(rf"<!-- output: {name} -->\n```\n(.*?)```\n", page, re.DOTALL)
    assert found is not None, f"{PAGE.name} has no block of {name}"
    lines = "".join(f"{line.rstrip()}\n" for line in output.strip("\n").splitlines())
    if os.environ.get("SUSURRUS_WRITE_RECIPES") == "1":
        PAGE.write_text(page[: found.start(1)] + lines + page[found.end(1) :], encoding="utf-8")
        return
    assert lines == found[1], f"{PAGE.name} shows another output of {name}; see SUSURRUS_WRITE_RECIPES in {__file__}"
