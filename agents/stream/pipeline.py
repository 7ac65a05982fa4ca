"""The stage of a stream pipeline: one arrow, from the raw values to the private stream."""

from susurrus.agents.config.settings import Settings
from susurrus.agents.runtime.supervisor import StageSpec
from susurrus.agents.stream.stage import Stream


def stream_stages(settings: Settings) -> list[StageSpec]:
    """``tops`` and ``pak`` are one stage with another mechanism."""
    return [StageSpec("stream", settings.input.topic, "stream-changelog", Stream, purge=False)]
