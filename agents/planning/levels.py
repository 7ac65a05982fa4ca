"""The forecast of a pipeline with grouping sets: one for each level, on the same records with the level's keys.

workload of raw keys ──of_level──▶ workload of the level ──forecast──▶ a row of every table of the plan
"""

from collections.abc import Sequence

import numpy as np

from susurrus.agents.histogram.level_keys import LevelKeys
from susurrus.agents.histogram.settings import HistogramSettings
from susurrus.agents.planning.forecast import forecast
from susurrus.agents.planning.outcome import StrategyForecast
from susurrus.agents.planning.sources import OfLaw, WindowSource
from susurrus.agents.planning.spool import Progress
from susurrus.agents.planning.workload import RenamedWorkload, Workload
from susurrus.mechanisms.errors import ConfigurationError


def of_level(workload: Workload, settings: HistogramSettings, level: int) -> RenamedWorkload:
    """The workload as one level sees it."""
    names = LevelKeys(settings.level_parts).of(workload.key_names)[level]
    number = {name: at for at, name in enumerate(dict.fromkeys(names))}
    place = np.fromiter(map(number.__getitem__, names), np.int32, len(names))
    return RenamedWorkload(workload, list(number), place)


def level_forecasts(
    settings: HistogramSettings, source: WindowSource, *, seeds: Sequence[int], progress: Progress
) -> list[StrategyForecast]:
    """A forecast for each level, called by its name. Raises ConfigurationError."""
    if isinstance(source, OfLaw):
        raise ConfigurationError(
            "--users: a law knows nothing of the parts of a key, and levels are made of them; give --sample or --raw-records, or "
            "plan a copy of the file without input.grouping_sets"
        )
    workloads = source.workloads(settings)
    return [
        forecast(
            settings,
            [of_level(each, settings, level) for each in workloads],
            seeds=seeds,
            progress=progress,
            level=level,
        )
        for level in range(len(settings.grouping))
    ]
