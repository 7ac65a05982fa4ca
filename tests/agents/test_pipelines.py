"""A kind of pipeline is one folder and one line in KINDS: nothing else names a kind, and a new one needs no other change."""

import gc
import json
import re
import runpy
import weakref
from dataclasses import replace
from pathlib import Path
from typing import Any, ClassVar

import pytest
from typer.testing import CliRunner

from susurrus.agents.cli.main import app
from susurrus.agents.cli.reference import markdown
from susurrus.agents.config.settings import Settings
from susurrus.agents.histogram.services import HistogramServices
from susurrus.agents.pipelines import KINDS, json_schema, pipeline_of, settings_from
from susurrus.agents.runtime.pipeline import Pipeline, StageSpec
from susurrus.agents.runtime.stage import Stage
from susurrus.agents.runtime.store import Store
from susurrus.agents.types.section import Section
from susurrus.mechanisms.errors import ConfigurationError
from susurrus.topics.receipt import VERSION, Receipt
from susurrus.topics.spec import DEAD_LETTER, LEDGER, TopicSpec
from tests.agents.stages import MemoryClients, MemoryLedger, born

AGENTS = Path(__file__).parents[2] / "agents"
CONFIGURATIONS: dict[str, dict[str, Any]] = {
    "histogram": {"input": {"topic": "raw", "user": "u", "key": ["k"]}, "privacy": {"epsilon": 1.0, "delta": 1e-9}},
    "stream": {"input": {"topic": "raw"}, "stream": {"bound": 1.0, "epsilon": 1.0}},
    "local": {"local": {"bound": 1.0, "epsilon": 1.0}},
}
CONFIGURED: dict[str, Settings] = runpy.run_path(str(AGENTS.parent / "tests" / "golden" / "make_digests.py"))[
    "configurations"
]()
"""One of every strategy, kind, clock and format."""


def test_no_code_outside_its_folder_asks_which_kind_a_pipeline_is() -> None:
    asks = re.compile(rf"""(settings|pipeline)\.kind\s*(==|!=|in\b)|\bkind\s*(==|!=)\s*"({"|".join(KINDS)})\"""")
    found = [
        f"{path.relative_to(AGENTS)}: {line.strip()}"
        for path in sorted(AGENTS.rglob("*.py"))
        if path.relative_to(AGENTS).parts[0] not in KINDS
        for line in path.read_text(encoding="utf-8").splitlines()
        if asks.search(line)
    ]
    assert not found


@pytest.mark.parametrize("kind", KINDS)
def test_a_kind_is_consistent(kind: str) -> None:
    pipeline = pipeline_of(settings_from({"pipeline": {"name": "p", "kind": kind}, **CONFIGURATIONS[kind]}))
    settings = pipeline.settings
    specs = {spec.name: spec for spec in settings.topic_specs}
    own = {settings.topic(name) for name in specs}
    assert {LEDGER, DEAD_LETTER, pipeline.output} <= set(specs.values())
    assert pipeline.output.readers == "public"
    for stage in pipeline.stages:
        assert stage.changelog in specs
        [topic] = stage.inputs(settings.input.listed)
        assert topic in own | {settings.input.topic}
        assert stage.purge <= (topic in own)
    assert pipeline.initializer[0] in {stage.name for stage in pipeline.stages}
    assert settings.reads_raw == (settings.input.topic not in own)
    assert len(pipeline.digest()) == 32
    assert pipeline.guarantee()
    assert pipeline.description.endswith(".")


@pytest.mark.parametrize("kind", KINDS)
def test_a_misspelt_clock_is_refused_by_every_kind(kind: str) -> None:
    data = {"pipeline": {"name": "p", "kind": kind}, **CONFIGURATIONS[kind]}
    for wrong, quoted in (("broqer", '"broqer"'), ('"' + "x" * 80, '"\\"' + "x" * 54 + "...")):
        with pytest.raises(ConfigurationError) as refused:
            settings_from({**data, "clock": {"kind": wrong}})
        assert str(refused.value) == f"clock.kind = {quoted}: use 'broker', 'producer' or 'replay'"
    assert settings_from({**data, "clock": {"kind": "producer"}}).clock.kind == "producer"


