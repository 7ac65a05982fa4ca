"""The configuration of local privacy: the common sections and `[local]`."""

from collections.abc import Iterator, Mapping
from typing import Annotated, Any, ClassVar, Literal

from pydantic import Field, model_validator

from susurrus.agents import formats
from susurrus.agents.config.idle import CLOCK, INPUT, WINDOW, Idle, fields
from susurrus.agents.config.sections import PipelineSettings
from susurrus.agents.config.settings import Settings
from susurrus.agents.types.durations import Duration
from susurrus.agents.types.section import Epsilon, Positive, PositiveFloat, Section
from susurrus.topics import estimate, threshold
from susurrus.topics.spec import ESTIMATE, LOCAL_TOPICS, REPORTS, THRESHOLD, TopicSpec, topic_name
from susurrus.topics.wire.row_schema import RowSchema


class LocalSection(Section):
    """Reports perturbed by the clients, with a promise per report."""

    bound: PositiveFloat
    """Values are clamped to [0, bound] by the client."""
    epsilon: Epsilon
    """Privacy loss per report."""
    holdout: Positive = 65_536
    """m: reports of phase 1 read for the threshold."""
    interval: Annotated[Duration, Field(ge=1)] = 60_000
    """Length of the time intervals for which sums are published."""
    lateness: Duration = 30_000
    """An interval is published this long after its end; reports that come later go to the dead-letter topic."""
    scale: Literal["log", "linear"] = "log"
    """Domain of the phase 1 reports; `log` also resolves values far below the bound. The clients' must be the same."""
    horizon: Positive = 1 << 20
    """Reports expected under one threshold: more of them make truncation matter more than noise."""
    follow: bool = True
    """Let theta follow the level of phase 2's means. Off, it stays as phase 1 chose it."""
    refresh: Annotated[Duration, Field(ge=1)] | None = None
    """Choose a new threshold this often, from fresh phase 1 reports; needs `phase1_share`. By default the first choice
    stays, and only follows the level."""
    phase1_share: Annotated[float, Field(ge=0, lt=1)] = 0.0
    """Share of the reports that stay phase 1 once there is a threshold; they are missing from the sums' count."""


class LocalSettings(Settings):
    """The whole configuration of a pipeline of kind `local`. It draws no noise: the clients do."""

    kind = "local"
    not_tuned = (
        "the first phase of the protocol finds the clipping threshold from the devices' own reports, so nothing is tuned here; "
        "leave local.bound as large as a value can be"
    )
    published: ClassVar[tuple[str, ...]] = (*Settings.published, "local")
    reads_raw = False

    local: LocalSection = Field(examples=[{"bound": 100.0, "epsilon": 1.0}])
    """Values, intervals and promise."""

    def published_fields(self) -> dict[str, Any]:
        """`local.follow` only where it is off: its default must not change the digest of pipelines that ran before it was."""
        fields = super().published_fields()
        if self.local.follow:
            fields["local"] = {name: value for name, value in fields["local"].items() if name != "follow"}
        return fields

    @property
    def topic_specs(self) -> tuple[TopicSpec, ...]:
        """The same for every configuration."""
        return LOCAL_TOPICS

    @property
    def schemas(self) -> dict[str, RowSchema]:
        """The same for every configuration."""
        return {self.topic(ESTIMATE.name): estimate.SCHEMA, self.topic(THRESHOLD.name): threshold.SCHEMA}

    @property
    def closing_delay(self) -> int:
        """Reports may come late."""
        return self.local.lateness

    def idle(self) -> Iterator[Idle]:
        """What only histograms follow. Reports are read by their stamps, so ``clock.max_ahead`` counts."""
        under, instead = f'pipeline.kind = "{self.kind}"', 'pipeline.kind = "histogram"'
        yield Idle("budget", f"{under}, whose promise is per report", instead)
        yield from fields("clock", [name for name in CLOCK if name != "max_ahead"], under, instead)
        yield from fields("window", WINDOW, under, instead)
        yield from fields("input", INPUT, under, instead)
        yield from fields("topics", ["retention", "bounded_partitions"], under, instead)

    def problems(self) -> list[str]:
        """The problems of every kind, and what a new threshold lacks."""
        found = super().problems()
        if (self.local.refresh is None) != (self.local.phase1_share == 0):
            found.append(
                "local.refresh, local.phase1_share: one needs the other; set both to renew the threshold, or leave both out"
            )
        return [*found, *formats.problems(self.input)]

    @model_validator(mode="before")
    @classmethod
    def _input(cls, data: Any) -> Any:
        """The input is the pipeline's own topic of reports: there is no raw topic to name."""
        pipeline, source = data.get("pipeline"), data.get("input", {})
        if not isinstance(pipeline, Mapping) or not isinstance(source, Mapping) or "topic" in source:
            return data
        prefix = pipeline.get("prefix", PipelineSettings.model_fields["prefix"].default)
        return {**data, "input": {**source, "topic": topic_name(prefix, str(pipeline.get("name")), REPORTS.name)}}
