"""The stage of a stream pipeline: one arrow, from the raw values to the private stream."""

from susurrus.agents.real.stream import Stream
from susurrus.agents.settings import Settings
from susurrus.agents.supervisor import StageSpec


def stream_stages(settings: Settings) -> list[StageSpec]:
    """``tops`` and ``pak`` are one stage with another mechanism."""
    return [StageSpec("stream", settings.input.topic, "stream-changelog", Stream, purge=False)]