@pytest.mark.parametrize(
    "name",
    [name for name in CONFIGURED if name != "format protobuf"],  # its messages are in no module here
)
def test_a_stage_that_is_let_go_is_gone_and_does_not_wait_for_the_collector(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A worker makes stages in every rebalance, and hardly ever runs the collector."""
    monkeypatch.setenv("SUSURRUS_SECRET", "5a" * 32)
    pipeline = pipeline_of(CONFIGURED[name])
    ledger: Any = MemoryLedger(pipeline.settings, sources=1)
    if pipeline.settings.kind == "local":
        ledger.records = dict
    apart: dict[str, Any] = {"ledger": ledger, "clients": MemoryClients({0: 0})}
    services = pipeline.services()
    if isinstance(services, HistogramServices):
        apart |= {"public_progress": None, "published_keys_reader": None}
    store = Store(tmp_path / "s")
    made = [born(stage.stage, replace(services, **apart), store)[0] for stage in pipeline.stages]
    stages = [weakref.ref(stage) for stage in made]
    gc.disable()
    try:
        for stage in made:
            stage.close()
        del stage
        made.clear()
        assert [left() for left in stages] == [None] * len(pipeline.stages)
    finally:
        gc.enable()
        services.close()
        store.close()


class ToySection(Section):
    """What a toy needs."""

    size: int = 3
    """How large it is."""
    color: str = "red"
    """How it looks, which is not published."""


class ToySettings(Settings):
    """The whole configuration of a toy."""

    kind = "toy"
    published: ClassVar[tuple[str, ...]] = (*Settings.published, "toy")
    not_published: ClassVar[tuple[str, ...]] = (*Settings.not_published, "toy.color")
    toy: ToySection
    """Size and color."""


class Toy(Pipeline[ToySettings]):
    description = "A toy."
    settings_class = ToySettings
    output = TopicSpec("toys", "one", "delete", "forever", "public")

    @property
    def stages(self) -> tuple[StageSpec, ...]:
        return (StageSpec("play", self.settings.input.topic, "play-changelog", Stage, purge=False),)

    def guarantee(self) -> str:
        return "No one learns which toy is whose."

    def receipt(self) -> Receipt:
        return Receipt(
            epsilon=1.0,
            delta=0.0,
            unit="toy",
            neighbours="swap",
            strategy="",
            digest=self.settings.config_digest().hex(),
            schema=VERSION,
        )


@pytest.fixture
def _toys(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(KINDS, "toy", Toy)  # type: ignore[arg-type]


def toy(**fields: Any) -> Settings:
    return settings_from({"pipeline": {"name": "t", "kind": "toy"}, "input": {"topic": "raw"}, "toy": fields})


@pytest.mark.usefixtures("_toys")
class TestANewKind:
    def test_its_configuration_is_read_and_its_digest_covers_its_own_fields(self) -> None:
        pipeline = pipeline_of(toy(size=4))
        assert isinstance(pipeline, Toy)
        assert pipeline.settings.toy.size == 4
        assert toy(size=4).config_digest() != toy().config_digest() == toy(color="blue").config_digest()

    def test_mistakes_are_told_as_for_any_kind(self) -> None:
        with pytest.raises(ConfigurationError, match=r'^toy\.sise: unknown field; did you mean "size"\?$'):
            toy(sise=3)
        data = {"pipeline": {"name": "t", "kind": "histogram"}, **CONFIGURATIONS["histogram"], "toy": {}}
        with pytest.raises(ConfigurationError, match=r'^toy: belongs to kind "toy"; leave it out'):
            settings_from(data)

    def test_it_has_its_place_on_the_page_and_in_the_schema(self) -> None:
        page = markdown()
        assert "## Kind `toy`\n\nA toy.\n\n### `[toy]`" in page
        assert '| `size` | integer | `3` | yes | How large it is. |\n| `color` | text | `"red"` |  |' in page
        assert "toy" in json_schema()["properties"]
        assert "toy" in json_schema()["$defs"]["PipelineSettings"]["properties"]["kind"]["enum"]

    def test_the_commands_ask_it(self, tmp_path: Path) -> None:
        path = tmp_path / "toy.toml"
        path.write_text('[pipeline]\nname = "t"\nkind = "toy"\n[input]\ntopic = "raw"\n[toy]\n', encoding="utf-8")
        said = CliRunner().invoke(app, ["config", "check", str(path)]).output
        assert "No one learns which toy is whose." in said
        assert "susurrus.t.toys" in said
        assert "noise secret" not in said
        refused = CliRunner().invoke(app, ["watch", "--config", str(path)])
        assert refused.exit_code == 2
        assert "watch does not know this kind" in " ".join(refused.output.replace("│", " ").split())


def test_the_schema_has_the_sections_of_all_kinds() -> None:
    schema = json.loads(CliRunner().invoke(app, ["config", "schema"]).output)
    sections = {name for pipeline in KINDS.values() for name in pipeline.settings_class.model_fields}
    assert set(schema["properties"]) == sections
    assert schema["required"] == ["input", "pipeline"]
