"""What `susurrus watch` shows of a pipeline, for tests."""

from typing import Any

from susurrus.agents.config.settings import Settings
from susurrus.agents.display.view import View, Wanted
from susurrus.agents.pipelines import pipeline_of


def view_of(settings: Settings, **wanted: Any) -> View:
    """The view with these options (`Wanted`), open."""
    return pipeline_of(settings).view(Wanted(**wanted))()
