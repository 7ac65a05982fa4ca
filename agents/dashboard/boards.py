"""The board of each kind of pipeline."""

from susurrus.agents.config.settings import Settings
from susurrus.agents.dashboard.board import Board
from susurrus.agents.dashboard.estimates import EstimatesBoard
from susurrus.agents.dashboard.histogram import HistogramBoard
from susurrus.agents.dashboard.streams import StreamsBoard
from susurrus.agents.dashboard.windows import CURVE_BYTES, KEEP
from susurrus.agents.histogram.settings import HistogramSettings
from susurrus.agents.local.settings import LocalSettings
from susurrus.agents.stream.settings import StreamSettings


def board_of(settings: Settings, *, windows: int = KEEP, curve_bytes: int = CURVE_BYTES) -> Board:
    """What shows a pipeline with these settings. Raises ConfigurationError where its mechanism refuses its numbers."""
    if isinstance(settings, StreamSettings):
        return StreamsBoard(settings)
    if isinstance(settings, LocalSettings):
        return EstimatesBoard(settings)
    return HistogramBoard(HistogramSettings.of(settings), keep=windows, curve_bytes=curve_bytes)
