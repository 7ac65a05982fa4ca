"""The configuration of private real-valued streams: the common sections and `[stream]`."""

from typing import ClassVar

from pydantic import Field

from susurrus.agents import formats
from susurrus.agents.config.settings import Settings
from susurrus.agents.stream.mechanism import mechanism_of
from susurrus.agents.stream.sections import StreamSection
from susurrus.mechanisms.errors import ConfigurationError
from susurrus.topics import private_stream
from susurrus.topics.row_schema import RowSchema
from susurrus.topics.spec import PRIVATE_STREAM, STREAM_TOPICS, TopicSpec


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
        return STREAM_TOPICS

    @property
    def schemas(self) -> dict[str, RowSchema]:
        """The same for every method."""
        return {self.topic(PRIVATE_STREAM.name): private_stream.SCHEMA}

    def problems(self) -> list[str]:
        """Those of every kind, and what the mechanism refuses."""
        found = [*super().problems(), *formats.problems(self.input)]
        try:
            mechanism_of(self.stream)
        except ConfigurationError as error:
            found.append(str(error))
        return found
