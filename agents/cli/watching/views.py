"""The view of each kind of pipeline. A new kind is its file and one line here."""

from susurrus.agents.cli.watching.histogram import HistogramView
from susurrus.agents.cli.watching.local import COLUMNS as LOCAL_COLUMNS
from susurrus.agents.cli.watching.local import LocalView
from susurrus.agents.cli.watching.stream import COLUMNS as STREAM_COLUMNS
from susurrus.agents.cli.watching.stream import StreamView
from susurrus.agents.cli.watching.view import View, check_column
from susurrus.agents.config.settings import Settings
from susurrus.agents.histogram.settings import HistogramSettings
from susurrus.agents.local.settings import LocalSettings
from susurrus.agents.stream.settings import StreamSettings
from susurrus.mechanisms.calendar import WindowStart
from susurrus.mechanisms.errors import ConfigurationError


def check_options(settings: Settings, *, window: WindowStart | None, stream: str | None, column: str | None) -> None:
    """Raises ConfigurationError for an option that the kind does not have, and for a column that there is not."""
    kind = f'pipeline.kind="{settings.kind}"'
    if window is not None and not isinstance(settings, HistogramSettings):
        raise ConfigurationError(f"--window: {kind} has no windows; leave it out")
    if stream is not None and not isinstance(settings, StreamSettings):
        raise ConfigurationError(f"--stream: {kind} has no streams; leave it out")
    if isinstance(settings, HistogramSettings):
        check_column(column, HistogramView.columns(settings))
    elif isinstance(settings, StreamSettings):
        check_column(column, STREAM_COLUMNS)
    elif isinstance(settings, LocalSettings):
        check_column(column, LOCAL_COLUMNS)
    else:
        raise ConfigurationError(f"{kind}: watch does not know this kind; read the topics of the pipeline instead")


def view_of(
    settings: Settings,
    *,
    window: WindowStart | None = None,
    stream: str | None = None,
    column: str | None = None,
    all_rows: bool = False,
) -> View:
    """What `susurrus watch` shows of a pipeline. all_rows: for an export.

    Raises ConfigurationError where a topic is missing.
    """
    if isinstance(settings, HistogramSettings):
        return HistogramView(settings, window=window, column=column)
    if isinstance(settings, StreamSettings):
        return StreamView(settings, stream=stream, column=column, all_rows=all_rows)
    return LocalView(LocalSettings.of(settings), column=column)
