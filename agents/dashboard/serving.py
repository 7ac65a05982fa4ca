"""A dashboard that runs: its feed and its server together."""

import contextlib
from collections.abc import Iterable, Iterator

from susurrus.agents.config.settings import Settings
from susurrus.agents.dashboard.budget import BudgetFeed
from susurrus.agents.dashboard.feed import Feed
from susurrus.agents.dashboard.server import DashboardServer
from susurrus.agents.histogram.windows import CURVE_BYTES, KEEP
from susurrus.agents.pipelines import pipeline_of

PORT = 8470
NO_CHARTS = 'plotly is not installed, so the page has no charts: pip install "susurrus[dashboard]"'


@contextlib.contextmanager
def serving(
    settings: Settings,
    *,
    host: str = "127.0.0.1",
    port: int = PORT,
    allowed: Iterable[str] = (),
    windows: int = KEEP,
    curve_bytes: int = CURVE_BYTES,
) -> Iterator[DashboardServer]:
    """Serve a pipeline's dashboard for the block. Raises ConfigurationError where it cannot listen, or where the mechanism refuses
    its numbers."""
    pipeline = pipeline_of(settings)
    cost = pipeline.per_window()
    board = pipeline.board(windows=windows, curve_bytes=curve_bytes)
    feed = Feed(settings, board, None if cost is None else BudgetFeed(settings, cost))
    server = DashboardServer(feed, host=host, port=port, allowed=allowed)
    feed.start()
    server.start()
    try:
        yield server
    finally:
        server.close()
        feed.close()
