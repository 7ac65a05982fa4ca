"""The configuration of private real-valued streams: the common sections and `[stream]`."""

from collections.abc import Iterator
from typing import Any, ClassVar, Final

from pydantic import Field

from susurrus.agents import formats
from susurrus.agents.config.idle import CLOCK, INPUT, TOPICS, WINDOW, Idle, fields
from susurrus.agents.config.settings import Settings
from susurrus.agents.formats import reading
from susurrus.agents.stream.mechanism import mechanism_of
from susurrus.agents.stream.sections import StreamSection
from susurrus.mechanisms.errors import ConfigurationError
from susurrus.topics import private_stream
from susurrus.topics.records.fields import parse_paths
from susurrus.topics.spec import PRIVATE_STREAM, STREAM_TOPICS, TopicSpec
from susurrus.topics.wire.row_schema import RowSchema

_FOLLOWING: Final = ("growth", "lower_clip")
_TOPS: Final = ("range_limit", "fanout", "smoothing", "smoother", *_FOLLOWING)
_PAK: Final = ("delta", "horizon", "tail_start")
"""Parameters of one method only."""


class StreamSettings(Settings):
    """The whole configuration of a pipeline of kind `stream`."""

    kind = "stream"
    not_tuned = (
        "the mechanism finds its own clipping threshold from the values that stream.holdout sets aside, so nothing is tuned here; "
        "leave stream.bound as large as a value can be"
    )
    published: ClassVar[tuple[str, ...]] = (*Settings.published, "stream")
    not_published: ClassVar[tuple[str, ...]] = (*Settings.not_published, "stream.secret_file")
    secret_field = "stream.secret_file"

    stream: StreamSection = Field(examples=[{"bound": 100.0, "epsilon": 1.0}])
    """Values, method and promise."""

    @property
    def topic_specs(self) -> tuple[TopicSpec, ...]:
        """The same for every method."""
        return *STREAM_TOPICS, *self.standing_topics

    @property
    def schemas(self) -> dict[str, RowSchema]:
        """The same for every method."""
        return {self.topic(PRIVATE_STREAM.name): private_stream.SCHEMA}

    def idle(self) -> Iterator[Idle]:
        """What only histograms follow, and the parameters of the other method."""
        under, instead = f'pipeline.kind = "{self.kind}"', 'pipeline.kind = "histogram"'
        yield Idle("budget", f"{under}, whose promise is per event", instead)
        yield from fields("clock", CLOCK, under, instead)
        yield from fields("window", WINDOW, under, instead)
        paths = (self.stream.value, self.stream.stream or "")
        keyed = any(path == "$key" or path.startswith("$key.") for path in paths)
        yield from fields("input", [name for name in INPUT if name != "key_format" or not keyed], under, instead)
        yield from fields("topics", TOPICS, under, instead)
        methods = ("tops", "tops-paper") if self.stream.method == "pak" else ("pak",)
        if self.stream.method == "tops-paper":
            yield from fields("stream", _FOLLOWING, 'stream.method = "tops-paper"', 'stream.method = "tops"')
        own = _TOPS if self.stream.method == "pak" else _PAK
        yield from fields("stream", own, f'stream.method = "{self.stream.method}"', f'stream.method = "{methods[0]}"')

    def in_digest(self, path: str) -> bool:
        """Whether a setting counts for the digest. How the range follows a stream counts for `tops` only: the other methods have
        none."""
        section, _, name = path.partition(".")
        return super().in_digest(path) and (
            section != "stream" or name not in _FOLLOWING or self.stream.method == "tops"
        )

    def published_fields(self) -> dict[str, Any]:
        """The settings that are published: those that the digest covers."""
        fields = super().published_fields()
        fields["stream"] = {name: value for name, value in fields["stream"].items() if self.in_digest(f"stream.{name}")}
        return fields

    def problems(self) -> list[str]:
        """The problems of every kind, and what the mechanism refuses."""
        found = [*super().problems(), *formats.problems(self.input)]
        try:
            paths = parse_paths([path for path in (self.stream.value, self.stream.stream) if path is not None])
            found += reading.problems(self.input, paths)
        except ValueError as problem:
            found.append(f"stream: {problem}")
        try:
            mechanism_of(self.stream)
        except ConfigurationError as error:
            text = str(error)
            found.append(text if text.startswith("stream.") else f"stream.{text}; correct it")
        return found
